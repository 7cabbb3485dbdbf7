package gateway

import (
	"time"

	"github.com/ccnq/ccnq/pkg/qos"
	"github.com/ccnq/ccnq/services/edge/internal/proxy"
)

// QoS configures the qos stage.
type QoS struct {
	// Limiter decides.
	Limiter *qos.Limiter
	// Monitor lets pass what is above a limit. As after a veto of qos's
	// BeforeThrottle, such requests are not counted towards the limits.
	Monitor bool
	// Status answers what is refused.
	Status int
	// RetryHost is told to whoever is refused for the rate of a host, RetryClient for
	// that of an address or a subnet, RetryViolation because the host has too large a
	// share. A client that waits so long, and asks alone, is let through.
	RetryHost, RetryClient, RetryViolation time.Duration
	// Close ends the connections of refused clients, but never one that
	// carries the requests of others.
	Close bool
	// Counted says that refusals count towards blocks.
	Counted bool
	// OriginLag is told how soon the origin answers; may be nil.
	OriginLag *qos.OriginLag
	// Hosts warns when one host's limit is the whole site's; may be nil.
	Hosts *HostSpread
}

// throttle refuses requests of those who ask too much while there is much to do.
// A request of nobody known is neither counted nor refused, as in the queue.
func (g *Gateway) throttle(x *exchange) Verdict {
	q := g.opts.QoS
	if q == nil || x.exempt || x.anonymous {
		return goOn
	}
	actor := q.Limiter.NewActor(x.r.Host, x.client)
	q.Hosts.see(actor.Host(), x.arrived)
	reason := q.Limiter.Decide(actor)
	g.limits.count(reason)
	if reason == qos.Pass {
		return goOn
	}
	x.throttled = reason
	if q.Monitor {
		return goOn
	}
	q.Limiter.Hold(x.r.Context())
	v := refuse(Throttled, q.Status, q.RetryClient)
	switch reason {
	case qos.BadHost:
		v.RetryAfter = q.RetryHost
	case qos.HostViolation:
		v.RetryAfter = q.RetryViolation
	}
	v.Close = q.Close && !x.relayed && !g.opts.Clients.PeerTrusted(x.r)
	return v
}

// observe tells the lag source how long the origin took to begin its answer, or
// how long it was waited for in vain. A request that never reached it says
// nothing.
func (g *Gateway) observe(o *proxy.Outcome, asked time.Time) {
	if g.opts.QoS == nil || g.opts.QoS.OriginLag == nil || asked.IsZero() {
		return
	}
	switch {
	case o.FirstByte > 0:
		g.opts.QoS.OriginLag.ObserveTTFB(o.FirstByte)
	case o.Class == proxy.Timeout, o.Class == proxy.ClientGone, o.Class == proxy.DurationLimit, o.Class == proxy.Cut:
		g.opts.QoS.OriginLag.ObserveTTFB(time.Since(asked))
	}
}
