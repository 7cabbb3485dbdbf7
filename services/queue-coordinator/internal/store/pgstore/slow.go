package pgstore

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ccnq/ccnq/services/queue-coordinator/internal/store"
)

const (
	// retryEvery is the pause between two rounds of the slow lane.
	retryEvery = 20 * time.Millisecond
	// slowLock is how long the slow lane waits for a lock that SKIP LOCKED
	// does not skip: one on a single request, or on a group that is new.
	slowLock = 20 * time.Millisecond
	// aloneAtMost is how many groups a round tries alone after they could not
	// be tried together.
	aloneAtMost = 8
	// remember is how long a group counts as locked after it was last seen so.
	remember = 30 * time.Second
	// slowRoom is the number of ops that may wait; more get ErrBusy at once.
	slowRoom = 20_000
)

// slowLane retries ops of groups that somebody else has locked. Its goroutine
// lives while there are any.
type slowLane struct {
	s *Store
	// closing is closed by close.
	closing chan struct{}

	// known is the size of locked, to be read without the mutex.
	known atomic.Int64

	mu     sync.Mutex
	closed bool
	// locked holds when each group was last seen locked.
	locked map[string]time.Time
	// waiting holds one batch for each kind and limits, in order of arrival.
	waiting []batch
	ops     int
	running bool
	turn    int // which group is tried alone first
}

func (l *slowLane) init(s *Store) {
	l.s, l.closing, l.locked = s, make(chan struct{}), map[string]time.Time{}
}

// close fails everything that waits, now and later.
func (l *slowLane) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.closed = true
		close(l.closing)
	}
}

// divert takes the ops whose groups are known to be locked out of b, and
// returns the others.
func (l *slowLane) divert(b batch) batch {
	if l.known.Load() == 0 {
		return b
	}
	slow := batch{kind: b.kind, limits: b.limits}
	fast := slow
	l.mu.Lock()
	oldest := time.Now().Add(-remember)
	for _, o := range b.ops {
		if seen, ok := l.locked[o.Group]; ok && seen.After(oldest) {
			slow.ops = append(slow.ops, o)
		} else {
			fast.ops = append(fast.ops, o)
		}
	}
	l.mu.Unlock()
	l.queue(slow)
	return fast
}

// add takes ops whose groups were found locked just now.
func (l *slowLane) add(b batch) {
	if len(b.ops) == 0 {
		return
	}
	l.mark(b.ops)
	l.queue(b)
}

// mark remembers the groups of the ops as locked.
func (l *slowLane) mark(ops []op) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	for i := range ops {
		group := ops[i].Group
		if _, known := l.locked[group]; !known {
			l.s.log.Warn("group is locked by another transaction; its requests wait apart", "group", group)
		}
		l.locked[group] = now
	}
	for group, seen := range l.locked {
		if now.Sub(seen) > remember {
			delete(l.locked, group)
		}
	}
	l.known.Store(int64(len(l.locked)))
}

// unmark forgets the groups of the ops, of which none was locked.
func (l *slowLane) unmark(ops []op) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range ops {
		if _, known := l.locked[ops[i].Group]; known {
			delete(l.locked, ops[i].Group)
			l.s.log.Info("group is no longer locked", "group", ops[i].Group)
		}
	}
	l.known.Store(int64(len(l.locked)))
}

// queue lets the ops wait and sees to it that the goroutine runs.
func (l *slowLane) queue(b batch) {
	if len(b.ops) == 0 {
		return
	}
	err := l.tryQueue(b)
	if err != nil {
		b.fail(err)
	}
}

func (l *slowLane) tryQueue(b batch) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return store.ErrClosed
	}
	if l.ops+len(b.ops) > slowRoom {
		return store.ErrBusy
	}
	l.ops += len(b.ops)
	for i := range l.waiting {
		if w := &l.waiting[i]; w.kind == b.kind && w.limits == b.limits {
			w.ops = append(w.ops, b.ops...)
			b.ops = nil
			break
		}
	}
	if b.ops != nil {
		l.waiting = append(l.waiting, b)
	}
	if !l.running {
		l.running = true
		l.s.calls.Add(1) // the caller is inside a call: Close has not passed
		go l.run()
	}
	return nil
}

// take empties the lane, or ends the goroutine if it is empty.
func (l *slowLane) take() (batches []batch, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) == 0 {
		l.running = false
		return nil, false
	}
	batches, l.waiting, l.ops = l.waiting, nil, 0
	return batches, true
}

func (l *slowLane) run() {
	defer l.s.calls.Done()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	defer context.AfterFunc(ctx, func() {})()
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-l.closing:
		case <-pause.C:
		}
		batches, ok := l.take()
		if !ok {
			return
		}
		for _, b := range batches {
			l.round(ctx, b)
		}
		pause.Reset(retryEvery)
	}
}

// round tries the ops of one batch; those that are still locked wait again.
func (l *slowLane) round(ctx context.Context, b batch) {
	select {
	case <-l.closing:
		b.fail(store.ErrClosed)
		return
	default:
	}
	for b.expire(time.Now(), store.ErrBusy); len(b.ops) > 0; {
		next, index := b.round()
		events, err := l.s.call(ctx, next, slowLock, skipLocked)
		switch {
		case err == nil:
			busy := l.s.deliver(next, index, events)
			l.settle(next, busy)
		case errors.Is(err, errLocked) || errors.Is(err, errTimeout):
			l.alone(ctx, next)
		default:
			next.fail(err)
		}
	}
}

// settle remembers which groups of a batch are locked and which are not.
func (l *slowLane) settle(tried, busy batch) {
	if len(busy.ops) == 0 {
		l.unmark(tried.ops)
		return
	}
	groups := make(map[string]struct{}, len(busy.ops))
	for i := range busy.ops {
		groups[busy.ops[i].Group] = struct{}{}
	}
	free := make([]op, 0, len(tried.ops)-len(busy.ops))
	for _, o := range tried.ops {
		if _, locked := groups[o.Group]; !locked {
			free = append(free, o)
		}
	}
	l.unmark(free)
	l.add(busy)
}

// alone tries some groups of the batch each for itself, because one of them is
// locked in a way that fails them all together. The others wait again.
func (l *slowLane) alone(ctx context.Context, b batch) {
	var order []string
	byGroup := make(map[string]batch)
	for _, o := range b.ops {
		g, known := byGroup[o.Group]
		if !known {
			order = append(order, o.Group)
			g = batch{kind: b.kind, limits: b.limits}
		}
		g.ops = append(g.ops, o)
		byGroup[o.Group] = g
	}
	for i := range order {
		group := byGroup[order[(l.turn+i)%len(order)]]
		if i >= aloneAtMost {
			l.add(group)
			continue
		}
		next, index := group.round()
		events, err := l.s.call(ctx, next, slowLock, skipLocked)
		switch {
		case err == nil:
			l.settle(next, l.s.deliver(next, index, events))
		case errors.Is(err, errLocked) || errors.Is(err, errTimeout):
			l.add(next)
		default:
			next.fail(err)
		}
	}
	l.turn += aloneAtMost
}
