package gateway

import (
	"github.com/ccnq/ccnq/services/edge/internal/admission"
	"github.com/ccnq/ccnq/services/edge/internal/outbox"
)

// recordDenial tells the outbox of a refusal. The head of the response has
// been written by then; a client that had left before is no denial.
func (g *Gateway) recordDenial(x *exchange) {
	if g.opts.Denials == nil || x.r.Context().Err() != nil {
		return
	}
	kind, ok := denialOf(x)
	if ok {
		g.opts.Denials.Record(kind, x.client, x.group, x.r.URL.Path, x.arrived)
	}
}

// denialOf says what kind of denial a request's end was, if it was one.
func denialOf(x *exchange) (outbox.Kind, bool) {
	switch x.reason {
	case Reason(admission.QueueFull):
		return outbox.QueueFull, true
	case Reason(admission.QueueTimeout):
		return outbox.QueueTimeout, true
	case Blocked:
		return outbox.Denylist, true
	case WouldDeny:
		if x.wouldBlock {
			return outbox.WouldDenylist, true
		}
		if x.queue.Reason == admission.QueueTimeout {
			return outbox.WouldQueueTimeout, true
		}
		return outbox.WouldQueueFull, true
	}
	return 0, false
}
