package denylist

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics of the list. No label grows with the number of clients.
type metrics struct {
	delay, reading prometheus.Histogram
	readings       *prometheus.CounterVec
	refused        prometheus.Counter
}

func newMetrics(r prometheus.Registerer, l *List) *metrics {
	m := &metrics{
		delay: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "ccnq_denylist_delay_seconds",
			Help:    "Time from the beginning of a block, which is that of the deciding denial, until this edge refuses. Clocks of both machines are in it.",
			Buckets: prometheus.ExponentialBuckets(0.005, 2, 13),
		}),
		reading: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "ccnq_denylist_snapshot_seconds",
			Help:    "Time of a complete reading of the blocks.",
			Buckets: prometheus.ExponentialBuckets(0.005, 2, 14),
		}),
		readings: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ccnq_denylist_snapshots_total",
			Help: "Complete readings of the blocks, by outcome.",
		}, []string{"outcome"}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "ccnq_denylist_refused_messages_total",
			Help: "Messages in the bucket of the blocks that could not be decoded.",
		}),
	}
	r.MustRegister(m.delay, m.reading, m.readings, m.refused)
	gauge := func(name, help string, labels prometheus.Labels, value func() float64) {
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels}, value))
	}
	const entries, help = "ccnq_denylist_entries", "Blocks in force, by scope, to the minute."
	gauge(entries, help, prometheus.Labels{"scope": "ip"}, func() float64 { return float64(l.table.state(time.Now()).ips.most) })
	gauge(entries, help, prometheus.Labels{"scope": "range"}, func() float64 { return float64(l.table.state(time.Now()).ranges.most) })
	gauge("ccnq_denylist_lag_versions", "Changes that the service has published and this edge has not seen; 0 is none.", nil, func() float64 {
		l.mu.Lock()
		defer l.mu.Unlock()
		return float64(max(0, l.mark.Version-l.table.state(time.Now()).version))
	})
	gauge("ccnq_denylist_mark_age_seconds", "Time since the denylist service was last heard of; -1 before the first time.", nil, func() float64 {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.markAt.IsZero() {
			return -1
		}
		return time.Since(l.markAt).Seconds()
	})
	return m
}
