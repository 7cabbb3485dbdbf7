package qos

// history is when the requests of one key came: ms since the limiter was made,
// oldest first. Only the oldest time is kept in full. Each later one is its
// distance to the one before, as a varint: one byte per request at 8 a second or
// more.
//
// The newest distances are collected beside the other fields, and go to a ring of
// bytes together. Reading memory that no recent request has used is most of what a
// decision costs, so the ring is left alone for as long as possible: what is too
// old is pruned only when the number of requests matters or the ring is full.
type history struct {
	oldest, newest int64 // while count > 0
	count          int32
	head, used     uint32 // where the distances in the ring begin, and how many bytes they are
	ring           []byte // its length is 0 or a power of two
	pending        [19]byte
	filled         uint8 // of pending
}

// minRing is the length of the first ring.
const minRing = 32

// push adds a request at now, which is not before newest. What is older than maxAge
// may be pruned.
func (h *history) push(now, maxAge int64) {
	if h.count > 0 && int(h.filled)+varintLen(now-h.newest) > len(h.pending) {
		h.flush(now, maxAge)
	}
	if h.count == 0 {
		h.oldest, h.newest, h.count = now, now, 1
		return
	}
	delta := uint64(now - h.newest)
	for ; delta >= 0x80; delta >>= 7 {
		h.pending[h.filled] = byte(delta) | 0x80
		h.filled++
	}
	h.pending[h.filled] = byte(delta)
	h.filled++
	h.newest = now
	h.count++
}

// varintLen is how many bytes a distance takes, at most 9.
func varintLen(delta int64) int {
	n := 1
	for ; delta >= 0x80; delta >>= 7 {
		n++
	}
	return n
}

// flush moves what is pending to the ring.
func (h *history) flush(now, maxAge int64) {
	h.prune(now, maxAge)
	for int(h.used)+int(h.filled) > len(h.ring) {
		h.grow()
	}
	mask := uint32(len(h.ring) - 1)
	for _, b := range h.pending[:h.filled] {
		h.ring[(h.head+h.used)&mask] = b
		h.used++
	}
	h.filled = 0
}

func (h *history) grow() {
	ring := make([]byte, max(minRing, 2*len(h.ring)))
	n := copy(ring, h.ring[h.head:])
	copy(ring[n:], h.ring[:h.head])
	h.ring, h.head = ring, 0
}

// pop removes the oldest request; there is one.
func (h *history) pop() {
	h.count--
	if h.count == 0 {
		h.head, h.used, h.filled = 0, 0, 0
		return
	}
	var delta int64
	for shift := 0; ; shift += 7 {
		b := h.take()
		delta |= int64(b&0x7f) << shift
		if b < 0x80 {
			break
		}
	}
	h.oldest += delta
}

// take removes the first byte; there is one.
func (h *history) take() byte {
	if h.used == 0 {
		b := h.pending[0]
		copy(h.pending[:], h.pending[1:h.filled])
		h.filled--
		return b
	}
	b := h.ring[h.head]
	h.head = (h.head + 1) & uint32(len(h.ring)-1)
	h.used--
	return b
}

// prune removes what is older than maxAge ms.
func (h *history) prune(now, maxAge int64) {
	if h.count > 0 && now-h.newest > maxAge {
		h.count, h.head, h.used, h.filled = 0, 0, 0, 0
		return
	}
	for h.count > 0 && now-h.oldest > maxAge {
		h.pop()
	}
}

// rate is the requests per second since the oldest one, for a history that is
// pruned. The order of the operations decides close cases.
func (h *history) rate(now int64) float64 {
	age := now - h.oldest
	if age == 0 || h.count == 0 {
		age = 1
	}
	return float64(float64(h.count)/float64(age)) * 1000
}
