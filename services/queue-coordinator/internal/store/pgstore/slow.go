package pgstore

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ccnq/ccnq/pkg/wire"
	"github.com/ccnq/ccnq/services/queue-coordinator/internal/store"
)

const (
	// retryEvery is the pause between two rounds of the slow lane.
	retryEvery = 20 * time.Millisecond
	// apartAtMost is how many groups that turn out to be locked a round tries
	// apart, so that a round is short however many there are.
	apartAtMost = 8
	// remember is how long a group counts as locked after it was last seen so.
	remember = 30 * time.Second
	// slowRoom is the number of ops that may wait; more get ErrBusy at once.
	slowRoom = 20_000
)

// slowLane retries ops of groups that somebody else has locked. Its goroutine
// lives while there are any.
type slowLane struct {
	s *Store
	// ctx ends with close.
	ctx  context.Context //nolint:containedctx // the goroutine's life, not that of a request
	stop context.CancelFunc

	// known is the size of locked, to be read without the mutex.
	known atomic.Int64

	mu sync.Mutex
	// locked holds when each group was last seen locked.
	locked map[string]time.Time
	// waiting holds one batch for each kind and limits, in order of arrival.
	waiting []batch
	ops     int
	running bool

	turn int // which group is tried apart first; the goroutine's
}

func (l *slowLane) init(s *Store) {
	l.s, l.locked = s, map[string]time.Time{}
	l.ctx, l.stop = context.WithCancel(context.Background())
}

// close fails everything that waits, now and later.
func (l *slowLane) close() { l.stop() }

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
	l.queue(slow, false)
	return fast
}

// add takes ops whose groups were found locked just now.
func (l *slowLane) add(b batch) {
	if len(b.ops) == 0 {
		return
	}
	l.mark(b.ops)
	l.queue(b, false)
}

// addAgain takes ops back that the lane itself has tried.
func (l *slowLane) addAgain(b batch) {
	if len(b.ops) == 0 {
		return
	}
	l.mark(b.ops)
	l.queue(b, true)
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

// unmark forgets the groups of a batch that was tried, other than those that
// turned out to be locked.
func (l *slowLane) unmark(tried, locked batch) {
	still := make(map[string]struct{}, len(locked.ops))
	for i := range locked.ops {
		still[locked.ops[i].Group] = struct{}{}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range tried.ops {
		group := tried.ops[i].Group
		if _, is := still[group]; is {
			continue
		}
		if _, known := l.locked[group]; known {
			delete(l.locked, group)
			l.s.log.Info("group is no longer locked", "group", group)
		}
	}
	l.known.Store(int64(len(l.locked)))
}

// queue lets the ops wait, in front of those that wait already or behind them,
// and sees to it that the goroutine runs.
func (l *slowLane) queue(b batch, front bool) {
	if len(b.ops) == 0 {
		return
	}
	if err := l.tryQueue(b, front); err != nil {
		b.fail(err)
	}
}

func (l *slowLane) tryQueue(b batch, front bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx.Err() != nil {
		return store.ErrClosed
	}
	if l.ops+len(b.ops) > slowRoom {
		return store.ErrBusy
	}
	l.ops += len(b.ops)
	same := slices.IndexFunc(l.waiting, func(w batch) bool { return w.kind == b.kind && w.limits == b.limits })
	switch {
	case same < 0:
		l.waiting = append(l.waiting, b)
	case front:
		l.waiting[same].ops = append(b.ops, l.waiting[same].ops...)
	default:
		l.waiting[same].ops = append(l.waiting[same].ops, b.ops...)
	}
	if !l.running {
		l.running = true
		l.s.calls.Add(1) // the caller is inside a call, so Close still waits
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
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-l.ctx.Done():
		case <-pause.C:
		}
		batches, ok := l.take()
		if !ok {
			return
		}
		for _, b := range batches {
			l.round(b)
		}
		pause.Reset(retryEvery)
	}
}

// round tries the ops of one batch; those that are still locked wait again.
func (l *slowLane) round(b batch) {
	if l.ctx.Err() != nil {
		b.fail(store.ErrClosed)
		return
	}
	locked := batch{kind: b.kind, limits: b.limits}
	for b.expire(time.Now(), store.ErrBusy); len(b.ops) > 0; {
		next, index := b.round()
		locked.ops = append(locked.ops, l.apart(l.try(next, index, together)).ops...)
	}
	l.addAgain(locked)
}

// try makes one transaction of the batch and returns the ops that are locked,
// which may be all of them.
func (l *slowLane) try(b batch, index map[wire.RequestID]int, how form) (locked batch) {
	events, err := l.s.call(l.ctx, b, how)
	switch {
	case err == nil:
		locked = l.s.deliver(b, index, events)
		l.unmark(b, locked)
		return locked
	case errors.Is(err, errLocked) || errors.Is(err, errTimeout):
		return b
	}
	b.fail(err)
	return batch{}
}

// apart tries each group of the batch, whose ids are distinct, for itself.
func (l *slowLane) apart(b batch) (locked batch) {
	locked = batch{kind: b.kind, limits: b.limits}
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
	failures := 0
	for i := range order {
		group := byGroup[order[(l.turn+i)%len(order)]]
		if failures < apartAtMost {
			next, index := group.round()
			if group = l.try(next, index, apart); len(group.ops) > 0 {
				failures++
			}
		}
		locked.ops = append(locked.ops, group.ops...)
	}
	l.turn++
	return locked
}
