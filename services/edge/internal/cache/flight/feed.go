package flight

import (
	"context"
	"time"
)

const (
	// publishAt is how much of a body is put together before its readers are
	// woken, unless the fetch pauses.
	publishAt = 32 << 10
	// maxInterim bounds the interim heads of one flight.
	maxInterim = 8
	// leastWindow is the window of a flight of one reader, and of every flight
	// while all together hold more than they should.
	leastWindow = 2 * publishAt
)

// Feed is how a fetch hands on what it brings. Its methods are called by the
// fetch's goroutine.
type Feed[H any] struct {
	flight *flight[H]
}

// Interim hands on something ahead of the head, to who leads: whether the others
// may see what comes is not known yet. Beyond a small number nothing more is kept.
func (w *Feed[H]) Interim(h H) {
	f := w.flight
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.interim) < maxInterim {
		f.interim = append(f.interim, h)
		f.notify()
	}
}

// Share gives the head to everybody. Readers are woken with the first piece of
// the body.
func (w *Feed[H]) Share(h H) {
	f := w.flight
	f.mu.Lock()
	defer f.mu.Unlock()
	f.head, f.hasHead, f.shared = h, true, true
}

// Alone gives the head to the leader and lets everybody else go, for a reason
// that is not nil.
func (w *Feed[H]) Alone(h H, reason error) {
	w.letGo(reason, func(f *flight[H]) { f.head, f.hasHead = h, true })
}

// Fail lets everybody go, the leader too, for a reason that is not nil.
func (w *Feed[H]) Fail(reason error) {
	w.letGo(reason, func(*flight[H]) {})
}

func (w *Feed[H]) letGo(reason error, set func(*flight[H])) {
	f := w.flight
	f.mu.Lock()
	set(f)
	f.reason = reason
	f.closed = true
	f.body.bound = leastWindow
	f.notify()
	f.mu.Unlock()
	f.table.forget(f)
}

// Rename gives the flight another key of the same resource, under which it can
// be joined from now on, unless there is one of that key.
func (w *Feed[H]) Rename(key Key) {
	f := w.flight
	s := f.table.shardOf(key.Primary)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.flights[f.key] != f || s.flights[key] != nil {
		return
	}
	delete(s.flights, f.key)
	f.key = key
	s.flights[key] = f
}

// Cancel ends the fetch's context, for a reason that is not nil.
func (w *Feed[H]) Cancel(cause error) { w.flight.cancel(cause) }

// Expect says how long the body will be; a negative number is not known. Then a
// small one is kept in one piece.
func (w *Feed[H]) Expect(size int64) {
	f := w.flight
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.table.held.Load() <= f.table.opts.Budget {
		f.body.first = int(min(max(size, 0), maxFirstPiece))
	}
}

// Body returns the whole body as it was written, in pieces that are not changed
// any more, after the last Write. It returns false if some of it was let go,
// since the flight was closed.
func (w *Feed[H]) Body() ([][]byte, bool) {
	f := w.flight
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.body.whole()
}

// Flush wakes the readers for what has been written.
func (w *Feed[H]) Flush() {
	f := w.flight
	f.mu.Lock()
	defer f.mu.Unlock()
	f.publish()
}

func (f *flight[H]) publish() {
	f.body.publish()
	f.notify()
}

// Write adds to the body. It waits for readers as the package documentation
// says. Its error is that of ctx, which is the fetch's, when that ends first.
func (w *Feed[H]) Write(ctx context.Context, p []byte) error {
	f := w.flight
	for len(p) > 0 {
		n := min(len(p), publishAt)
		if err := f.waitForRoom(ctx); err != nil {
			return err
		}
		f.add(p[:n])
		p = p[n:]
	}
	return nil
}

func (f *flight[H]) add(p []byte) {
	f.mu.Lock()
	held := f.body.add(p)
	if f.closed {
		held -= f.body.drop(f.slowest())
	}
	total := f.table.held.Add(held)
	if f.body.unpublished() >= publishAt {
		f.publish()
	}
	closing := !f.closed && (f.body.produced > f.table.opts.Limit || total > f.table.opts.Budget)
	if closing {
		f.closed = true
		f.body.bound = max(f.table.opts.Window, f.body.produced)
		f.abandonIfAlone()
	}
	f.mu.Unlock()
	if closing {
		f.table.forget(f)
	}
}

// waitForRoom waits until the readers are near enough, and cuts one loose that
// stalls the others.
func (f *flight[H]) waitForRoom(ctx context.Context) error {
	var stalled *time.Timer
	var since int64 = -1 // where the slowest reader was when the timer began
	defer func() {
		if stalled != nil {
			stalled.Stop()
		}
	}()
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		f.mu.Lock()
		if f.hasRoom() {
			f.mu.Unlock()
			return nil
		}
		if f.body.unpublished() > 0 {
			f.publish()
		}
		closed, slowest := f.closed, f.slowest()
		f.mu.Unlock()
		if closed && slowest != since {
			since = slowest
			if stalled == nil {
				stalled = time.NewTimer(f.table.opts.Stall)
			} else {
				stalled.Reset(f.table.opts.Stall)
			}
		}
		var expired <-chan time.Time
		if stalled != nil {
			expired = stalled.C
		}
		select {
		case <-f.room:
		case <-expired:
			f.cutSlowest()
			since = -1
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (f *flight[H]) hasRoom() bool {
	switch {
	case len(f.askers) == 0: // nobody to wait for: it goes on to keep, or is cancelled
		return true
	case f.closed:
		return f.body.produced-f.slowest() < f.window(f.body.bound)
	case f.keep:
		return true
	}
	var fastest int64
	for _, a := range f.askers {
		fastest = max(fastest, a.offset)
	}
	return f.body.produced-fastest < f.window(f.table.opts.Window)
}

// window is how far a fetch may be ahead, which is little while all flights hold
// too much.
func (f *flight[H]) window(most int64) int64 {
	if f.table.held.Load() > f.table.opts.Budget {
		return min(most, leastWindow)
	}
	return most
}

// slowest returns how far the slowest reader is. Who was let go reads nothing.
func (f *flight[H]) slowest() int64 {
	least := f.body.produced
	for _, a := range f.askers {
		if !a.cut && (f.reason == nil || a == f.leader) {
			least = min(least, a.offset)
		}
	}
	return least
}

// cutSlowest cuts the slowest reader loose if another has nothing left to read.
func (f *flight[H]) cutSlowest() {
	f.mu.Lock()
	defer f.mu.Unlock()
	var slow *Asker[H]
	waiting := false
	for _, a := range f.askers {
		if a.cut {
			continue
		}
		if a.offset == f.body.published {
			waiting = true
		} else if slow == nil || a.offset < slow.offset {
			slow = a
		}
	}
	if slow != nil && waiting {
		slow.cut = true
		f.table.cuts.Add(1)
		f.notify()
	}
}
