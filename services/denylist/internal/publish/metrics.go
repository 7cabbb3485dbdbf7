package publish

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/ccnq/ccnq/pkg/wire"
	"github.com/ccnq/ccnq/services/denylist/internal/store"
)

// metrics are the publisher's.
type metrics struct {
	changes, comparisons, corrected prometheus.Counter
	delay                           prometheus.Histogram
	events                          map[store.Kind]prometheus.Counter
	failures                        [2]prometheus.Counter
	blocks                          map[wire.Scope]prometheus.Gauge
	unpublished                     prometheus.Gauge
}

func newMetrics(registry prometheus.Registerer) *metrics {
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
		registry.MustRegister(c)
		return c
	}
	vector := func(name, help, label string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
		registry.MustRegister(v)
		return v
	}
	events := vector("ccnq_denylist_change_events_total", "Changes of blocks that were published as events.", "kind")
	failures := vector("ccnq_denylist_publish_failures_total", "Attempts to publish that failed; they are repeated.", "to")
	blocks := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "ccnq_denylist_blocks", Help: "Blocks in force; a sample of the leader.",
	}, []string{"scope"})
	unpublished := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "ccnq_denylist_unpublished_versions",
		Help: "Newest version of a change less the last one that bucket and events have; a sample of the leader.",
	})
	registry.MustRegister(blocks, unpublished)
	m := &metrics{
		changes:     counter("ccnq_denylist_published_changes_total", "Changes of blocks that were written to the bucket."),
		comparisons: counter("ccnq_denylist_comparisons_total", "Comparisons of the bucket with the tables."),
		corrected:   counter("ccnq_denylist_corrected_keys_total", "Keys that differed from the tables and were corrected."),
		delay: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "ccnq_denylist_publish_delay_seconds",
			Help:    "From the change of a block in the tables to its acknowledgement by the bucket.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 14),
		}),
		events: map[store.Kind]prometheus.Counter{
			store.KindBlocked:   events.WithLabelValues(string(store.KindBlocked)),
			store.KindUnblocked: events.WithLabelValues(string(store.KindUnblocked)),
		},
		blocks: map[wire.Scope]prometheus.Gauge{
			wire.ScopeIP:    blocks.WithLabelValues(string(wire.ScopeIP)),
			wire.ScopeRange: blocks.WithLabelValues(string(wire.ScopeRange)),
		},
		unpublished: unpublished,
	}
	registry.MustRegister(m.delay)
	for way, name := range names {
		m.failures[way] = failures.WithLabelValues(name)
	}
	return m
}

// inForce keeps a sample of the tables.
func (m *metrics) inForce(t store.Totals) {
	m.blocks[wire.ScopeIP].Set(float64(t.IPs))
	m.blocks[wire.ScopeRange].Set(float64(t.Ranges))
	m.unpublished.Set(float64(max(t.Version-t.Published, 0)))
}
