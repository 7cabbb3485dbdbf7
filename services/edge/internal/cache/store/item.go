package store

import (
	"errors"
	"io"
)

// ErrCorrupt says that a body on disk is not what was stored, or is gone. What
// was written of it before the error is right. The entry is dropped.
var ErrCorrupt = errors.New("the stored body does not read")

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
	body [][]byte // the whole body, if it is in memory
}

// Head is what Put or Update was given. It is shared by all readers: do not
// change it.
func (it *Item[H]) Head() H { return it.head }

// Name is what Put was given.
func (it *Item[H]) Name() string { return it.name }

// Size is the length of the body in bytes.
func (it *Item[H]) Size() int64 { return it.size }

// Body returns the whole body when it is in memory in one piece, to be written
// at once: do not change it. Bodies of up to 256 KiB mostly are; of others, and
// of an empty one, it returns nil, and Size tells them apart.
func (it *Item[H]) Body() []byte {
	if len(it.body) == 1 {
		return it.body[0]
	}
	return nil
}

// WriteTo writes the whole body. See [Item.WriteRange].
func (it *Item[H]) WriteTo(w io.Writer) (int64, error) { return it.WriteRange(w, 0, it.size) }

// WriteRange writes n bytes of the body from offset on; both lie within the
// body. It holds one piece of the body in memory at a time, and no lock or
// transaction while it writes. The error is w's, or wraps [ErrCorrupt].
func (it *Item[H]) WriteRange(w io.Writer, offset, n int64) (written int64, err error) {
	if offset < 0 || n < 0 || offset > it.size-n {
		return 0, errRange
	}
	for _, piece := range it.body {
		if offset >= int64(len(piece)) {
			offset -= int64(len(piece))
			continue
		}
		piece = piece[offset:]
		piece = piece[:min(int64(len(piece)), n)]
		m, err := w.Write(piece)
		written, n, offset = written+int64(m), n-int64(m), 0
		if err != nil || n == 0 {
			return written, err
		}
	}
	return written, nil
}

var errRange = errors.New("the range is not within the body")

// Close gives the item back: what was evicted meanwhile can go from the disk.
// Call it once; the item must not be used any more.
func (it *Item[H]) Close() {}
