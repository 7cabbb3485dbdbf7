package batch

import (
	"errors"
	"sync"
	"time"
)

// Why an item is dropped.
var (
	// ErrExpired means that the deadline of the item passed while it waited.
	ErrExpired = errors.New("waited past its time")
	// ErrFull means that too many items wait.
	ErrFull = errors.New("too many wait")
	// ErrStopped means that the batcher has stopped.
	ErrStopped = errors.New("stopped")
)

// Options say how items become batches.
type Options[T any] struct {
	// Run serves a batch of 1 to MaxBatch items in order of arrival. It is
	// called from MaxInFlight goroutines at once; items is its own until it
	// returns. No deadline had passed when it was called; to keep the items
	// within theirs from then on is its business.
	Run func(items []T)
	// Drop takes an item that Run will not see. It must not block.
	Drop func(item T, reason error)
	// MaxBatch is the greatest size of a batch, at least 1.
	MaxBatch int
	// MaxInFlight is the greatest number of batches at once, at least 1.
	MaxInFlight int
	// MaxWaiting is the greatest number of items that wait, at least 1.
	MaxWaiting int
}

// Batcher gathers items into batches. It is safe for concurrent use.
type Batcher[T any] struct {
	opts Options[T]

	mu       sync.Mutex
	queue    []entry[T] // what waits, in order of arrival, is queue[head:]
	head     int
	inFlight int
	spare    []*worker[T] // at most MaxInFlight, kept for their memory
	stopped  bool
	runs     sync.WaitGroup
}

type entry[T any] struct {
	item     T
	deadline time.Time
}

// worker is the memory of one batch at a time.
type worker[T any] struct {
	entries []entry[T]
	items   []T
}

// New returns a batcher. It starts no goroutine until an item comes.
func New[T any](opts Options[T]) *Batcher[T] {
	return &Batcher[T]{opts: opts}
}

// Submit hands over one item, which is of no use after deadline. It never
// blocks: Run or Drop take the item, Drop perhaps before Submit returns.
func (b *Batcher[T]) Submit(item T, deadline time.Time) {
	b.mu.Lock()
	reason := error(nil)
	switch {
	case b.stopped:
		reason = ErrStopped
	case len(b.queue)-b.head >= b.opts.MaxWaiting:
		reason = ErrFull
	}
	if reason != nil {
		b.mu.Unlock()
		b.opts.Drop(item, reason)
		return
	}
	b.queue = append(b.queue, entry[T]{item, deadline})
	var w *worker[T]
	if b.inFlight < b.opts.MaxInFlight {
		w = b.hire()
	}
	b.mu.Unlock()
	if w != nil {
		go b.work(w)
	}
}

// Waiting returns the number of items that wait for a batch.
func (b *Batcher[T]) Waiting() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.queue) - b.head
}

// InFlight returns the number of batches that are being served.
func (b *Batcher[T]) InFlight() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.inFlight
}

// Stop refuses what is submitted from now on and returns when everything that
// waits has been served. It may be called twice.
func (b *Batcher[T]) Stop() {
	b.mu.Lock()
	b.stopped = true
	b.mu.Unlock()
	b.runs.Wait()
}

// hire returns a worker that counts as in flight. The lock is held.
func (b *Batcher[T]) hire() *worker[T] {
	b.inFlight++
	b.runs.Add(1)
	last := len(b.spare) - 1
	if last < 0 {
		return new(worker[T])
	}
	w := b.spare[last]
	b.spare = b.spare[:last]
	return w
}

// work serves batches until nothing waits. One goroutine serves many batches,
// so a busy batcher starts none.
func (b *Batcher[T]) work(w *worker[T]) {
	defer b.runs.Done()
	for b.take(w) {
		b.pick(w)
		if len(w.items) > 0 {
			b.opts.Run(w.items)
		}
	}
}

// take moves the next batch from the queue to w. False means that nothing
// waits, and that w no longer counts as in flight.
func (b *Batcher[T]) take(w *worker[T]) bool {
	clear(w.entries)
	clear(w.items)
	b.mu.Lock()
	defer b.mu.Unlock()
	waiting := b.queue[b.head:]
	n := min(len(waiting), b.opts.MaxBatch)
	if n == 0 {
		b.inFlight--
		b.spare = append(b.spare, w)
		return false
	}
	w.entries = append(w.entries[:0], waiting[:n]...)
	clear(waiting[:n])
	switch b.head += n; {
	case b.head == len(b.queue):
		b.queue, b.head = b.queue[:0], 0
	case b.head >= b.opts.MaxWaiting:
		rest := copy(b.queue, b.queue[b.head:])
		clear(b.queue[rest:])
		b.queue, b.head = b.queue[:rest], 0
	}
	return true
}

// pick keeps the items of w that are still of use and drops the others.
func (b *Batcher[T]) pick(w *worker[T]) {
	w.items = w.items[:0]
	now := time.Now()
	for _, e := range w.entries {
		if now.Before(e.deadline) {
			w.items = append(w.items, e.item)
		} else {
			b.opts.Drop(e.item, ErrExpired)
		}
	}
}
