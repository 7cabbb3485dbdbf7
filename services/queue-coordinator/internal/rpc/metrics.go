package rpc

import (
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ccnq/ccnq/pkg/bus"
	"github.com/ccnq/ccnq/pkg/wire"
)

// The operations, as endpoints and in metrics.
const (
	opAdmit   = "admit"
	opCancel  = "cancel"
	opRelease = "release"
	opStatus  = "status"
)

const (
	resultOK = "ok"
	// logEvery spaces out the lines about messages that are refused.
	logEvery = time.Second
)

// results lists every result of each operation besides the error codes.
var results = map[string][]string{
	opAdmit:   {string(wire.Admitted), string(wire.Queued), string(wire.Rejected)},
	opCancel:  {string(wire.WasPending), string(wire.WasActive), string(wire.WasGone)},
	opRelease: {resultOK},
	opStatus:  {resultOK},
}

var codes = []bus.Code{bus.CodeBusy, bus.CodeExpired, bus.CodeInvalid, bus.CodeUnavailable}

// metrics are the server's. No label depends on what edges or clients send.
type metrics struct {
	requests  *prometheus.CounterVec
	counters  map[[2]string]prometheus.Counter // of requests, read only
	batchSize *prometheus.HistogramVec
	asserted  prometheus.Counter
	repaired  prometheus.Counter
}

func newMetrics() *metrics {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ccnq_coordinator_requests_total",
			Help: "Requests of edges (of a release: its items) by operation and result.",
		}, []string{"op", "result"}),
		counters: make(map[[2]string]prometheus.Counter),
		batchSize: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "ccnq_coordinator_batch_size",
			Help:    "Requests that one call of the store served.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 10),
		}, []string{"op"}),
		asserted: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "ccnq_coordinator_asserted_total",
			Help: "Places that edges held already and the store did not know; only these may exceed the limit.",
		}),
		repaired: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "ccnq_coordinator_repaired_total",
			Help: "Requests freed because their edge no longer knew them.",
		}),
	}
	for op, known := range results {
		for _, result := range known {
			m.counters[[2]string{op, result}] = m.requests.WithLabelValues(op, result)
		}
		for _, code := range codes {
			m.counters[[2]string{op, string(code)}] = m.requests.WithLabelValues(op, string(code))
		}
	}
	return m
}

// register adds the metrics to registry; inFlight are the batches in flight by
// operation.
func (m *metrics) register(registry prometheus.Registerer, inFlight map[string]func() int) {
	registry.MustRegister(m.requests, m.batchSize, m.asserted, m.repaired)
	for op, n := range inFlight {
		registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name:        "ccnq_coordinator_batches_in_flight",
			Help:        "Calls of the store that are under way.",
			ConstLabels: prometheus.Labels{"op": op},
		}, func() float64 { return float64(n()) }))
	}
}

func (m *metrics) count(op, result string) {
	if counter, ok := m.counters[[2]string{op, result}]; ok {
		counter.Inc()
	}
}

// refusals counts messages that cannot be decoded and logs one a second.
type refusals struct {
	logger  *slog.Logger
	metrics *metrics
	since   atomic.Int64 // refused since the last line
	logged  atomic.Int64 // Unix nanoseconds of the last line
}

// refuse is called for each such message.
func (r *refusals) refuse(subject string, err error) {
	r.metrics.count(opOf(subject), string(bus.CodeInvalid))
	refused := r.since.Add(1)
	now, last := time.Now().UnixNano(), r.logged.Load()
	if now-last < int64(logEvery) || !r.logged.CompareAndSwap(last, now) {
		return
	}
	r.since.Add(-refused)
	r.logger.Warn("message refused", "subject", subject, "error", err, "refused", refused)
}

// opOf returns the operation of a subject that the server listens on.
func opOf(subject string) string {
	for op, pattern := range map[string]string{
		opCancel: wire.SubjectCancel, opRelease: wire.SubjectRelease, opStatus: wire.SubjectStatus,
	} {
		if strings.HasPrefix(subject, strings.TrimSuffix(pattern, "*")) {
			return op
		}
	}
	return opAdmit
}
