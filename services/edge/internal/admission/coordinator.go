package admission

import (
	"context"
	"errors"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/ccnq/ccnq/pkg/bus"
	"github.com/ccnq/ccnq/pkg/wire"
)

const (
	// An admit without an answer for askAgain is sent once more under the same
	// id: another coordinator may take it.
	askAgain = 150 * time.Millisecond
	// The breaker opens after breakerFailures in a row, and a probe is let
	// through breakerOpen later.
	breakerFailures = 3
	breakerOpen     = time.Second
)

// newBreaker watches all that is asked of the coordinators. While it is open
// nothing is sent but the probes of the status loop.
func (g *Gate) newBreaker() *gobreaker.CircuitBreaker[any] {
	g.downContext, g.setDown = context.WithCancel(context.Background())
	return gobreaker.NewCircuitBreaker[any](gobreaker.Settings{
		Name:        "coordinators",
		MaxRequests: 1,
		Timeout:     breakerOpen,
		ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= breakerFailures },
		IsSuccessful: func(err error) bool {
			code := bus.CodeOf(err)
			return err == nil || code == bus.CodeBusy || code == bus.CodeInvalid
		},
		IsExcluded:    func(err error) bool { return errors.Is(err, context.Canceled) },
		OnStateChange: func(_ string, _, to gobreaker.State) { g.onBreaker(to) },
	})
}

func (g *Gate) onBreaker(to gobreaker.State) {
	g.metrics.breaker.Set(float64(to))
	g.mu.Lock()
	defer g.mu.Unlock()
	switch to {
	case gobreaker.StateOpen:
		if g.downContext.Err() == nil {
			g.opts.Logger.Warn("no coordinator answers: the queue does not decide", "fallback", g.opts.Fallback)
			g.setDown()
			g.up = make(chan struct{})
		}
	case gobreaker.StateClosed:
		g.opts.Logger.Info("a coordinator answers again: the queue decides")
		g.downContext, g.setDown = context.WithCancel(context.Background())
		close(g.up)
	case gobreaker.StateHalfOpen:
	}
}

// whenDown returns a context that ends when the breaker opens.
func (g *Gate) whenDown() context.Context {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.downContext
}

// whenUp returns a channel that is closed when the breaker closes.
func (g *Gate) whenUp() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.up
}

// call is one question to the coordinators that counts for the breaker.
func call[Req, Resp wire.Message](ctx context.Context, g *Gate, subject string, req Req) (Resp, error) {
	subject = wire.EdgeSubject(subject, g.opts.EdgeID)
	resp, err := g.breaker.Execute(func() (any, error) {
		return bus.Request[Req, Resp](ctx, g.opts.Conn, subject, req)
	})
	if err != nil {
		var none Resp
		return none, err
	}
	return resp.(Resp), nil
}

// ask asks for a place until ctx ends, the breaker opens, or the admit timeout
// is over: once, and once more if no answer comes.
func (g *Gate) ask(ctx, down context.Context, t *Ticket, mode wire.Mode) (wire.AdmitReply, error) {
	began := time.Now()
	deadline := began.Add(g.opts.AdmitTimeout)
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	defer context.AfterFunc(down, cancel)()
	g.metrics.asks.Inc()

	reply, err := g.askOnce(ctx, t, mode, min(askAgain, g.opts.AdmitTimeout), deadline)
	if errors.Is(err, bus.ErrTimeout) && ctx.Err() == nil {
		g.metrics.asks.Inc()
		reply, err = g.askOnce(ctx, t, mode, g.opts.AdmitTimeout, deadline)
	}
	if err == nil {
		g.metrics.latency.Observe(time.Since(began).Seconds())
		if limits := g.limits.Load(); *limits != reply.Limits && reply.Limits.MaxServed > 0 {
			g.limits.Store(&reply.Limits)
		}
	}
	return reply, err
}

func (g *Gate) askOnce(ctx context.Context, t *Ticket, mode wire.Mode, patience time.Duration, deadline time.Time) (wire.AdmitReply, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return call[wire.AdmitRequest, wire.AdmitReply](ctx, g, wire.SubjectAdmit, wire.AdmitRequest{
		RequestID: t.id,
		Bucket:    t.group.bucket,
		Mode:      mode,
		BudgetMS:  max(time.Until(deadline).Milliseconds(), 1),
	})
}

// takeBack cancels a waiting ticket and returns what it was.
func (g *Gate) takeBack(ctx context.Context, t *Ticket) (wire.Was, error) {
	ctx, cancel := context.WithTimeout(ctx, g.opts.AdmitTimeout)
	defer cancel()
	reply, err := call[wire.CancelRequest, wire.CancelReply](ctx, g, wire.SubjectCancel, wire.CancelRequest(t.item()))
	return reply.Was, err
}
