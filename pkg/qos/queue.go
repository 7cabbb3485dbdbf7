package qos

import "math"

// queue finds the entry of a shard that was used longest ago: a binary heap,
// ordered by the stamps that entries had when they were looked at last. A use of
// an entry only changes its stamp, so that it costs next to nothing; settle looks
// again at as many as it must.
type queue []queued

// queued is an entry with a stamp that it has or had.
type queued struct {
	stamp uint64
	entry *entry
}

// horizon is not above the stamp of any entry; math.MaxUint64 if there is none.
func (q queue) horizon() uint64 {
	if len(q) == 0 {
		return math.MaxUint64
	}
	return q[0].stamp
}

func (q *queue) push(e *entry) {
	*q = append(*q, queued{e.stamp, e})
	h := *q
	for i := len(h) - 1; i > 0; {
		parent := (i - 1) / 2
		if h[parent].stamp <= h[i].stamp {
			return
		}
		h[parent], h[i] = h[i], h[parent]
		i = parent
	}
}

// settle makes the first entry the one with the least stamp.
func (q queue) settle() {
	for len(q) > 0 && q[0].stamp != q[0].entry.stamp {
		q[0].stamp = q[0].entry.stamp
		q.down()
	}
}

// pop removes the first entry; there is one.
func (q *queue) pop() *entry {
	h := *q
	first := h[0].entry
	last := len(h) - 1
	h[0] = h[last]
	h[last] = queued{}
	*q = h[:last]
	q.down()
	return first
}

// down restores the order after a change of the first entry.
func (q queue) down() {
	for i := 0; ; {
		child := 2*i + 1
		if child >= len(q) {
			return
		}
		if right := child + 1; right < len(q) && q[right].stamp < q[child].stamp {
			child = right
		}
		if q[i].stamp <= q[child].stamp {
			return
		}
		q[i], q[child] = q[child], q[i]
		i = child
	}
}
