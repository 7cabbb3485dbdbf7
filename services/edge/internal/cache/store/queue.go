package store

import (
	"sync"
	"sync/atomic"
)

const (
	// maxQueued bounds the memory of what waits to be written.
	maxQueued = 64 << 20
	// maxBatch is how much is written in one transaction.
	maxBatch = 4 << 20
)

// op is one thing to be written: an item, or purges.
type op[H any] struct {
	volume *volume
	item   *Item[H]
	until  uint32
	charge int64 // of the queue's memory

	purges  []storedPurge
	overrun bool         // too many purges to remember: everything goes
	done    chan<- error // told of the purges' end
}

// queue is what waits to be written, in order. It never blocks.
type queue[H any] struct {
	max, batch int64

	bytes atomic.Int64

	mu     sync.Mutex
	ops    []op[H]
	closed bool
}

// reserve takes memory for one item, unless too much waits.
func (q *queue[H]) reserve(charge int64) bool {
	if q.bytes.Add(charge) <= q.max {
		return true
	}
	q.bytes.Add(-charge)
	return false
}

func (q *queue[H]) release(charge int64) { q.bytes.Add(-charge) }

// long says whether a whole batch waits.
func (q *queue[H]) long() bool { return q.bytes.Load() >= q.batch }

// add appends an op, unless the queue is closed.
func (q *queue[H]) add(o op[H]) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	q.ops = append(q.ops, o)
	return true
}

// take returns the first ops, about one batch.
func (q *queue[H]) take() []op[H] {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := 0
	for size := int64(0); n < len(q.ops) && (n == 0 || size+q.ops[n].charge <= q.batch); n++ {
		size += q.ops[n].charge
	}
	ops := q.ops[:n:n]
	if q.ops = q.ops[n:]; len(q.ops) == 0 {
		q.ops = nil
	}
	return ops
}

// takeAll returns what is left.
func (q *queue[H]) takeAll() []op[H] {
	q.mu.Lock()
	defer q.mu.Unlock()
	ops := q.ops
	q.ops = nil
	return ops
}

// close refuses what comes later.
func (q *queue[H]) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
}
