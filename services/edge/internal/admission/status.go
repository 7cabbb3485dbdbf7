package admission

import (
	"context"
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
	// asserts is the number of assertions under way at once.
	asserts = 32
)

// statusLoop sends a status every second, and oftener while requests wait.
func (g *Gate) statusLoop(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	last := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-g.poll:
			timer.Reset(time.Until(last.Add(g.opts.PollInterval)))
			continue
		case <-timer.C:
		}
		last = time.Now()
		g.status(ctx)
		g.groups.sweep(time.Now())
		interval := statusInterval
		if g.waiting.Load() > 0 {
			interval = min(interval, g.opts.PollInterval)
		}
		timer.Reset(interval)
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
// probe that closes the breaker again.
func (g *Gate) status(ctx context.Context) {
	inLine, active := g.tickets.list()
	parts := min(1+(len(inLine)+len(active))/partSize, wire.MaxParts)
	for part := range parts {
		if err := g.statusPart(ctx, part, parts, inLine, active); err != nil {
			return // counted by the breaker
		}
	}
}

func (g *Gate) statusPart(ctx context.Context, part, parts int, inLine, active []wire.RequestID) error {
	ctx, cancel := context.WithTimeout(ctx, g.opts.AdmitTimeout)
	defer cancel()
	g.epoch = max(g.epoch+1, time.Now().UnixMicro())
	reply, err := call[wire.StatusRequest, wire.StatusReply](ctx, g, wire.SubjectStatus, wire.StatusRequest{
		Epoch:   g.epoch,
		LeaseMS: g.opts.Lease.Milliseconds(),
		StaleMS: 2 * g.opts.AdmitTimeout.Milliseconds(),
		Part:    part,
		Parts:   parts,
		Waiting: ofPart(inLine, part, parts),
		Active:  ofPart(active, part, parts),
	})
	if err != nil {
		return err
	}
	for _, id := range reply.Promoted {
		if t := g.tickets.get(id); t != nil && t.promote() {
			g.metrics.polled.Inc()
		}
	}
	g.restore(ctx, reply.Unknown)
	return nil
}

// restore brings back to the store what it does not know: those that wait ask
// anew by themselves, those that hold a place are asserted here.
func (g *Gate) restore(ctx context.Context, unknown []wire.RequestID) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, asserts)
	for _, id := range unknown {
		t := g.tickets.get(id)
		switch {
		case t == nil:
		case t.is(waiting):
			t.forgotten()
		case t.is(held):
			slots <- struct{}{}
			wg.Go(func() {
				defer func() { <-slots }()
				g.assert(ctx, t)
			})
		}
	}
	wg.Wait()
}

// assert tells the store of a place that this edge holds. One that fails is
// found unknown by the next status again.
func (g *Gate) assert(ctx context.Context, t *Ticket) {
	if _, err := g.ask(ctx, g.whenDown(), t, wire.ModeHeld); err != nil {
		return
	}
	g.metrics.asserted.Inc()
	if t.is(done) {
		// Its release may have been faster than the assertion.
		g.outgoing.release(t)
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
