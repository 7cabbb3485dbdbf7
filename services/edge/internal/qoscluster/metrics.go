package qoscluster

import (
	"log/slog"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ccnq/ccnq/pkg/qos"
)

// Observer counts and logs how the syncs of a limiter go, with whatever store. It is
// safe for concurrent use.
type Observer struct {
	logger        *slog.Logger
	syncs, errors prometheus.Counter
	registry      prometheus.Registerer
	up            prometheus.Gauge
	seconds       prometheus.Histogram

	mu   sync.Mutex
	last error
}

// NewObserver registers the metrics.
func NewObserver(logger *slog.Logger, registry prometheus.Registerer) *Observer {
	o := &Observer{
		logger: logger, registry: registry,
		syncs: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "ccnq_qos_cluster_syncs_total", Help: "Syncs of the load-aware limits with the cluster that went well.",
		}),
		errors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "ccnq_qos_cluster_errors_total", Help: "Syncs of the load-aware limits with the cluster that failed; they are repeated.",
		}),
		up: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "ccnq_qos_cluster_up", Help: "1 while syncs with the cluster go well.",
		}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "ccnq_qos_cluster_sync_seconds", Help: "Time of one sync with the cluster.",
			Buckets: prometheus.ExponentialBuckets(0.000_5, 2.5, 12),
		}),
	}
	registry.MustRegister(o.syncs, o.errors, o.up, o.seconds)
	return o
}

// Watch adds the lists in force to the metrics. It is called once.
func (o *Observer) Watch(limiter *qos.Limiter) {
	for kind, keys := range map[string]func(*qos.Blocklists) []string{
		"ip":     func(l *qos.Blocklists) []string { return l.IPs },
		"subnet": func(l *qos.Blocklists) []string { return l.Subnets },
		"host":   func(l *qos.Blocklists) []string { return l.Hosts },
	} {
		o.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "ccnq_qos_cluster_listed", Help: "Addresses, subnets and hosts that the cluster has above a limit.",
			ConstLabels: prometheus.Labels{"kind": kind},
		}, func() float64 { return float64(len(keys(limiter.Blocklists()))) }))
	}
}

// OnSync is for [qos.ClusterOptions].
func (o *Observer) OnSync(stats qos.SyncStats) {
	o.syncs.Inc()
	o.seconds.Observe(stats.Took.Seconds())
	if o.note(nil) != nil {
		o.logger.Info("the load-aware limits sync with the cluster again")
	}
}

// OnError is for [qos.ClusterOptions].
func (o *Observer) OnError(err error) {
	o.errors.Inc()
	if o.note(err) == nil {
		o.logger.Warn("the load-aware limits do not sync with the cluster now: the last known lists are in force", "error", err)
	}
}

// note keeps how the last sync went, and returns how the one before did.
func (o *Observer) note(err error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	before := o.last
	o.last = err
	if err == nil {
		o.up.Set(1)
	} else {
		o.up.Set(0)
	}
	return before
}

// Err is why the last sync failed, or nil.
func (o *Observer) Err() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.last
}
