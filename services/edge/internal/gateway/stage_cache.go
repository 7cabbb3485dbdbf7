package gateway

import (
	"context"
	"fmt"
	"net/http"
	"runtime/debug"

	"github.com/ccnq/ccnq/pkg/qos"
	"github.com/ccnq/ccnq/services/edge/internal/admission"
	"github.com/ccnq/ccnq/services/edge/internal/cache"
	"github.com/ccnq/ccnq/services/edge/internal/cache/flight"
	"github.com/ccnq/ccnq/services/edge/internal/proxy"
)

// lookUp answers a request from what is stored, or from a fetch that everybody
// shares who asks for the same. That fetch goes the rest of the pipeline for all
// of them, see [way].
func (g *Gateway) lookUp(x *exchange) Verdict {
	if g.opts.Cache == nil {
		return goOn
	}
	x.way = way{gateway: g, of: x}
	x.ask = cache.Request{W: x.w, R: x.r, Arrived: x.arrived, Trusted: g.opts.Clients.PeerTrusted(x.r), Way: &x.way}
	result := g.opts.Cache.Serve(&x.ask)
	x.cached, x.status = result.Word, result.Status
	x.queue = result.Seat.Outcome
	if result.Err != nil {
		x.origin.Err = result.Err
	}
	switch result.End {
	case cache.GoOn:
		x.via, x.recording = result.W, result.Recording
		x.recording.Observe(&x.origin)
		return goOn
	case cache.Refused:
		return refuse(Reason(x.queue.Reason), http.StatusTooManyRequests, x.queue.RetryAfter)
	case cache.Failed:
		return refuse(failedAs(&result), result.Status, 0)
	case cache.Answered:
	case cache.Broken:
		if x.r.Context().Err() != nil {
			return abort(Reason(admission.ClientGone))
		}
		return abort(x.sharedAs())
	}
	return answered(x.sharedAs())
}

// sharedAs says why a request was answered that did not go the whole way itself.
func (x *exchange) sharedAs() Reason {
	if x.wouldBlock || x.throttled != qos.Pass {
		return WouldDeny
	}
	switch x.cached {
	case cache.Hit:
		return Hit
	case cache.Stale:
		return Stale
	case cache.Collapsed:
		return Collapsed
	case cache.Bypass, cache.Miss, cache.Revalidated:
	}
	return x.passedAs()
}

// failedAs says why there is nothing to answer with.
func failedAs(result *cache.Result) Reason {
	switch {
	case result.Err == nil:
		return NotCached
	case result.Status == http.StatusGatewayTimeout:
		return OriginTimeout
	}
	return OriginUnreachable
}

// way is the rest of the pipeline, behind the cache, for a fetch that is made with
// a request of which others get the answer too. It uses only what the stages
// before the cache have set, and so may be used when the request is over.
type way struct {
	gateway *Gateway
	of      *exchange
}

// laneFree is the kind of the lane of those whom the queue does not concern.
const laneFree = 1

// Lane says whom the request shares a place in the queue with: its group.
func (w *way) Lane() flight.Lane {
	if w.gateway.queues(w.of) {
		return flight.Lane{Group: w.of.group}
	}
	return flight.Lane{Kind: laneFree}
}

// Board takes the fetch through the stages between the cache and the origin.
func (w *way) Board(ctx context.Context, patience bool) flight.Seat {
	x := w.fetch(w.of.r.WithContext(ctx))
	x.background = !patience
	for _, s := range w.gateway.behindCache() {
		if v := s.decide(x); v.Reason != "" {
			return flight.Seat{Outcome: x.queue}
		}
	}
	seat := flight.Seat{Outcome: x.queue}
	seat.Outcome.Pass = true
	if x.ticket != nil {
		seat.Done = x.ticket.Done
	}
	return seat
}

// fetch is the exchange of a fetch, which has passed the stages before the cache
// with the request.
func (w *way) fetch(r *http.Request) *exchange {
	return &exchange{
		r: r, arrived: w.of.arrived,
		client: w.of.client, group: w.of.group, exempt: w.of.exempt, anonymous: w.of.anonymous,
	}
}

// Fetch takes a request to the origin. Where the proxy would abort the connection,
// the outcome says so.
func (w *way) Fetch(to http.ResponseWriter, r *http.Request, seat flight.Seat, o *proxy.Outcome) {
	x := w.fetch(r)
	defer func() {
		if p := recover(); p != nil && p != http.ErrAbortHandler { //nolint:errorlint // a panic's value, as net/http compares it
			o.Class, o.Err = proxy.Cut, fmt.Errorf("panic: %v", p)
			w.gateway.opts.Logger.Error("panic in a fetch", "panic", p, "stack", string(debug.Stack()))
		}
		w.gateway.settle(o, x)
	}()
	w.gateway.send(to, r, seat.Done != nil, o, x)
}

var _ cache.Way = (*way)(nil)
