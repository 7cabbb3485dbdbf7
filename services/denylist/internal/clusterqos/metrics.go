package clusterqos

import "github.com/prometheus/client_golang/prometheus"

// metrics of one process. Those of the leadership are in package lead.
type metrics struct {
	counted, duplicate, refused prometheus.Counter
	hits                        prometheus.Counter
	published, failures         prometheus.Counter
	listed                      *prometheus.GaugeVec
}

func newMetrics(registry prometheus.Registerer, c *counts) *metrics {
	messages := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "ccnq_denylist_qos_messages_total",
		Help: "Messages of edges about what they tracked: counted, a duplicate of one that was, or refused as not valid.",
	}, []string{"result"})
	m := &metrics{
		counted: messages.WithLabelValues("counted"), duplicate: messages.WithLabelValues("duplicate"),
		refused: messages.WithLabelValues("refused"),
		hits: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "ccnq_denylist_qos_hits_total", Help: "Requests that edges let pass and told of, each counted once.",
		}),
		published: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "ccnq_denylist_qos_published_total", Help: "Changes of the blocklists of the load-aware limits that were published.",
		}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "ccnq_denylist_qos_failures_total", Help: "Attempts to read hits or to publish blocklists that failed; they are repeated.",
		}),
		listed: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "ccnq_denylist_qos_listed", Help: "Keys on the blocklists that were published last; a sample of the leader.",
		}, []string{"kind"}),
	}
	registry.MustRegister(messages, m.hits, m.published, m.failures, m.listed)
	for kind, size := range map[string]func() int{
		"ip":     func() int { n, _, _ := c.sizes(); return n },
		"subnet": func() int { _, n, _ := c.sizes(); return n },
		"host":   func() int { _, _, n := c.sizes(); return n },
	} {
		registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "ccnq_denylist_qos_actors", Help: "Keys that were counted in the present window over all edges.",
			ConstLabels: prometheus.Labels{"kind": kind},
		}, func() float64 { return float64(size()) }))
	}
	return m
}
