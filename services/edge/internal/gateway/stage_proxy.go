package gateway

import (
	"context"
	"net/http"
	"time"

	"github.com/ccnq/ccnq/pkg/qos"
	"github.com/ccnq/ccnq/services/edge/internal/admission"
	"github.com/ccnq/ccnq/services/edge/internal/proxy"
)

// forward hands the request to the origin and its answer to the client. It may
// panic with [net/http.ErrAbortHandler], see [proxy.Proxy.Serve].
func (g *Gateway) forward(x *exchange) Verdict {
	w := x.w
	if x.via != nil {
		w = x.via
	}
	x.reason = x.passedAs()
	x.forwarded = time.Now()
	g.send(w, x.r, x.ticket != nil, &x.origin)
	if x.origin.Class == proxy.BadRequest {
		x.reason = BadRequest
	}
	return answered(x.reason)
}

// send is an exchange with the origin. It is ended after a while if it holds a
// place and the queue is configured so.
func (g *Gateway) send(w http.ResponseWriter, r *http.Request, placed bool, o *proxy.Outcome) {
	if placed && g.opts.Queue.MaxActive > 0 {
		ctx, cancel := context.WithTimeoutCause(r.Context(), g.opts.Queue.MaxActive, proxy.ErrDurationLimit)
		defer cancel()
		r = r.WithContext(ctx)
	}
	g.opts.Proxy.Serve(w, r, o)
}

// settle counts an exchange with the origin that is over and was begun at a time;
// the zero time is never.
func (g *Gateway) settle(o *proxy.Outcome, asked time.Time) {
	if asked.IsZero() {
		return
	}
	g.metrics.countOrigin(o)
	g.observe(o, asked)
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
