package gateway

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/ccnq/ccnq/pkg/qos"
)

// qosMetrics are those of the qos stage.
type qosMetrics struct {
	decisions map[qos.Reason]prometheus.Counter
}

func newQoSMetrics(r prometheus.Registerer, limiter *qos.Limiter) *qosMetrics {
	decisions := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "ccnq_qos_decisions_total",
		Help: "Requests that the load-aware limits judged, by the limit that they were above; pass is none. " +
			"In monitor mode all of them went on.",
	}, []string{"reason"})
	m := &qosMetrics{decisions: make(map[qos.Reason]prometheus.Counter)}
	for _, reason := range []qos.Reason{qos.BadHost, qos.HostViolation, qos.BadIP, qos.BadSubnet} {
		m.decisions[reason] = decisions.WithLabelValues(string(reason))
	}
	m.decisions[qos.Pass] = decisions.WithLabelValues("pass")
	r.MustRegister(decisions, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "ccnq_qos_lag_seconds",
		Help: "The lag that the load-aware limits follow.",
	}, func() float64 { return limiter.Lag().Seconds() }))
	for kind, name := range map[qos.Kind]string{qos.Host: "host", qos.IP: "ip", qos.Subnet: "subnet"} {
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name:        "ccnq_qos_tracked_keys",
			Help:        "Hosts, addresses and subnets that the load-aware limits remember.",
			ConstLabels: prometheus.Labels{"kind": name},
		}, func() float64 { return float64(limiter.Tracked(kind)) }))
	}
	return m
}

func (m *qosMetrics) count(reason qos.Reason) { m.decisions[reason].Inc() }
