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
	// What has no answer after askAgain is asked once more, under the same id,
	// and after askLast a third time.
	askAgain = 150 * time.Millisecond
	askLast  = 500 * time.Millisecond
	// The breaker opens after breakerFailures in a row, provided that nobody
	// has answered for breakerSilence: one coordinator of several that is
	// frozen must not open it. A probe is let through breakerOpen later.
	breakerFailures = 3
	breakerSilence  = 500 * time.Millisecond
	breakerOpen     = time.Second
)

// newBreaker watches admits and status messages. While it is open nothing is
// sent but the probes of the status loop.
func (g *Gate) newBreaker() *gobreaker.TwoStepCircuitBreaker[any] {
	g.downContext, g.setDown = context.WithCancel(context.Background())
	g.lastAnswer.Store(int64(-breakerSilence))
	return gobreaker.NewTwoStepCircuitBreaker[any](gobreaker.Settings{
		Name:        "coordinators",
		MaxRequests: 1,
		Timeout:     breakerOpen,
		ReadyToTrip: func(c gobreaker.Counts) bool {
			silence := time.Since(g.began) - time.Duration(g.lastAnswer.Load())
			return c.ConsecutiveFailures >= breakerFailures && silence >= breakerSilence
		},
		IsSuccessful:  answered,
		IsExcluded:    func(err error) bool { return errors.Is(err, context.Canceled) },
		OnStateChange: func(_ string, _, to gobreaker.State) { g.onBreaker(to) },
	})
}

// answered reports whether a coordinator that can decide has answered. One
// that refuses a single request can.
func answered(err error) bool {
	code := bus.CodeOf(err)
	return err == nil || code == bus.CodeBusy || code == bus.CodeInvalid
}

func (g *Gate) onBreaker(to gobreaker.State) {
	g.metrics.breaker.Set(float64(to))
	g.mu.Lock()
	defer g.mu.Unlock()
	g.breakerState = to
	if to == gobreaker.StateOpen && g.downContext.Err() == nil {
		g.opts.Logger.Warn("no coordinator answers: the queue does not decide", "local_fallback", g.opts.Fallback)
		g.setDown()
		g.up = make(chan struct{})
	}
}

// recovered ends the outage, if there is one. The breaker closes with the first
// answer; the requests that wait and those that arrive go on only here, when
// the coordinators know what this edge holds.
func (g *Gate) recovered() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.breakerState != gobreaker.StateClosed || g.downContext.Err() == nil {
		return
	}
	g.opts.Logger.Info("a coordinator answers again: the queue decides")
	g.downContext, g.setDown = context.WithCancel(context.Background())
	close(g.up)
}

// closed reports whether the breaker is, and questions are asked.
func (g *Gate) closed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.breakerState == gobreaker.StateClosed
}

// whenDown returns a context that ends when the breaker opens.
func (g *Gate) whenDown() context.Context {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.downContext
}

// whenUp returns a channel that is closed when the outage ends.
func (g *Gate) whenUp() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.up
}

// until returns a context that ends with either of the two.
func until(ctx, down context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(down, cancel)
	return ctx, func() { stop(); cancel() }
}

// judge reports the end of a question to the breaker; done is what the breaker
// returned when it let the question through.
func (g *Gate) judge(done func(error), err error) {
	if answered(err) {
		g.lastAnswer.Store(int64(time.Since(g.began)))
	}
	done(err)
}

// handBack sends a release or a cancel and waits for the answer, for the admit
// timeout at most. It sends nothing while the breaker is not closed. The
// breaker does not judge by these: while somebody else's transaction locks one
// group, they are answered late.
func handBack[Req wire.Message, Resp reply](ctx context.Context, g *Gate, subject string, req Req, sure func(Resp) bool) (Resp, error) {
	if !g.closed() {
		var none Resp
		return none, gobreaker.ErrOpenState
	}
	ctx, cancel := context.WithTimeout(ctx, g.opts.AdmitTimeout)
	defer cancel()
	return question(ctx, g, subject, func() Req { return req }, sure)
}

// reply is an answer that says which coordinator gave it.
type reply interface {
	wire.Message
	AnsweredBy() string
}

// attempts is how often a question is asked at most.
const attempts = 3

// response is what became of one attempt.
type response[Resp reply] struct {
	resp Resp
	err  error
	own  bool // one coordinator was asked by its id
}

// settles reports whether the question needs no other answer while others may
// come. That a coordinator has ended, or had stood still and no longer knows
// whom it keeps waiting, says nothing of the others.
func (a response[Resp]) settles(sure func(Resp) bool) bool {
	switch {
	case a.err == nil:
		return sure == nil || sure(a.resp)
	case errors.Is(a.err, bus.ErrNoResponders):
		return !a.own
	}
	return !errors.Is(a.err, bus.ErrTimeout) && bus.CodeOf(a.err) != bus.CodeExpired
}

// question asks a coordinator until ctx ends, which must have a deadline: any of
// them, and if that one is silent the one that was heard last. NATS goes on to
// give a coordinator that is frozen or cut off its share of the questions for up
// to 15 s, so that asking any of two again would fail every fourth time. Who was
// heard last may have fallen silent just now, so whoever is heard by then is asked
// for a third time. Req is called before each attempt.
//
// Whichever answer comes first counts, also that to an attempt after which others
// were made. But an answer of which sure (nil is always) is not true is taken only
// when no other can come: to an earlier copy of the question the answer may have
// been another.
func question[Req wire.Message, Resp reply](ctx context.Context, g *Gate, subject string, req func() Req, sure func(Resp) bool) (Resp, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the attempts that come too late
	answers := make(chan response[Resp], attempts)
	asked, open := 0, 0
	ask := func(by *string) {
		asked++
		open++
		message, to := req(), subject
		if by != nil {
			to = wire.OwnSubject(subject, *by)
		}
		go func() {
			resp, err := attempt[Req, Resp](ctx, g, to, message)
			answers <- response[Resp]{resp, err, by != nil}
		}()
	}
	ask(nil)
	var last *response[Resp] // of those that settle nothing, the best
	var second *string
	next := time.NewTimer(askAgain)
	defer next.Stop()
	for {
		var over <-chan struct{}
		if open == 0 {
			over = ctx.Done()
		}
		select {
		case <-over:
			return last.resp, last.err
		case a := <-answers:
			open--
			if a.settles(sure) {
				return a.resp, a.err
			}
			if last == nil || last.err != nil {
				last = &a
			}
			switch {
			case last.err == nil: // it is known, unless an earlier copy had another answer
				asked = attempts
			case a.own && errors.Is(a.err, bus.ErrNoResponders) && asked < attempts:
				next.Reset(0)
			}
			if open == 0 && asked == attempts {
				return last.resp, last.err
			}
		case <-next.C:
			if deadline, _ := ctx.Deadline(); time.Until(deadline) <= 0 {
				continue // the end of ctx is about to be noticed
			}
			switch asked {
			case 1:
				second = g.heard.Load()
				ask(second)
				next.Reset(askLast - askAgain)
			case 2:
				if second != nil {
					g.heard.CompareAndSwap(second, nil)
				}
				ask(g.heard.Load())
			}
		}
	}
}

// attempt asks once, and remembers who answered.
func attempt[Req wire.Message, Resp reply](ctx context.Context, g *Gate, subject string, req Req) (Resp, error) {
	resp, err := bus.Request[Req, Resp](ctx, g.opts.Conn, wire.EdgeSubject(subject, g.opts.EdgeID), req)
	if by := resp.AnsweredBy(); err == nil && by != "" {
		g.heard.Store(&by)
	}
	return resp, err
}

// ask asks for a place until ctx ends or the admit timeout is over.
func (g *Gate) ask(ctx context.Context, t *Ticket, mode wire.Mode) (wire.AdmitReply, error) {
	done, err := g.breaker.Allow()
	if err != nil {
		return wire.AdmitReply{}, err
	}
	began := time.Now()
	deadline := began.Add(g.opts.AdmitTimeout)
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()

	reply, err := question[wire.AdmitRequest, wire.AdmitReply](ctx, g, wire.SubjectAdmit, func() wire.AdmitRequest {
		g.metrics.asks.Inc()
		return wire.AdmitRequest{
			RequestID: t.id,
			Bucket:    t.group.bucket,
			Mode:      mode,
			// A tenth of the time is for the answer's way back, so that this edge
			// still hears what a coordinator says when the budget is over: that it
			// expired, or that the group is locked.
			BudgetMS: max((time.Until(deadline) * 9 / 10).Milliseconds(), 1),
		}
	}, nil)
	g.judge(done, err)
	if err == nil {
		g.metrics.latency.Observe(time.Since(began).Seconds())
		if limits := reply.Limits; *g.limits.Load() != limits && limits.MaxServed > 0 {
			g.limits.Store(&limits)
		}
	}
	return reply, err
}

// takeBack cancels a ticket and returns what it was.
func (g *Gate) takeBack(ctx context.Context, t *Ticket) (wire.Was, error) {
	reply, err := handBack(ctx, g, wire.SubjectCancel, wire.CancelRequest(t.item()), func(r wire.CancelReply) bool {
		return r.Was != wire.WasGone // which an earlier copy may have caused
	})
	return reply.Was, err
}

// giveBack sends one release.
func (g *Gate) giveBack(ctx context.Context, tickets []*Ticket) error {
	items := make([]wire.Item, len(tickets))
	for i, t := range tickets {
		items[i] = t.item()
	}
	_, err := handBack[wire.ReleaseRequest, wire.ReleaseReply](ctx, g, wire.SubjectRelease, wire.ReleaseRequest{Items: items}, nil)
	return err
}
