package admission

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/ccnq/ccnq/pkg/wire"
)

// simStore is a plain store of the queue behind an unreliable road: messages
// to it, its replies and its promotions get lost, are late, or come twice.
type simStore struct {
	co     *coordinator
	limits wire.Limits

	mu       sync.Mutex
	rng      *rand.Rand
	trouble  int // per cent of messages that meet some
	frozen   bool
	rows     map[wire.RequestID]*simRow
	line     []*simRow // waiting, in order
	overfull int       // times that a group was over the cap, assertions aside
}

type simRow struct {
	id     wire.RequestID
	group  string
	since  time.Time
	active bool
	forced bool // asserted
}

func newSimStore(co *coordinator, limits wire.Limits, seed uint64, trouble int) *simStore {
	s := &simStore{
		co: co, limits: limits, trouble: trouble,
		rng:  rand.New(rand.NewPCG(seed, 1)),
		rows: map[wire.RequestID]*simRow{},
	}
	co.tell(func(c *coordinator) {
		c.onAdmit = func(call *admitCall) {
			travel(s, call.Reply, func() (wire.AdmitReply, bool) {
				if time.Since(call.Received) > call.Request.Budget() {
					return wire.AdmitReply{}, false
				}
				return s.admit(call.Request), true
			})
		}
		c.onCancel = func(call *cancelCall) {
			travel(s, call.Reply, func() (wire.CancelReply, bool) { return s.cancel(call.Request), true })
		}
		c.onRelease = func(call *releaseCall) {
			travel(s, call.Reply, func() (wire.ReleaseReply, bool) { return s.release(call.Request), true })
		}
		c.onStatus = func(call *statusCall) {
			travel(s, call.Reply, func() (wire.StatusReply, bool) { return s.status(call.Request), true })
		}
	})
	return s
}

// travel takes a message to the store and the reply back, or fails to.
func travel[Resp wire.Message](s *simStore, reply func(Resp), serve func() (Resp, bool)) {
	there, back := s.fate(), s.fate()
	if there.lost {
		return
	}
	after(there.delay, func() {
		s.mu.Lock()
		resp, ok := serve()
		s.mu.Unlock()
		if ok && !back.lost {
			after(back.delay, func() { reply(resp) })
		}
	})
}

func after(d time.Duration, do func()) {
	if d == 0 {
		do()
		return
	}
	time.AfterFunc(d, do)
}

// fate is what happens to one message.
type fate struct {
	lost, twice bool
	delay       time.Duration
}

func (s *simStore) fate() fate {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.frozen {
		return fate{lost: true}
	}
	if s.rng.IntN(100) >= s.trouble {
		return fate{}
	}
	f := fate{lost: s.rng.IntN(3) == 0, twice: s.rng.IntN(3) == 0}
	f.delay = time.Duration(s.rng.IntN(1500)) * time.Millisecond
	return f
}

func (s *simStore) calm() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trouble, s.frozen = 0, false
}

func (s *simStore) freeze(frozen bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.frozen = frozen
}

func (s *simStore) left() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.rows)
}

func (s *simStore) count(group string, active bool) int {
	n := 0
	for _, r := range s.rows {
		if r.group == group && r.active == active {
			n++
		}
	}
	return n
}

func (s *simStore) admit(m wire.AdmitRequest) wire.AdmitReply {
	reply := wire.AdmitReply{Decision: wire.Queued, Limits: s.limits}
	group := m.Bucket.Key
	r := s.rows[m.RequestID]
	held := m.Mode == wire.ModeHeld
	switch {
	case r == nil && !held && s.count(group, true) >= s.limits.MaxServed && s.count(group, false) >= s.limits.MaxPending:
		return wire.AdmitReply{Decision: wire.Rejected, FullForMS: 50, Limits: s.limits}
	case r == nil:
		r = &simRow{id: m.RequestID, group: group, since: time.Now()}
		s.rows[r.id] = r
		s.line = append(s.line, r)
	}
	if held || s.count(group, true) < s.limits.MaxServed && s.count(group, false) == 1 {
		s.activate(r, held)
	}
	if r.active {
		reply.Decision = wire.Admitted
	}
	return reply
}

func (s *simStore) activate(r *simRow, forced bool) {
	if r.active {
		return
	}
	r.active, r.forced, r.since = true, forced, time.Now()
	s.line = slices.DeleteFunc(s.line, func(o *simRow) bool { return o == r })
	if !forced && s.count(r.group, true) > s.limits.MaxServed {
		s.overfull++
	}
}

func (s *simStore) remove(r *simRow) {
	delete(s.rows, r.id)
	s.line = slices.DeleteFunc(s.line, func(o *simRow) bool { return o == r })
	for s.count(r.group, true) < s.limits.MaxServed {
		i := slices.IndexFunc(s.line, func(o *simRow) bool { return o.group == r.group })
		if i < 0 {
			return
		}
		next := s.line[i]
		s.activate(next, false)
		go s.push(next.id)
	}
}

func (s *simStore) push(id wire.RequestID) {
	f := s.fate()
	if f.lost {
		return
	}
	after(f.delay, func() {
		s.co.promote(id)
		if f.twice {
			s.co.promote(id)
		}
	})
}

func (s *simStore) cancel(m wire.CancelRequest) wire.CancelReply {
	switch r := s.rows[m.RequestID]; {
	case r == nil:
		return wire.CancelReply{Was: wire.WasGone}
	case r.active:
		return wire.CancelReply{Was: wire.WasActive}
	default:
		s.remove(r)
		return wire.CancelReply{Was: wire.WasPending}
	}
}

func (s *simStore) release(m wire.ReleaseRequest) wire.ReleaseReply {
	for _, item := range m.Items {
		if r := s.rows[item.RequestID]; r != nil {
			s.remove(r)
		}
	}
	return wire.ReleaseReply{}
}

func (s *simStore) status(m wire.StatusRequest) wire.StatusReply {
	reply := wire.StatusReply{}
	known := map[wire.RequestID]bool{}
	for _, id := range m.Waiting {
		known[id] = true
		if r := s.rows[id]; r == nil {
			reply.Unknown = append(reply.Unknown, id)
		} else if r.active {
			reply.Promoted = append(reply.Promoted, id)
		}
	}
	for _, id := range m.Active {
		known[id] = true
		if r := s.rows[id]; r == nil || !r.active {
			reply.Unknown = append(reply.Unknown, id)
		}
	}
	oldest := time.Now().Add(-time.Duration(m.StaleMS) * time.Millisecond)
	for id, r := range s.rows {
		if !known[id] && r.since.Before(oldest) {
			s.remove(r)
		}
	}
	return reply
}

// crash forgets everything, as an unlogged table does.
func (s *simStore) crash() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.rows)
	s.line = nil
}
