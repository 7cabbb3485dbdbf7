package gateway

import (
	"net/http"
	"slices"

	"github.com/ccnq/ccnq/pkg/rules"
	"github.com/ccnq/ccnq/services/edge/internal/admission"
)

// enqueue takes a place in the queue for requests in its scope.
func (g *Gateway) enqueue(x *exchange) Verdict {
	if !g.queues(x.r, x.exempt, x.anonymous) {
		return goOn
	}
	q := g.opts.Queue
	if x.background {
		x.ticket, x.queue = q.Gate.TryAdmit(x.r.Context(), x.group)
		if x.queue.Pass {
			return goOn
		}
		return answered(Reason(x.queue.Reason))
	}
	x.ticket, x.queue = q.Gate.Admit(x.r.Context(), x.group, x.arrived, q.gone(x.r))
	if x.queue.Pass {
		return goOn
	}
	if x.queue.Reason == admission.ClientGone {
		return abort(Reason(x.queue.Reason))
	}
	return refuse(Reason(x.queue.Reason), http.StatusTooManyRequests, x.queue.RetryAfter)
}

// queues reports whether the queue concerns a request, of a client who is exempt or
// not known, or neither.
func (g *Gateway) queues(r *http.Request, exempt, anonymous bool) bool {
	q := g.opts.Queue
	return q != nil && !exempt && !anonymous && q.inScope(r)
}

// inScope applies the method filter, which is cheaper, before the rules.
func (q *Queue) inScope(r *http.Request) bool {
	if len(q.Methods) > 0 && !slices.Contains(q.Methods, r.Method) {
		return false
	}
	return q.Rules.Current().Match(r, rules.OnTimeoutMatch)
}

// gone returns how to notice that a client has left while its request has a
// body that nobody reads: net/http ends the context only when it has been.
func (q *Queue) gone(r *http.Request) func() bool {
	if q.PeerGone == nil || r.Body == nil || r.Body == http.NoBody || r.ProtoMajor > 1 {
		return nil
	}
	return func() bool { return q.PeerGone(r) }
}
