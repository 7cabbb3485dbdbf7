package gateway

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"runtime/debug"
	"time"

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
	x.way = way{
		gateway: g, r: x.r, arrived: x.arrived,
		client: x.client, group: x.group, exempt: x.exempt, anonymous: x.anonymous,
	}
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
// a request of which others get the answer too. It has what the stages before the
// cache have set.
type way struct {
	gateway   *Gateway
	r         *http.Request
	arrived   time.Time
	client    netip.Addr
	group     netip.Prefix
	exempt    bool
	anonymous bool
}

// laneFree is the kind of the lane of those whom the queue does not concern.
const laneFree = 1

// Lane says whom the request shares a place in the queue with: its group.
func (w *way) Lane() flight.Lane {
	if w.gateway.queues(w.r, w.exempt, w.anonymous) {
		return flight.Lane{Group: w.group}
	}
	return flight.Lane{Kind: laneFree}
}

// Keep returns a copy, as the exchange of which this one is a part is used again.
func (w *way) Keep() cache.Way {
	kept := *w
	return &kept
}

// Board takes the fetch through the stages between the cache and the origin.
func (w *way) Board(ctx context.Context, patience bool) flight.Seat {
	x := exchanges.Get().(*exchange) //nolint:forcetypeassert // the pool has nothing else
	defer x.free()
	x.r, x.arrived, x.background = w.r.WithContext(ctx), w.arrived, !patience
	x.client, x.group, x.exempt, x.anonymous = w.client, w.group, w.exempt, w.anonymous
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

// Fetch takes a request to the origin. Where the proxy would abort the connection,
// the outcome says so.
func (w *way) Fetch(to http.ResponseWriter, r *http.Request, seat flight.Seat, o *proxy.Outcome) {
	asked := time.Now()
	defer func() {
		if p := recover(); p != nil && p != http.ErrAbortHandler { //nolint:errorlint // a panic's value, as net/http compares it
			o.Class, o.Err = proxy.Cut, fmt.Errorf("panic: %v", p)
			w.gateway.opts.Logger.Error("panic in a fetch", "panic", p, "stack", string(debug.Stack()))
		}
		w.gateway.settle(o, asked)
	}()
	w.gateway.send(to, r, seat.Done != nil, o)
}

var _ cache.Way = (*way)(nil)
