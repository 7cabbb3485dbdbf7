package flight

import (
	"context"
	"slices"
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

	lanes  []*lane[H] // while boarding
	leader *Asker[H]  // who led; it may have left
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
	feed     Feed[H]

	// Room for the first, who most often is the only one.
	firstAsker [1]*Asker[H]
	firstLane  [1]*lane[H]
}

// lane is a line of askers of whom one at a time seeks admission.
type lane[H any] struct {
	name Lane
	line []*Asker[H] // in order of arrival; those who left may still stand in it
	live int
	// ctx is of the search, and of the fetch if one of the lane leads.
	ctx    context.Context //nolint:containedctx // no request's
	cancel context.CancelCauseFunc

	first [1]*Asker[H] // room for who comes first
}

// fetching is the context of a fetch: it ends as the flight says, and has the
// values of its leader's request.
type fetching struct {
	context.Context //nolint:containedctx // it is one

	values context.Context //nolint:containedctx // whose end does not count
}

// Value looks at the flight's context first, which has nothing but what
// package context needs to find how it ends.
func (f *fetching) Value(key any) any {
	if v := f.Context.Value(key); v != nil {
		return v
	}
	return f.values.Value(key)
}

func (t *Table[H]) newFlight(key Key) *flight[H] {
	f := &flight[H]{
		table:   t,
		primary: key.Primary,
		key:     key,
		epoch:   t.epoch.Load(),
		room:    make(chan struct{}, 1),
	}
	f.feed.flight = f
	f.askers, f.lanes = f.firstAsker[:0], f.firstLane[:0]
	return f
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
	at := slices.IndexFunc(f.lanes, func(l *lane[H]) bool { return l.name == a.Lane })
	if at < 0 {
		at = len(f.lanes)
		f.openLane(a.Lane)
	}
	l := f.lanes[at]
	a.lane = l
	l.line = append(l.line, a)
	l.live++
	return true
}

// openLane begins a search. The lock is held.
func (f *flight[H]) openLane(name Lane) {
	l := &lane[H]{name: name}
	l.line = l.first[:0]
	l.ctx, l.cancel = context.WithCancelCause(f.table.stopped)
	f.lanes = append(f.lanes, l)
	f.table.running.Go(func() {
		f.seek(l)
		l.cancel(nil)
	})
}

// seek asks for admission for one asker of a lane after the other, until one is
// admitted, in whatever lane, or none is left. Who is admitted leads.
func (f *flight[H]) seek(l *lane[H]) {
	for {
		a := f.first(l)
		if a == nil {
			return
		}
		seat := a.Errand.Board(l.ctx)
		leader, lead := f.boarded(l, a, seat)
		if !lead {
			continue
		}
		f.fly(l, leader, seat)
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
	if at := slices.Index(f.lanes, l); at >= 0 {
		f.lanes = slices.Delete(f.lanes, at, at+1)
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
	f.leader, f.cancel = leader, l.cancel
	leader.seat = seat
	for _, other := range f.lanes {
		if other != l {
			other.cancel(nil)
		}
	}
	return leader, true
}

// fly makes the fetch.
func (f *flight[H]) fly(l *lane[H], leader *Asker[H], seat Seat) {
	complete := leader.Errand.Fetch(&fetching{l.ctx, leader.Context}, seat, &f.feed)
	l.cancel(nil)
	seat.giveBack()

	f.mu.Lock()
	f.ended, f.complete, f.closed = true, complete, true
	f.body.publish()
	f.notify()
	over := f.releaseIfOver()
	f.mu.Unlock()
	f.table.forget(f)
	if over != nil {
		over.Over()
	}
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
			l.cancel(nil)
			f.closeLane(l)
		}
	}
	a.lane = nil
	f.abandonIfAlone()
	over := f.releaseIfOver()
	f.mu.Unlock()
	f.poke()
	f.forgetIfClosed()
	if over != nil {
		over.Over()
	}
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
	if f.reason != nil && !f.hasHead { // nobody has gone: they have their answers from elsewhere
		f.cancel(ErrUnwanted)
		return
	}
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
// returns whose errand is over then, if anybody's.
func (f *flight[H]) releaseIfOver() Errand[H] {
	if !f.ended || len(f.askers) > 0 || f.released {
		return nil
	}
	f.released = true
	f.table.held.Add(-f.body.drop(f.body.produced))
	if f.leader == nil {
		return nil
	}
	return f.leader.Errand
}
