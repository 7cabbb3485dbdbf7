package gateway

import (
	"github.com/ccnq/ccnq/pkg/qos"
	"github.com/ccnq/ccnq/services/edge/internal/admission"
	"github.com/ccnq/ccnq/services/edge/internal/outbox"
)

// recordDenial tells the outbox of a refusal. The head of the response has
// been written by then; a client that had left before is no denial.
func (g *Gateway) recordDenial(x *exchange) {
	if g.opts.Denials == nil {
		return
	}
	kind, ok := g.denialOf(x)
	if ok && x.r.Context().Err() == nil {
		g.opts.Denials.Record(kind, x.client, x.group, x.r.URL.Path, x.arrived)
	}
}

// denialOf says what kind of denial a request's end was, if it was one.
func (g *Gateway) denialOf(x *exchange) (outbox.Kind, bool) {
	switch x.reason {
	case Reason(admission.QueueFull):
		return outbox.QueueFull, true
	case Reason(admission.QueueTimeout):
		return outbox.QueueTimeout, true
	case Blocked:
		return outbox.Denylist, true
	case Throttled:
		if g.opts.QoS.Counted {
			return outbox.QoSCounted, true
		}
		return outbox.QoS, true
	case WouldDeny:
		return wouldHaveBeen(x), true
	}
	return 0, false
}

// wouldHaveBeen says what kind of denial monitor mode let pass: the first one on
// the request's way.
func wouldHaveBeen(x *exchange) outbox.Kind {
	switch {
	case x.wouldBlock:
		return outbox.WouldDenylist
	case x.throttled != qos.Pass:
		return outbox.WouldQoS
	case x.queue.Reason == admission.QueueTimeout:
		return outbox.WouldQueueTimeout
	}
	return outbox.WouldQueueFull
}
