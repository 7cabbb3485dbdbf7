package projector

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/ccnq/ccnq/services/denylist/internal/store"
)

// metrics are the projector's.
type metrics struct {
	events                        *prometheus.CounterVec
	applied, skipped, quarantined prometheus.Counter
	denials, clamped, decided     prometheus.Counter
	failures, resets, rebuilds    prometheus.Counter
	lag, rebuilding               prometheus.Gauge
}

func newMetrics(registry prometheus.Registerer) *metrics {
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
		registry.MustRegister(c)
		return c
	}
	gauge := func(name, help string) prometheus.Gauge {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
		registry.MustRegister(g)
		return g
	}
	m := &metrics{
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ccnq_denylist_events_total",
			Help: "Denied events by what became of them: applied, skipped because they had been applied before, moved aside.",
		}, []string{"result"}),
		denials:    counter("ccnq_denylist_denials_total", "Denials that were counted."),
		clamped:    counter("ccnq_denylist_clamped_total", "Addresses in events whose time was too far ahead of the stream's."),
		decided:    counter("ccnq_denylist_decided_total", "Blocks that denials made or extended."),
		failures:   counter("ccnq_denylist_projection_failures_total", "Failures that interrupted the projection; it tries on."),
		resets:     counter("ccnq_denylist_stream_resets_total", "How often another stream was found in the place of the known one."),
		rebuilds:   counter("ccnq_denylist_rebuilds_total", "How often the tables were made anew from the stream."),
		lag:        gauge("ccnq_denylist_lag_events", "Denied events in the stream that are not applied yet."),
		rebuilding: gauge("ccnq_denylist_rebuild_remaining_events", "Events that a rebuild still has to read; 0 when none is under way."),
	}
	m.applied = m.events.WithLabelValues("applied")
	m.skipped = m.events.WithLabelValues("skipped")
	m.quarantined = m.events.WithLabelValues("quarantined")
	registry.MustRegister(m.events)
	return m
}

func (m *metrics) add(r store.Result, quarantined int) {
	m.applied.Add(float64(r.Applied))
	m.skipped.Add(float64(r.Skipped))
	m.quarantined.Add(float64(quarantined))
	m.denials.Add(float64(r.Denials))
	m.clamped.Add(float64(r.Clamped))
	m.decided.Add(float64(r.Changes))
}
