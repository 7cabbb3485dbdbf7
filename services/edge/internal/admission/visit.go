package admission

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/ccnq/ccnq/pkg/bus"
	"github.com/ccnq/ccnq/pkg/wire"
)

// visit is one request's way through the gate.
type visit struct {
	gate    *Gate
	ctx     context.Context
	gone    func() bool
	arrived time.Time
	prefix  netip.Prefix
}

// run decides. It comes back to the start when a coordinator answers again
// while the request stands in this edge's own line.
func (v *visit) run() (*Ticket, Outcome) {
	g := v.gate
	for {
		if after, full := g.groups.full(v.prefix, time.Now()); full {
			g.metrics.memo.Inc()
			return v.full(after)
		}
		group := g.groups.pin(v.prefix)
		ticket, outcome, again := v.decide(group)
		group.unpin()
		if !again {
			outcome.Waited = time.Since(v.arrived)
			return ticket, outcome
		}
	}
}

func (v *visit) decide(group *group) (_ *Ticket, _ Outcome, again bool) {
	g := v.gate
	down := g.whenDown()
	if down.Err() != nil || g.breaker.State() != gobreaker.StateClosed {
		return v.undecided(group, CauseBreakerOpen)
	}
	way := group.approach(time.Now())
	switch {
	case way.full:
		g.metrics.memo.Inc()
		t, outcome := v.full(way.retryAfter)
		return t, outcome, false
	case way.await != nil:
		select {
		case <-way.await:
		case <-down.Done():
		case <-v.ctx.Done():
			return nil, Outcome{Reason: ClientGone}, false
		}
		return nil, Outcome{}, true
	}

	t := g.newTicket(group)
	reply, err := g.ask(v.ctx, down, t, wire.ModeWait)
	group.learned(way, reply, err, time.Now())
	switch {
	case v.ctx.Err() != nil:
		return nil, v.leave(t), false
	case err != nil:
		return v.unanswered(t, err)
	case reply.Decision == wire.Rejected:
		t.end()
		t, outcome := v.full(retryAfter(reply))
		return t, outcome, false
	case reply.Decision == wire.Admitted:
		t.promote()
		return t, Outcome{Reason: Admitted, Pass: true}, false
	}
	t.moveTo(waiting) // unless the promotion was faster than the reply
	if g.opts.Monitor {
		return t, Outcome{Reason: WouldWait, Pass: true}, false
	}
	return v.wait(t, down)
}

// wait stands in line at the store until the turn comes.
func (v *visit) wait(t *Ticket, down context.Context) (_ *Ticket, _ Outcome, again bool) {
	g := v.gate
	expired := time.NewTimer(time.Until(v.arrived.Add(g.opts.PendingTimeout)))
	defer expired.Stop()
	var look <-chan time.Time
	if v.gone != nil {
		ticker := time.NewTicker(g.opts.PollInterval)
		defer ticker.Stop()
		look = ticker.C
	}
	for {
		select {
		case <-t.promoted:
			return t, Outcome{Reason: Promoted, Pass: true}, false
		case <-v.ctx.Done():
			return nil, v.leave(t), false
		case <-look:
			if v.gone() {
				return nil, v.leave(t), false
			}
		case <-t.lost:
			// The store lost its tables. What it answers now is looked at by
			// the next turn of this loop; where it says no, the next status
			// finds the request unknown once more.
			if reply, err := g.ask(v.ctx, down, t, wire.ModeWait); err == nil && reply.Decision == wire.Admitted {
				t.promote()
			}
		case <-down.Done():
			return v.unanswered(t, gobreaker.ErrOpenState)
		case <-expired.C:
			return v.expire(t)
		}
	}
}

// expire ends the wait in line: refused if the store confirms that the request
// still waits, served if its turn has just come.
func (v *visit) expire(t *Ticket) (_ *Ticket, _ Outcome, again bool) {
	was, err := v.gate.takeBack(v.ctx, t)
	switch {
	case v.ctx.Err() != nil:
		return nil, v.leave(t), false
	case err != nil:
		return v.unanswered(t, err)
	case was == wire.WasActive || t.is(held):
		t.promote()
		return t, Outcome{Reason: Promoted, Pass: true}, false
	case was == wire.WasGone:
		// The store forgot it and was told nothing of it since: the outage
		// alone may not refuse.
		t.end()
		return nil, Outcome{Reason: FailOpen, Cause: CauseForgotten, Pass: true}, false
	}
	t.group.freed()
	t.end()
	return nil, Outcome{Reason: QueueTimeout, RetryAfter: defaultRetryAfter}, false
}

// full refuses a request of a full group, or would.
func (v *visit) full(after time.Duration) (*Ticket, Outcome) {
	return nil, Outcome{Reason: QueueFull, RetryAfter: after, Pass: v.gate.opts.Monitor}
}

// leave gives up a ticket whose client is gone.
func (v *visit) leave(t *Ticket) Outcome {
	if t.end() == held {
		v.gate.outgoing.release(t)
	} else {
		v.gate.outgoing.cancel(t)
	}
	return Outcome{Reason: ClientGone}
}

// unanswered goes on with a request on which nobody decided: the store may or
// may not know it, and a cancel makes sure.
func (v *visit) unanswered(t *Ticket, err error) (_ *Ticket, _ Outcome, again bool) {
	if v.gate.opts.Fallback && !v.gate.opts.Monitor {
		group := t.group
		v.leave(t)
		return v.undecided(group, causeOf(err))
	}
	if !t.moveTo(passing) {
		return t, Outcome{Reason: Promoted, Pass: true}, false
	}
	v.gate.outgoing.cancel(t)
	return t, Outcome{Reason: FailOpen, Cause: causeOf(err), Pass: true}, false
}

// undecided lets a request pass, or counts it by this edge alone.
func (v *visit) undecided(group *group, cause Cause) (_ *Ticket, _ Outcome, again bool) {
	g := v.gate
	if !g.opts.Fallback || g.opts.Monitor {
		return nil, Outcome{Reason: FailOpen, Cause: cause, Pass: true}, false
	}
	up := g.whenUp()
	p := group.join(*g.limits.Load())
	switch {
	case p.granted:
		return g.localTicket(group), Outcome{Reason: Local, Pass: true}, false
	case p.turn == nil:
		t, outcome := v.full(defaultRetryAfter)
		return t, outcome, false
	}
	expired := time.NewTimer(time.Until(v.arrived.Add(g.opts.PendingTimeout)))
	defer expired.Stop()
	outcome := Outcome{Reason: Local, Pass: true}
	select {
	case <-p.turn:
	case <-up:
		again = true
	case <-v.ctx.Done():
		outcome = Outcome{Reason: ClientGone}
	case <-expired.C:
		outcome = Outcome{Reason: QueueTimeout, RetryAfter: defaultRetryAfter}
	}
	if outcome.Pass && !again || !group.quit(p) {
		// The turn has come, in the last moment perhaps.
		t := g.localTicket(group)
		if v.ctx.Err() == nil {
			return t, Outcome{Reason: Local, Pass: true}, false
		}
		t.Done()
		again = false
	}
	return nil, outcome, again
}

// localTicket makes a ticket for a place that the group's line has counted
// already. The store learns of it when it answers again.
func (g *Gate) localTicket(group *group) *Ticket {
	t := g.newTicket(group)
	t.mu.Lock()
	t.state = held
	t.mu.Unlock()
	g.metrics.held.Inc()
	return t
}

func causeOf(err error) Cause {
	switch {
	case errors.Is(err, gobreaker.ErrOpenState), errors.Is(err, gobreaker.ErrTooManyRequests):
		return CauseBreakerOpen
	case errors.Is(err, bus.ErrDisconnected):
		return CauseDisconnected
	case errors.Is(err, bus.ErrNoResponders):
		return CauseNoResponders
	case errors.Is(err, bus.ErrTimeout), errors.Is(err, context.Canceled):
		return CauseTimeout
	}
	switch bus.CodeOf(err) {
	case bus.CodeBusy:
		return CauseBusy
	case bus.CodeExpired:
		return CauseTimeout
	case bus.CodeUnavailable:
		return CauseUnavailable
	case bus.CodeInvalid:
	}
	return CauseError
}
