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
	gone    func() bool
	arrived time.Time // of the request; its wait in line counts from here
	began   time.Time // of the visit; the patience with coordinators counts from here
	prefix  netip.Prefix
	awaited bool // the answer to another request's question
}

// run decides. It comes back to the start when the question that the request
// awaited decided nothing for it, and when a coordinator answers again while
// it stands in this edge's own line.
func (v *visit) run(ctx context.Context) (*Ticket, Outcome) {
	g := v.gate
	for {
		if after, full := g.groups.full(v.prefix, time.Now()); full {
			g.metrics.memo.Inc()
			return v.full(after)
		}
		group := g.groups.pin(v.prefix)
		ticket, outcome, again := v.decide(ctx, group)
		group.unpin()
		if !again {
			outcome.Waited = time.Since(v.arrived)
			return ticket, outcome
		}
	}
}

func (v *visit) decide(ctx context.Context, group *group) (_ *Ticket, _ Outcome, again bool) {
	g := v.gate
	down := g.whenDown()
	if down.Err() != nil {
		return v.undecided(ctx, down, group, CauseBreakerOpen)
	}
	patience := time.Until(v.began.Add(g.opts.AdmitTimeout))
	way := group.approach(time.Now(), patience <= 0)
	switch {
	case way.full:
		g.metrics.memo.Inc()
		t, outcome := v.full(way.retryAfter)
		return t, outcome, false
	case way.await != nil:
		return v.await(ctx, down, group, way.await, patience)
	}

	t := g.newTicket(group)
	// A client that leaves does not end the question: a cancel sent now might
	// overtake the admit, and leave a place taken for nobody.
	asked, cancel := until(context.WithoutCancel(ctx), down)
	reply, err := g.ask(asked, t, wire.ModeWait)
	cancel()
	group.learned(way, reply, err, time.Now())
	if err == nil && reply.Decision == wire.Admitted {
		t.promote()
	}
	switch {
	case ctx.Err() != nil:
		return nil, v.leave(t), false
	case err != nil:
		return v.unanswered(ctx, down, t, err)
	case reply.Decision == wire.Admitted:
		return t, Outcome{Reason: Admitted, Pass: true}, false
	case reply.Decision == wire.Rejected:
		if t.end() == held {
			// An earlier copy of the question was answered otherwise.
			g.outgoing.release(t)
		}
		t, outcome := v.full(retryAfter(reply))
		return t, outcome, false
	}
	t.moveTo(waiting) // unless the promotion was faster than the reply
	if g.opts.Monitor {
		return t, Outcome{Reason: WouldWait, Pass: true}, false
	}
	return v.wait(ctx, down, t)
}

// await shares the answer that another request of the group gets, for as long
// as its own patience lasts. A second one was asked after this request
// arrived, so that its rejection holds whatever has changed since.
func (v *visit) await(ctx, down context.Context, group *group, p *probe, patience time.Duration) (_ *Ticket, _ Outcome, again bool) {
	impatient := time.NewTimer(patience)
	defer impatient.Stop()
	select {
	case <-p.answered:
	case <-impatient.C:
		return nil, Outcome{}, true
	case <-down.Done():
		return nil, Outcome{}, true
	case <-ctx.Done():
		return nil, Outcome{Reason: ClientGone}, false
	}
	switch {
	case p.err != nil:
		return v.undecided(ctx, down, group, causeOf(p.err))
	case p.full && (p.current || v.awaited):
		v.gate.metrics.memo.Inc()
		t, outcome := v.full(p.retryAfter)
		return t, outcome, false
	}
	v.awaited = true
	return nil, Outcome{}, true
}

// wait stands in line at the store until the turn comes.
func (v *visit) wait(ctx, down context.Context, t *Ticket) (_ *Ticket, _ Outcome, again bool) {
	expired := v.pendingTimer()
	defer expired.Stop()
	look, stop := v.look()
	defer stop()
	for {
		select {
		case <-t.promoted:
			return t, Outcome{Reason: Promoted, Pass: true}, false
		case <-ctx.Done():
			return nil, v.leave(t), false
		case <-look:
			if v.gone() {
				return nil, v.leave(t), false
			}
		case <-down.Done():
			return v.unanswered(ctx, down, t, gobreaker.ErrOpenState)
		case <-expired.C:
			return v.expire(ctx, down, t)
		}
	}
}

func (v *visit) pendingTimer() *time.Timer {
	return time.NewTimer(time.Until(v.arrived.Add(v.gate.opts.PendingTimeout)))
}

// look returns a channel that ticks when gone is to be asked, and what ends
// it. Without gone it never ticks.
func (v *visit) look() (<-chan time.Time, func()) {
	if v.gone == nil {
		return nil, func() {}
	}
	ticker := time.NewTicker(v.gate.opts.PollInterval)
	return ticker.C, ticker.Stop
}

// expire ends the wait in line: refused if the store confirms that the request
// still waits, served if its turn has just come.
func (v *visit) expire(ctx, down context.Context, t *Ticket) (_ *Ticket, _ Outcome, again bool) {
	if !t.moveTo(asking) {
		return t, Outcome{Reason: Promoted, Pass: true}, false
	}
	asked, cancel := until(ctx, down)
	was, err := v.gate.takeBack(asked, t)
	cancel()
	switch {
	case ctx.Err() != nil:
		return nil, v.leave(t), false
	case err != nil:
		return v.unanswered(ctx, down, t, err)
	case was == wire.WasActive || t.is(held):
		t.promote()
		return t, Outcome{Reason: Promoted, Pass: true}, false
	case was == wire.WasGone:
		// The store forgot it and was told nothing of it since: the outage
		// alone may not refuse.
		t.end()
		return nil, Outcome{Reason: FailOpen, Cause: CauseForgotten, Pass: true}, false
	}
	v.gate.groups.freed(v.prefix)
	t.end()
	return nil, Outcome{Reason: QueueTimeout, RetryAfter: defaultRetryAfter}, false
}

// full refuses a request of a full group, or would.
func (v *visit) full(after time.Duration) (*Ticket, Outcome) {
	return nil, Outcome{Reason: QueueFull, RetryAfter: after, Pass: v.gate.opts.Monitor}
}

// leave gives up a ticket whose client is gone.
func (v *visit) leave(t *Ticket) Outcome {
	v.gate.drop(t)
	return Outcome{Reason: ClientGone}
}

// drop ends a ticket that the store may know.
func (g *Gate) drop(t *Ticket) {
	if t.end() == held {
		g.outgoing.release(t)
	} else {
		g.outgoing.cancel(t)
	}
}

// unanswered goes on with a request on which nobody decided: the store may or
// may not know it, and a cancel makes sure.
func (v *visit) unanswered(ctx, down context.Context, t *Ticket, err error) (_ *Ticket, _ Outcome, again bool) {
	if !t.moveTo(passing) {
		return t, Outcome{Reason: Promoted, Pass: true}, false
	}
	if v.countsAlone(down) {
		v.gate.drop(t)
		return v.undecided(ctx, down, t.group, causeOf(err))
	}
	v.gate.outgoing.cancel(t)
	return t, Outcome{Reason: FailOpen, Cause: causeOf(err), Pass: true}, false
}

// countsAlone reports whether this edge decides by itself. A single question
// that fails is no reason to.
func (v *visit) countsAlone(down context.Context) bool {
	return v.gate.opts.Fallback && !v.gate.opts.Monitor && down.Err() != nil
}

// undecided lets a request pass, or counts it by this edge alone.
func (v *visit) undecided(ctx, down context.Context, group *group, cause Cause) (_ *Ticket, _ Outcome, again bool) {
	if !v.countsAlone(down) {
		return nil, Outcome{Reason: FailOpen, Cause: cause, Pass: true}, false
	}
	g := v.gate
	up := g.whenUp()
	p := group.join(*g.limits.Load())
	switch {
	case p.granted:
		return g.localTicket(group), Outcome{Reason: Local, Pass: true}, false
	case p.turn == nil:
		t, outcome := v.full(defaultRetryAfter)
		return t, outcome, false
	}
	outcome := v.waitLocally(ctx, p, up)
	again = outcome == (Outcome{})
	switch {
	case !outcome.Pass && group.quit(p):
		return nil, outcome, again
	case outcome.Reason == ClientGone:
		group.unhold() // the turn came in the last moment
		return nil, outcome, false
	}
	return g.localTicket(group), Outcome{Reason: Local, Pass: true}, false
}

// waitLocally stands in this edge's own line. It returns no outcome when a
// coordinator answers again.
func (v *visit) waitLocally(ctx context.Context, p place, up <-chan struct{}) Outcome {
	expired := v.pendingTimer()
	defer expired.Stop()
	look, stop := v.look()
	defer stop()
	for {
		select {
		case <-p.turn:
			return Outcome{Reason: Local, Pass: true}
		case <-up:
			return Outcome{}
		case <-ctx.Done():
			return Outcome{Reason: ClientGone}
		case <-look:
			if v.gone() {
				return Outcome{Reason: ClientGone}
			}
		case <-expired.C:
			return Outcome{Reason: QueueTimeout, RetryAfter: defaultRetryAfter}
		}
	}
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

// causeOf names an error. What was cancelled, other than by the client, was
// cut short by the breaker.
func causeOf(err error) Cause {
	switch {
	case errors.Is(err, gobreaker.ErrOpenState), errors.Is(err, gobreaker.ErrTooManyRequests),
		errors.Is(err, context.Canceled):
		return CauseBreakerOpen
	case errors.Is(err, bus.ErrDisconnected):
		return CauseDisconnected
	case errors.Is(err, bus.ErrNoResponders):
		return CauseNoResponders
	case errors.Is(err, bus.ErrTimeout):
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
