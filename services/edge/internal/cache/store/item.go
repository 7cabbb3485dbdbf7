package store

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
)

// wholeBytes is the size of bodies that are read at once, and held in memory
// while they are hot.
const wholeBytes = 256 << 10

// groupChunks of a larger body are read at once.
const groupChunks = 8

// ErrCorrupt says that a body on disk is not what was stored, or is gone. What
// was written of it before the error is right. The entry is dropped.
var ErrCorrupt = errors.New("the stored body does not read")

var errRange = errors.New("the range is not within the body")

// Item is what was stored under a key at one time. It never changes: a later
// Put, Update, Delete or Purge of the key leaves it readable as it was, until
// Close. Its methods are safe for concurrent use.
type Item[H any] struct {
	id   uint64
	key  Key
	name string
	gen  Generation
	head H
	size int64

	inMemory bool
	whole    []byte   // the body in one piece, or
	pieces   [][]byte // in several

	base   uint64 // else its first chunk
	store  *Store[H]
	volume *volume
	slot   uint32
	closed atomic.Bool
}

// Head is what Put or Update was given. It is shared by all readers: do not
// change it.
func (it *Item[H]) Head() H { return it.head }

// Size is the length of the body in bytes.
func (it *Item[H]) Size() int64 { return it.size }

// Body returns the whole body when it is in memory in one piece, to be written
// at once: do not change it. Bodies of up to 256 KiB always are. Of others it
// may return nil, and of an empty one it does.
func (it *Item[H]) Body() []byte { return it.whole }

// WriteTo writes the whole body. See [Item.WriteRange].
func (it *Item[H]) WriteTo(w io.Writer) (int64, error) { return it.WriteRange(w, 0, it.size) }

// WriteRange writes n bytes of the body from offset on; both lie within the
// body. It holds 256 KiB of the body at a time, and no lock or transaction
// while it writes. The error is w's, or wraps [ErrCorrupt].
func (it *Item[H]) WriteRange(w io.Writer, offset, n int64) (int64, error) {
	switch {
	case offset < 0 || n < 0 || offset > it.size-n:
		return 0, errRange
	case n == 0:
		return 0, nil
	case it.whole != nil:
		m, err := w.Write(it.whole[offset : offset+n])
		return int64(m), err
	case it.inMemory:
		return writePieces(w, it.pieces, offset, n)
	}
	return it.writeChunks(w, offset, n)
}

func writePieces(w io.Writer, pieces [][]byte, offset, n int64) (written int64, err error) {
	for _, piece := range pieces {
		if offset >= int64(len(piece)) {
			offset -= int64(len(piece))
			continue
		}
		piece = piece[offset:]
		piece = piece[:min(int64(len(piece)), n-written)]
		offset = 0
		m, err := w.Write(piece)
		if written += int64(m); err != nil || written == n {
			return written, err
		}
	}
	return written, nil
}

var groups = sync.Pool{New: func() any { return new([groupChunks * chunkBytes]byte) }}

func (it *Item[H]) writeChunks(w io.Writer, offset, n int64) (written int64, err error) {
	group := groups.Get().(*[groupChunks * chunkBytes]byte)
	defer groups.Put(group)
	for written < n {
		at := offset + written
		first := int(at / chunkBytes)
		end := min(first+groupChunks, chunksOf(offset+n))
		b, err := it.volume.readChunks(group[:0], it.base, it.size, first, end)
		if err != nil {
			it.store.unreadable(it.volume, it.key, it.id, err)
			return written, fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
		b = b[at-int64(first)*chunkBytes:]
		m, err := w.Write(b[:min(int64(len(b)), n-written)])
		if written += int64(m); err != nil {
			return written, err
		}
	}
	return written, nil
}

// Close gives the item back: what was evicted meanwhile can go from the disk.
// The item must not be used any more. It may be called twice.
func (it *Item[H]) Close() {
	if it.volume != nil && !it.closed.Swap(true) {
		if it.volume.index.unpin(it.slot) {
			it.store.wake(it.store.ring)
		}
	}
}

// memory is about how many bytes the item takes in memory.
func (it *Item[H]) memory(head int) int64 {
	const overhead = 400 // of the item, and of what leads to it
	n := int64(overhead + len(it.name) + head + cap(it.whole))
	for _, piece := range it.pieces {
		n += int64(cap(piece)) + 24
	}
	return n
}
