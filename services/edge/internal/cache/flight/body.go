package flight

// minPiece is the least room for a piece of a body that comes in small writes.
const minPiece = 4 << 10

// maxFirstPiece bounds the room that is made for a body of known length.
const maxFirstPiece = 256 << 10

// body is what a fetch has brought so far, in pieces that never move: a reader
// may look at what was published while more is added behind it.
type body struct {
	pieces    []piece
	space     [1]piece // room for the first
	produced  int64    // length so far, what was dropped included
	published int64    // of it, what readers may see
	first     int      // room for the first piece at least
	bound     int64    // with a closed flight: how much is kept for the slowest reader
}

type piece struct {
	start int64
	data  []byte
}

// add copies p to the end and returns how many bytes more the body holds.
func (b *body) add(p []byte) (held int64) {
	b.produced += int64(len(p))
	if n := len(b.pieces); n > 0 {
		last := &b.pieces[n-1]
		room := min(cap(last.data)-len(last.data), len(p))
		last.data = append(last.data, p[:room]...)
		p = p[room:]
	}
	if len(p) == 0 {
		return 0
	}
	least := minPiece
	if len(b.pieces) == 0 {
		least = b.first
		if b.pieces == nil {
			b.pieces = b.space[:0]
		}
	}
	size := max(len(p), least)
	data := append(make([]byte, 0, size), p...)
	b.pieces = append(b.pieces, piece{start: b.produced - int64(len(p)), data: data})
	return int64(size)
}

// publish lets readers see everything.
func (b *body) publish() { b.published = b.produced }

func (b *body) unpublished() int64 { return b.produced - b.published }

// read returns what is published at an offset, up to the end of a piece, or nil
// if nothing is.
func (b *body) read(offset int64) []byte {
	if offset >= b.published {
		return nil
	}
	low, high := 0, len(b.pieces) // the piece is in [low, high)
	for high-low > 1 {
		if middle := (low + high) / 2; b.pieces[middle].start <= offset {
			low = middle
		} else {
			high = middle
		}
	}
	p := &b.pieces[low]
	end := min(int64(len(p.data)), b.published-p.start)
	return p.data[offset-p.start : end : end]
}

// drop lets go of the pieces that end at or before an offset, and returns how
// many bytes they held.
func (b *body) drop(offset int64) (held int64) {
	n := 0
	for n < len(b.pieces) && b.pieces[n].start+int64(len(b.pieces[n].data)) <= offset {
		held += int64(cap(b.pieces[n].data))
		n++
	}
	if n == 0 {
		return 0
	}
	clear(b.pieces[:n])
	b.pieces = b.pieces[n:]
	return held
}

// whole returns all pieces, if none was dropped.
func (b *body) whole() ([][]byte, bool) {
	if b.produced == 0 {
		return nil, true
	}
	if len(b.pieces) == 0 || b.pieces[0].start != 0 {
		return nil, false
	}
	all := make([][]byte, len(b.pieces))
	for i := range b.pieces {
		all[i] = b.pieces[i].data
	}
	return all, true
}
