package gateway

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ccnq/ccnq/services/edge/internal/admission"
	"github.com/ccnq/ccnq/services/edge/internal/proxy"
)

// metrics of the gateway. No label grows with the number of clients.
type metrics struct {
	requests  map[Reason]*[6]prometheus.Counter // by the hundreds of the status
	origin    [proxy.BadRequest + 1]prometheus.Counter
	fallbacks prometheus.Counter
	inFlight  prometheus.Gauge
	seconds   prometheus.Histogram
	firstByte prometheus.Histogram
}

// reasons that can end a request's way.
var reasons = []Reason{
	Hit, Stale, Collapsed, NotCached, OriginTimeout, OriginUnreachable, Proxied, Allowlisted, BadRequest,
	Reason(admission.Admitted), Reason(admission.Promoted), Reason(admission.WouldWait),
	Reason(admission.Local), Reason(admission.FailOpen),
	Reason(admission.QueueFull), Reason(admission.QueueTimeout), Reason(admission.ClientGone),
	WouldDeny, Blocked, Throttled,
}

var classes = [6]string{"none", "1xx", "2xx", "3xx", "4xx", "5xx"}

func newMetrics(r prometheus.Registerer) *metrics {
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "ccnq_requests_total",
		Help: "Requests by what became of them and by the class of the status that the client was sent.",
	}, []string{"verdict", "status"})
	m := &metrics{
		requests: make(map[Reason]*[6]prometheus.Counter, len(reasons)),
		fallbacks: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "ccnq_client_address_fallbacks_total",
			Help: "Requests whose address header could not be used, so that the peer's address was taken.",
		}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "ccnq_requests_in_flight", Help: "Requests that are being handled.",
		}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "ccnq_request_seconds", Help: "Time from a request's head to the end of its response.",
			Buckets: prometheus.ExponentialBuckets(0.000_25, 2.5, 14),
		}),
		firstByte: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "ccnq_origin_first_byte_seconds", Help: "Time until the head of the origin's response.",
			Buckets: prometheus.ExponentialBuckets(0.000_25, 2.5, 14),
		}),
	}
	origin := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "ccnq_origin_exchanges_total", Help: "Exchanges with the origin by how they ended.",
	}, []string{"outcome"})
	for class := range m.origin {
		m.origin[class] = origin.WithLabelValues(proxy.Class(class).String())
	}
	for _, reason := range reasons {
		counters := new([6]prometheus.Counter)
		for i, class := range classes {
			counters[i] = requests.WithLabelValues(string(reason), class)
		}
		m.requests[reason] = counters
	}
	r.MustRegister(requests, origin, m.fallbacks, m.inFlight, m.seconds, m.firstByte)
	return m
}

func (m *metrics) count(x *exchange) {
	if counters := m.requests[x.reason]; counters != nil {
		class := x.status / 100
		if class < 0 || class > 5 {
			class = 0
		}
		counters[class].Inc()
	}
	m.seconds.Observe(time.Since(x.arrived).Seconds())
}

// countOrigin counts an exchange with the origin.
func (m *metrics) countOrigin(o *proxy.Outcome) {
	if o.Status != 0 || o.Class != proxy.OK {
		m.origin[o.Class].Inc()
	}
	if o.FirstByte > 0 {
		m.firstByte.Observe(o.FirstByte.Seconds())
	}
}
