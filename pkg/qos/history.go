package qos

import "encoding/binary"

// history is when the requests of one key came: ms since the limiter was made,
// oldest first. Only the oldest time is kept in full. Each later one is its
// distance to the one before, as a varint in a ring of bytes: one byte per
// request at 8 a second or more.
type history struct {
	oldest, newest int64 // while count > 0
	count          int
	ring           []byte // its length is a power of two
	head, used     uint32 // where the distances begin, and how many bytes they are
}

// minRing is the length of the first ring of a history.
const minRing = 16

// push adds a request at now, which is not before newest.
func (h *history) push(now int64) {
	if h.count == 0 {
		h.oldest, h.newest, h.count = now, now, 1
		return
	}
	delta := uint64(now - h.newest)
	for delta >= 0x80 {
		h.put(byte(delta) | 0x80)
		delta >>= 7
	}
	h.put(byte(delta))
	h.newest = now
	h.count++
}

func (h *history) put(b byte) {
	if int(h.used) == len(h.ring) {
		h.grow()
	}
	h.ring[(h.head+h.used)&uint32(len(h.ring)-1)] = b
	h.used++
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
		h.head, h.used = 0, 0
		return
	}
	mask := uint32(len(h.ring) - 1)
	var delta uint64
	for shift := 0; shift < 7*binary.MaxVarintLen64; shift += 7 {
		b := h.ring[h.head&mask]
		h.head = (h.head + 1) & mask
		h.used--
		delta |= uint64(b&0x7f) << shift
		if b < 0x80 {
			break
		}
	}
	h.oldest += int64(delta)
}

// prune removes what is older than maxAge ms.
func (h *history) prune(now, maxAge int64) {
	if h.count > 0 && now-h.newest > maxAge {
		h.count, h.head, h.used = 0, 0, 0
		return
	}
	for h.count > 0 && now-h.oldest > maxAge {
		h.pop()
	}
}

// rate is the requests per second since the oldest one, for a pruned history
// that is not empty. The order of the operations decides close cases.
func (h *history) rate(now int64) float64 {
	age := now - h.oldest
	if age == 0 || h.count == 0 {
		age = 1
	}
	return float64(float64(h.count)/float64(age)) * 1000
}
