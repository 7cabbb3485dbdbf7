package admission

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/ccnq/ccnq/pkg/wire"
)

const (
	// statusInterval is the time between two status messages while nobody
	// waits.
	statusInterval = time.Second
	// partSize is the number of ids from which a status is split.
	partSize = wire.MaxIDs / 2
	// restores is the number of groups that are brought back at once.
	restores = 32
)

// statusLoop sends a status every second, and oftener while requests wait.
func (g *Gate) statusLoop(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	poll := min(statusInterval, g.opts.PollInterval)
	last := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-g.poll:
			timer.Reset(time.Until(last.Add(poll)))
			continue
		case <-timer.C:
		}
		last = time.Now()
		g.status(ctx)
		g.groups.sweep(time.Now())
		interval := statusInterval
		if g.waiting.Load() > 0 {
			interval = poll
		}
		timer.Reset(time.Until(last.Add(interval)))
	}
}

// wakePoll tells the status loop that a request waits.
func (g *Gate) wakePoll() {
	select {
	case g.poll <- struct{}{}:
	default:
	}
}

// status compares what this edge has with what the store has. It is also the
// probe that ends an outage.
func (g *Gate) status(ctx context.Context) {
	parts := min(1+g.tickets.len()/partSize, wire.MaxParts)
	var unknown []wire.RequestID
	for part := range parts {
		more, err := g.statusPart(ctx, part, parts)
		if err != nil {
			return // counted by the breaker
		}
		unknown = append(unknown, more...)
	}
	g.restore(ctx, unknown)
	g.recovered()
}

// statusPart returns the ids that the store does not know. It takes a third of
// the lease at most, so that one message that is lost does not end it.
func (g *Gate) statusPart(ctx context.Context, part, parts int) ([]wire.RequestID, error) {
	done, err := g.breaker.Allow()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, min(g.opts.AdmitTimeout, g.opts.Lease/3))
	defer cancel()
	// Each message says how things are when it is sent: the store frees what is
	// older and not listed.
	now := func() wire.StatusRequest {
		inLine, active := g.tickets.list()
		g.epoch = max(g.epoch+1, time.Now().UnixMicro())
		return wire.StatusRequest{
			Epoch:   g.epoch,
			LeaseMS: g.opts.Lease.Milliseconds(),
			StaleMS: 2 * g.opts.AdmitTimeout.Milliseconds(),
			Part:    part,
			Parts:   parts,
			Waiting: ofPart(inLine, part, parts),
			Active:  ofPart(active, part, parts),
		}
	}
	var reply wire.StatusReply
	if g.closed() {
		reply, err = question[wire.StatusRequest, wire.StatusReply](ctx, g, wire.SubjectStatus, now, nil)
	} else { // once, while nobody answers
		reply, err = attempt[wire.StatusRequest, wire.StatusReply](ctx, g, wire.SubjectStatus, now())
	}
	g.judge(done, err)
	for _, id := range reply.Promoted {
		if t := g.tickets.get(id); t != nil && t.promote() {
			g.metrics.polled.Inc()
		}
	}
	return reply.Unknown, err
}

// restore brings back to the store what it does not know: for each group first
// what holds a place, then what waits, both in the order of arrival. It begins
// nothing after the admit timeout: the next status finds the rest unknown again.
func (g *Gate) restore(ctx context.Context, unknown []wire.RequestID) {
	if len(unknown) == 0 {
		return
	}
	deadline := time.Now().Add(g.opts.AdmitTimeout)
	// A UUIDv7 begins with the time.
	slices.SortFunc(unknown, func(a, b wire.RequestID) int { return bytes.Compare(a[:], b[:]) })
	lost := make(map[*group][]*Ticket)
	for _, id := range unknown {
		if t := g.tickets.get(id); t != nil {
			lost[t.group] = append(lost[t.group], t)
		}
	}
	var wg sync.WaitGroup
	slots := make(chan struct{}, restores)
	for _, tickets := range lost {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			g.askAnew(ctx, deadline, tickets, held, wire.ModeHeld)
			g.askAnew(ctx, deadline, tickets, waiting, wire.ModeWait)
		})
	}
	wg.Wait()
}

// askAnew asks for those tickets of one group that are in the given state,
// under the ids that the store has lost, so that each keeps its time of
// arrival.
func (g *Gate) askAnew(ctx context.Context, deadline time.Time, tickets []*Ticket, in state, mode wire.Mode) {
	for _, t := range tickets {
		if !t.is(in) {
			continue
		}
		if time.Until(deadline) <= 0 {
			return
		}
		reply, err := g.ask(ctx, t, mode)
		if err != nil {
			return
		}
		switch {
		case reply.Decision == wire.Rejected:
			continue // the next status finds it unknown again
		case mode == wire.ModeHeld:
			g.metrics.asserted.Inc()
		case reply.Decision == wire.Admitted:
			t.promote()
		}
		if t.is(done) {
			// What ended it meanwhile may have overtaken this.
			g.outgoing.cancel(t)
		}
	}
}

func ofPart(ids []wire.RequestID, part, parts int) []wire.RequestID {
	if parts == 1 {
		return ids
	}
	out := make([]wire.RequestID, 0, len(ids)/parts+1)
	for _, id := range ids {
		if id.Part(parts) == part {
			out = append(out, id)
		}
	}
	return out
}
