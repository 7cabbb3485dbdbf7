package gateway

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ccnq/ccnq/pkg/clientip"
	"github.com/ccnq/ccnq/pkg/rules"
	"github.com/ccnq/ccnq/services/edge/internal/admission"
	"github.com/ccnq/ccnq/services/edge/internal/cache"
	"github.com/ccnq/ccnq/services/edge/internal/denylist"
	"github.com/ccnq/ccnq/services/edge/internal/outbox"
	"github.com/ccnq/ccnq/services/edge/internal/proxy"
)

// Options hand the gateway its collaborators.
type Options struct {
	// Clients finds a request's address.
	Clients *clientip.Resolver
	// Groups makes groups of addresses.
	Groups clientip.Grouper
	// Trusted are the proxies in front. May be nil.
	Trusted *clientip.Set
	// Allowlist bypasses every limit. May be nil.
	Allowlist *clientip.Set
	// Proxy forwards to the origin.
	Proxy *proxy.Proxy
	// QoS is the qos stage, or nil when the limits are off.
	QoS *QoS
	// Cache is the cache stage, or nil when the cache is off.
	Cache *cache.Cache
	// Queue is the queue stage, or nil when the queue is off.
	Queue *Queue
	// Blocks are the clients to refuse. May be nil.
	Blocks *denylist.List
	// Denials are told of every refusal. May be nil.
	Denials *outbox.Outbox
	// AccessLog writes one line for each request.
	AccessLog bool
	// Registerer receives the metrics.
	Registerer prometheus.Registerer
	// Logger receives refusals, and the access log if it is on.
	Logger *slog.Logger
}

// Queue configures the queue stage.
type Queue struct {
	// Gate decides.
	Gate *admission.Gate
	// Methods limits the stage to some methods; empty means all.
	Methods []string
	// Rules limits it to the requests that match.
	Rules *rules.File
	// MaxActive ends an exchange that had a place for longer; 0 is never.
	MaxActive time.Duration
	// PeerGone tells whether the client of a request that waits has left,
	// where the request's context cannot. May be nil.
	PeerGone func(*http.Request) bool
}

// Gateway is the edge's HTTP handler.
type Gateway struct {
	opts     Options
	stages   []stage
	metrics  *metrics
	limits   *qosMetrics // nil without QoS
	refusals *refusalLog
	spread   *spread
}

// New returns a gateway.
func New(opts Options) *Gateway {
	g := &Gateway{
		opts:     opts,
		metrics:  newMetrics(opts.Registerer),
		refusals: newRefusalLog(opts.Logger),
	}
	g.spread = newSpread(opts.Logger, opts.Registerer)
	if opts.QoS != nil {
		g.limits = newQoSMetrics(opts.Registerer, opts.QoS.Limiter)
	}
	g.stages = g.pipeline()
	return g
}

// ServeHTTP takes a request through the pipeline.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := exchanges.Get().(*exchange) //nolint:forcetypeassert // the pool has nothing else
	x.w, x.r, x.arrived = w, r, time.Now()
	if g.opts.Cache == nil {
		x.bypassed()
	}
	g.metrics.inFlight.Inc()
	defer g.finish(x)
	for i := range g.stages {
		if v := g.stages[i].decide(x); v.Reason != "" {
			x.reason = v.Reason
			switch {
			case v.Status != 0:
				g.respond(x, v)
			case v.Abort:
				panic(http.ErrAbortHandler) // or net/http would end the response well
			}
			return
		}
	}
}

// finish runs however the request ended, also when the proxy aborted the
// connection by a panic.
func (g *Gateway) finish(x *exchange) {
	x.close()
	if x.origin.Status != 0 {
		x.status = x.origin.Status
	}
	g.metrics.inFlight.Dec()
	g.metrics.count(x)
	g.recordDenial(x)
	g.settle(&x.origin, x.forwarded)
	if x.cached != "" {
		g.opts.Cache.Count(x.cached)
	}
	if g.opts.AccessLog {
		g.logAccess(x)
	} else if x.reference != "" {
		g.refusals.log(x)
	}
	x.free()
}
