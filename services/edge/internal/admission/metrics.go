package admission

import "github.com/prometheus/client_golang/prometheus"

// metrics of the gate. No label grows with the number of clients.
type metrics struct {
	asks, memo, asserted, polled, dropped, refused prometheus.Counter
	failOpen                                       *prometheus.CounterVec
	held, waiting, breaker                         prometheus.Gauge
	latency, waited, promotion                     prometheus.Histogram
}

func newMetrics(r prometheus.Registerer) *metrics {
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
		r.MustRegister(c)
		return c
	}
	gauge := func(name, help string) prometheus.Gauge {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
		r.MustRegister(g)
		return g
	}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
		r.MustRegister(h)
		return h
	}
	m := &metrics{
		asks:     counter("ccnq_queue_asks_total", "Admit messages sent to the coordinators."),
		memo:     counter("ccnq_queue_memo_refusals_total", "Refusals that the edge decided by itself because the group was just found full."),
		asserted: counter("ccnq_queue_asserted_total", "Places asserted again after the store had lost them. They may exceed the cap."),
		polled:   counter("ccnq_queue_polled_promotions_total", "Promotions learned by the safety poll rather than by a push."),
		dropped:  counter("ccnq_queue_dropped_releases_total", "Releases and cancels given up; the store frees these places by itself."),
		refused:  counter("ccnq_queue_refused_messages_total", "Messages that could not be decoded."),
		failOpen: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ccnq_queue_fail_open_total", Help: "Requests that passed because nobody could decide, by cause.",
		}, []string{"cause"}),
		held:    gauge("ccnq_queue_held", "Places that this edge holds."),
		waiting: gauge("ccnq_queue_waiting", "Requests of this edge that wait in line."),
		breaker: gauge("ccnq_queue_breaker_state", "Circuit breaker to the coordinators: 0 closed, 1 half open, 2 open."),
		latency: histogram("ccnq_queue_admit_seconds", "Time until a coordinator answered an admit.",
			prometheus.ExponentialBuckets(0.000_1, 2, 15)),
		waited: histogram("ccnq_queue_wait_seconds", "Time from a request's arrival at the queue until it was decided.",
			prometheus.ExponentialBuckets(0.000_25, 2.5, 14)),
		promotion: histogram("ccnq_queue_promotion_seconds", "Time from the message that freed a place until its promotion was sent to this edge.",
			prometheus.ExponentialBuckets(0.000_1, 2, 15)),
	}
	r.MustRegister(m.failOpen)
	return m
}
