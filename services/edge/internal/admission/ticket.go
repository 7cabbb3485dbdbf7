package admission

import (
	"sync"

	"github.com/ccnq/ccnq/pkg/wire"
)

type state int

const (
	asking  state = iota // an admit or a cancel was sent and is not answered
	waiting              // in line at the store
	held                 // has a place
	passing              // lets pass while the store's view is not known
	done                 // over
)

// Ticket is one request's claim on a place. The zero of its pointer claims
// nothing.
type Ticket struct {
	gate  *Gate
	id    wire.RequestID
	group *group

	mu       sync.Mutex
	state    state
	promoted chan struct{} // closed when held
}

func (g *Gate) newTicket(group *group) *Ticket {
	t := &Ticket{
		gate:     g,
		id:       newID(),
		group:    group,
		promoted: make(chan struct{}),
	}
	group.pin()
	g.tickets.add(t)
	return t
}

// Done gives the place back. It is called once, when the exchange with the
// origin has ended; on a nil ticket it does nothing.
func (t *Ticket) Done() {
	if t == nil {
		return
	}
	switch t.end() {
	case held:
		t.gate.outgoing.release(t)
	case waiting:
		// Monitor mode: it was proxied while it stood in line.
		t.gate.outgoing.cancel(t)
	case asking, passing, done:
		// A cancel is under way and frees what there may be.
	}
}

func (t *Ticket) item() wire.Item {
	return wire.Item{RequestID: t.id, Bucket: t.group.bucket}
}

func (t *Ticket) now() state {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.state
}

// is reports whether the ticket is in the given state.
func (t *Ticket) is(s state) bool { return t.now() == s }

// moveTo leaves the state for another, unless the ticket holds a place or is
// over; it reports whether it did.
func (t *Ticket) moveTo(s state) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state == held || t.state == done {
		return false
	}
	t.leave()
	t.state = s
	t.enter()
	return true
}

// promote notes that the store gave the ticket a place. It reports whether
// that was news.
func (t *Ticket) promote() bool {
	if !t.moveTo(held) {
		return false
	}
	close(t.promoted)
	t.gate.groups.freed(t.group.prefix) // a place in line, if not at the origin
	return true
}

// end makes the ticket unknown to the gate and returns the state it was in.
func (t *Ticket) end() state {
	t.mu.Lock()
	before := t.state
	t.leave()
	t.state = done
	t.mu.Unlock()
	if before != done {
		t.gate.tickets.remove(t)
		t.group.unpin()
	}
	return before
}

func (t *Ticket) enter() {
	switch t.state {
	case held:
		t.group.hold()
		t.gate.metrics.held.Inc()
	case waiting:
		t.gate.metrics.waiting.Inc()
		if t.gate.waiting.Add(1) == 1 {
			t.gate.wakePoll()
		}
	case asking, passing, done:
	}
}

func (t *Ticket) leave() {
	switch t.state {
	case held:
		t.group.unhold()
		t.gate.metrics.held.Dec()
	case waiting:
		t.gate.metrics.waiting.Dec()
		t.gate.waiting.Add(-1)
	case asking, passing, done:
	}
}

const shards = 16

// registry finds tickets by id. A ticket is in it from before its first
// message is sent until it is over.
type registry struct {
	shard [shards]struct {
		mu   sync.Mutex
		byID map[wire.RequestID]*Ticket
	}
}

func (r *registry) init() {
	for i := range r.shard {
		r.shard[i].byID = make(map[wire.RequestID]*Ticket)
	}
}

func (r *registry) add(t *Ticket) {
	s := &r.shard[t.id.Part(shards)]
	s.mu.Lock()
	s.byID[t.id] = t
	s.mu.Unlock()
}

func (r *registry) remove(t *Ticket) {
	s := &r.shard[t.id.Part(shards)]
	s.mu.Lock()
	delete(s.byID, t.id)
	s.mu.Unlock()
}

func (r *registry) get(id wire.RequestID) *Ticket {
	s := &r.shard[id.Part(shards)]
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byID[id]
}

// len returns the number of tickets.
func (r *registry) len() int {
	n := 0
	for i := range r.shard {
		s := &r.shard[i]
		s.mu.Lock()
		n += len(s.byID)
		s.mu.Unlock()
	}
	return n
}

// list returns the ids of the tickets that wait and of those that hold a
// place. Those that ask are listed as waiting: if the store has them, it must
// not take them for forgotten.
func (r *registry) list() (inLine, active []wire.RequestID) {
	inLine, active = []wire.RequestID{}, []wire.RequestID{}
	for i := range r.shard {
		s := &r.shard[i]
		s.mu.Lock()
		for id, t := range s.byID {
			switch t.now() {
			case asking, waiting:
				inLine = append(inLine, id)
			case held:
				active = append(active, id)
			case passing, done:
			}
		}
		s.mu.Unlock()
	}
	return inLine, active
}
