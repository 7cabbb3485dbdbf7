package flight

import (
	"context"
	"sync"
)

// flight is one fetch, from the first asker to the last.
type flight[H any] struct {
	table   *Table[H]
	primary [16]byte
	key     Key // guarded by the table's shard
	epoch   uint64

	mu      sync.Mutex
	changed chan struct{} // closed when something new can be seen; nil while nobody waits
	room    chan struct{} // tells a fetch that waits for readers to look again

	askers []*Asker[H]
	closed bool // nobody joins any more
	keep   bool // goes on without askers

	lanes  map[Lane]*lane[H] // while boarding
	leader *Asker[H]         // who led; it may have left
	cancel context.CancelCauseFunc

	interim  []H
	head     H
	hasHead  bool
	shared   bool  // the head is for everybody
	reason   error // why the followers are let go; nil while they are not
	ended    bool
	complete bool // with ended: nothing of the body is missing
	body     body
	released bool // the body's memory is no longer counted
}

// lane is a line of askers of whom one at a time seeks admission.
type lane[H any] struct {
	name   Lane
	line   []*Asker[H] // in order of arrival; those who left may still stand in it
	live   int
	cancel context.CancelFunc // ends the search
}

func (t *Table[H]) newFlight(key Key) *flight[H] {
	return &flight[H]{
		table:   t,
		primary: key.Primary,
		key:     key,
		epoch:   t.epoch.Load(),
		room:    make(chan struct{}, 1),
		lanes:   make(map[Lane]*lane[H], 1),
	}
}

// join adds an asker, unless the flight is closed.
func (f *flight[H]) join(a *Asker[H]) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return false
	}
	f.table.askers.Add(1)
	a.flight = f
	a.index = len(f.askers)
	f.askers = append(f.askers, a)
	if f.leader != nil {
		return true
	}
	l := f.lanes[a.Lane]
	if l == nil {
		ctx, cancel := context.WithCancel(f.table.stopped)
		l = &lane[H]{name: a.Lane, cancel: cancel}
		f.lanes[a.Lane] = l
		f.table.running.Go(func() {
			defer cancel()
			f.seek(ctx, l)
		})
	}
	a.lane = l
	l.line = append(l.line, a)
	l.live++
	return true
}

// seek asks for admission for one asker of a lane after the other, until one is
// admitted, in whatever lane, or none is left. Who is admitted leads.
func (f *flight[H]) seek(ctx context.Context, l *lane[H]) {
	for {
		a := f.first(l)
		if a == nil {
			return
		}
		seat := a.Board(ctx)
		leader, lead := f.boarded(l, a, seat)
		if !lead {
			continue
		}
		f.fly(leader, seat)
		return
	}
}

// first returns who is next to seek admission in a lane, or nil when nobody is:
// then the lane is gone.
func (f *flight[H]) first(l *lane[H]) *Asker[H] {
	f.mu.Lock()
	a := f.firstLocked(l)
	f.mu.Unlock()
	if a == nil {
		f.forgetIfClosed()
	}
	return a
}

func (f *flight[H]) firstLocked(l *lane[H]) *Asker[H] {
	if f.leader != nil || f.table.stopped.Err() != nil {
		f.closeLane(l)
		return nil
	}
	for len(l.line) > 0 {
		if a := l.line[0]; a.lane == l {
			return a
		}
		l.line[0] = nil
		l.line = l.line[1:]
	}
	f.closeLane(l)
	return nil
}

// closeLane ends a lane. With the last one, a flight that nobody leads is over.
func (f *flight[H]) closeLane(l *lane[H]) {
	if f.lanes[l.name] == l {
		delete(f.lanes, l.name)
	}
	if len(f.lanes) > 0 || f.leader != nil {
		return
	}
	f.closed = true
	f.ended = true
	f.notify()
}

// boarded notes what the queue said to an asker, and who leads if somebody of
// its lane does now.
func (f *flight[H]) boarded(l *lane[H], a *Asker[H], seat Seat) (leader *Asker[H], lead bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case !seat.Outcome.Pass:
		if a.lane == l && f.leader == nil {
			a.lane = nil
			l.live--
			a.seat = seat
			a.refused = true
			f.notify()
		}
		return nil, false
	case f.leader == nil:
		leader = f.firstLocked(l)
	}
	if leader == nil { // another was faster, or all have left
		seat.giveBack()
		return nil, false
	}
	f.leader = leader
	leader.seat = seat
	for _, other := range f.lanes {
		other.cancel()
	}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(leader.Context))
	leader.fetching, f.cancel = ctx, cancel
	return leader, true
}

// fly makes the fetch.
func (f *flight[H]) fly(leader *Asker[H], seat Seat) {
	unhook := context.AfterFunc(f.table.stopped, func() { f.cancel(context.Canceled) })
	complete := leader.Fetch(leader.fetching, seat, &Feed[H]{flight: f})
	unhook()
	f.cancel(nil)
	seat.giveBack()

	f.mu.Lock()
	f.ended, f.complete, f.closed = true, complete, true
	f.body.publish()
	f.notify()
	over := f.releaseIfOver()
	f.mu.Unlock()
	f.table.forget(f)
	over()
}

// notify wakes everybody who waits for news. The lock is held.
func (f *flight[H]) notify() {
	if f.changed != nil {
		close(f.changed)
		f.changed = nil
	}
}

// news returns a channel that is closed with the next notify. The lock is held.
func (f *flight[H]) news() <-chan struct{} {
	if f.changed == nil {
		f.changed = make(chan struct{})
	}
	return f.changed
}

// poke lets a fetch that waits for readers look again.
func (f *flight[H]) poke() {
	select {
	case f.room <- struct{}{}:
	default:
	}
}

// leave removes an asker.
func (f *flight[H]) leave(a *Asker[H]) {
	f.table.askers.Add(-1)
	f.mu.Lock()
	last := len(f.askers) - 1
	f.askers[a.index] = f.askers[last]
	f.askers[a.index].index = a.index
	f.askers[last] = nil
	f.askers = f.askers[:last]
	if l := a.lane; l != nil && f.leader == nil {
		if l.live--; l.live == 0 { // a newcomer must not meet a search that is cancelled
			l.cancel()
			f.closeLane(l)
		}
	}
	a.lane = nil
	f.abandonIfAlone()
	over := f.releaseIfOver()
	f.mu.Unlock()
	f.poke()
	f.forgetIfClosed()
	over()
}

// abandonIfAlone cancels a fetch that nobody waits for. The lock is held.
func (f *flight[H]) abandonIfAlone() {
	if f.leader == nil || f.ended || len(f.askers) > 0 {
		return
	}
	if f.keep && !f.closed {
		return
	}
	f.closed = true
	f.cancel(context.Canceled)
}

func (f *flight[H]) forgetIfClosed() {
	f.mu.Lock()
	closed := f.closed
	f.mu.Unlock()
	if closed {
		f.table.forget(f)
	}
}

// releaseIfOver takes the body out of the count with the last reader, and
// returns what is to be called then.
func (f *flight[H]) releaseIfOver() (over func()) {
	if !f.ended || len(f.askers) > 0 || f.released {
		return func() {}
	}
	f.released = true
	f.table.held.Add(-f.body.drop(f.body.produced))
	if f.leader == nil || f.leader.Over == nil {
		return func() {}
	}
	return f.leader.Over
}
