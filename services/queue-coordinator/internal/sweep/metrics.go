package sweep

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	reclaimed               *prometheus.CounterVec
	corrected, pruned       prometheus.Counter
	failures                prometheus.Counter
	active, waiting, groups prometheus.Gauge
}

func newMetrics(registry prometheus.Registerer, suspended func() bool) *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	m := &metrics{
		reclaimed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ccnq_coordinator_reclaimed_total",
			Help: "Requests freed because their edge was dead, or because they were stale.",
		}, []string{"reason"}),
		corrected: counter("ccnq_coordinator_corrected_total", "Groups whose counts differed from their requests."),
		pruned:    counter("ccnq_coordinator_pruned_total", "Idle groups that were forgotten."),
		failures:  counter("ccnq_coordinator_sweep_failures_total", "Calls of sweeps that failed; the next sweep repeats them."),
		active:    gauge("ccnq_coordinator_active", "Requests that hold a place, over all edges; a sample."),
		waiting:   gauge("ccnq_coordinator_waiting", "Requests that wait, over all edges; a sample."),
		groups:    gauge("ccnq_coordinator_groups", "Groups that are known; a sample."),
	}
	m.reclaimed.WithLabelValues("dead")
	m.reclaimed.WithLabelValues("stale")
	registry.MustRegister(m.reclaimed, m.corrected, m.pruned, m.failures, m.active, m.waiting, m.groups,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "ccnq_coordinator_reclaim_suspended",
			Help: "1 while dead edges are not looked for, since they might only have been cut off.",
		}, func() float64 {
			if suspended() {
				return 1
			}
			return 0
		}))
	return m
}

func (m *metrics) failed(err error) {
	if err != nil {
		m.failures.Inc()
	}
}
