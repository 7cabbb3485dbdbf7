package outbox

import "github.com/prometheus/client_golang/prometheus"

// metrics of the outbox. No label grows with the number of clients.
type metrics struct {
	sent, failures, faults, corrupt, adopted prometheus.Counter
	dropped                                  *prometheus.CounterVec
}

func newMetrics(r prometheus.Registerer, o *Outbox) *metrics {
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
		r.MustRegister(c)
		return c
	}
	gauge := func(name, help string, value func() float64) {
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value))
	}
	m := &metrics{
		sent:     counter("ccnq_outbox_sent_total", "Messages that a stream has acknowledged."),
		failures: counter("ccnq_outbox_send_failures_total", "Attempts to send a message that were not acknowledged."),
		faults:   counter("ccnq_outbox_disk_faults_total", "Writes to the outbox's file that failed; the messages wait in memory."),
		corrupt:  counter("ccnq_outbox_corrupt_total", "Files that were corrupt and moved aside."),
		adopted:  counter("ccnq_outbox_adopted_total", "Files of edges that are gone which were sent to their end."),
		dropped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ccnq_outbox_dropped_requests_total",
			Help: "Refused requests that are told to nobody because a bound was reached, by class (denials count towards blocks).",
		}, []string{"class"}),
	}
	r.MustRegister(m.dropped)
	r.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "ccnq_outbox_invalid_requests_total",
		Help: "Refused requests that were not recorded because their address is not a plain one in its group.",
	}, func() float64 { return float64(o.denials.invalid.Load() + o.refusals.invalid.Load()) }))
	overflow := func(class string, c *collector) {
		r.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "ccnq_outbox_overflow_requests_total",
			Help: "Refused requests that were not recorded because too many addresses came in one interval, by class.", ConstLabels: prometheus.Labels{"class": class},
		}, func() float64 { return float64(c.overflow.Load()) }))
	}
	overflow(classDenials, o.denials)
	overflow(classRefusals, o.refusals)
	gauge("ccnq_outbox_records", "Messages on disk and in memory that wait, denials only.", func() float64 {
		records, _, _ := o.waiting()
		return float64(records)
	})
	gauge("ccnq_outbox_bytes", "Their size.", func() float64 {
		_, bytes, _ := o.waiting()
		return float64(bytes)
	})
	gauge("ccnq_outbox_file_bytes", "Size of the outbox's file.", func() float64 {
		_, _, file := o.waiting()
		return float64(file)
	})
	return m
}

// Classes of what is recorded.
const (
	classDenials  = "denials"
	classRefusals = "refusals"
)

func class(k Kind) string {
	if k.durable() {
		return classDenials
	}
	return classRefusals
}
