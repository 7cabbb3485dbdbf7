package gateway

import (
	"context"
	"time"

	"github.com/ccnq/ccnq/pkg/qos"
	"github.com/ccnq/ccnq/services/edge/internal/admission"
	"github.com/ccnq/ccnq/services/edge/internal/proxy"
)

// forward hands the request to the origin and its answer to the client. It may
// panic with [net/http.ErrAbortHandler], see [proxy.Proxy.Serve].
func (g *Gateway) forward(x *exchange) Verdict {
	r := x.r
	if x.ticket != nil && g.opts.Queue.MaxActive > 0 {
		ctx, cancel := context.WithTimeoutCause(r.Context(), g.opts.Queue.MaxActive, proxy.ErrDurationLimit)
		defer cancel()
		r = r.WithContext(ctx)
	}
	x.reason = x.passedAs()
	x.forwarded = time.Now()
	g.opts.Proxy.Serve(x.w, r, &x.origin)
	if x.origin.Class == proxy.BadRequest {
		x.reason = BadRequest
	}
	return answered(x.reason)
}

// passedAs says why a request was let through to the origin.
func (x *exchange) passedAs() Reason {
	switch {
	case x.exempt:
		return Allowlisted
	case x.wouldBlock, x.throttled != qos.Pass:
		return WouldDeny
	case x.queue.Reason == "":
		return Proxied
	case x.queue.Reason == admission.QueueFull, x.queue.Reason == admission.QueueTimeout:
		return WouldDeny
	}
	return Reason(x.queue.Reason)
}
