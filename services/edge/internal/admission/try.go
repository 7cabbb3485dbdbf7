package admission

import (
	"context"
	"net/netip"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/ccnq/ccnq/pkg/wire"
)

// TryAdmit is [Gate.Admit] for work that can be left undone, such as a
// validation in the background: it takes a place that is free and never stands
// in line. A refusal is no denial. While nobody decides it passes, as with
// Admit, except that with the local fallback it is left undone.
func (g *Gate) TryAdmit(ctx context.Context, prefix netip.Prefix) (*Ticket, Outcome) {
	if _, full := g.groups.full(prefix, time.Now()); full {
		return g.untried()
	}
	down := g.whenDown()
	if down.Err() != nil {
		return g.unsure(gobreaker.ErrOpenState)
	}
	group := g.groups.pin(prefix)
	defer group.unpin()
	t := g.newTicket(group)
	asked, cancel := until(context.WithoutCancel(ctx), down)
	reply, err := g.ask(asked, t, wire.ModeNoWait)
	cancel()
	if err == nil && reply.Decision == wire.Admitted {
		t.promote()
	}
	switch {
	case ctx.Err() != nil:
		g.drop(t)
		return nil, Outcome{Reason: ClientGone}
	case err != nil && t.moveTo(passing):
		g.drop(t)
		return g.unsure(err)
	case t.is(held):
		return t, Outcome{Reason: Admitted, Pass: true}
	}
	t.end()
	return g.untried()
}

// untried is the outcome when there is no free place.
func (g *Gate) untried() (*Ticket, Outcome) {
	return nil, Outcome{Reason: QueueFull, Pass: g.opts.Monitor}
}

// unsure is the outcome when nobody decided.
func (g *Gate) unsure(err error) (*Ticket, Outcome) {
	cause := causeOf(err)
	if g.opts.Fallback && !g.opts.Monitor {
		return nil, Outcome{Reason: QueueFull}
	}
	g.metrics.failOpen.WithLabelValues(string(cause)).Inc()
	return nil, Outcome{Reason: FailOpen, Cause: cause, Pass: true}
}
