package cache

import (
	"github.com/prometheus/client_golang/prometheus"
)

// metrics of the cache, beside those of its store. No label grows with the number
// of resources or clients.
type metrics struct {
	bypasses      map[bypassReason]prometheus.Counter
	alones        map[Alone]prometheus.Counter
	notStored     *prometheus.CounterVec
	invalidations prometheus.Counter
	revalidations struct{ confirmed, replaced, failed, refused prometheus.Counter }
	words         map[Word]prometheus.Counter
}

func newMetrics(r prometheus.Registerer, c *Cache) *metrics {
	m := &metrics{
		bypasses: map[bypassReason]prometheus.Counter{},
		alones:   map[Alone]prometheus.Counter{},
		words:    map[Word]prometheus.Counter{},
		notStored: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ccnq_cache_not_stored_total",
			Help: "Responses of the origin that were not stored, by reason.",
		}, []string{"reason"}),
		invalidations: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "ccnq_cache_invalidations_total",
			Help: "Resources made invalid by unsafe requests.",
		}),
	}
	vec := func(name, help, label string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
		r.MustRegister(v)
		return v
	}
	bypasses := vec("ccnq_cache_bypasses_total", "Requests out of the cache's scope, by reason.", "reason")
	for _, reason := range []bypassReason{bypassBody, bypassMethod, bypassRules, bypassUpgrade} {
		m.bypasses[reason] = bypasses.WithLabelValues(string(reason))
	}
	alones := vec("ccnq_cache_alone_total", "Misses that did not share a fetch, by reason.", "reason")
	for _, reason := range []Alone{
		AloneAfterAll, AloneAuthorization, AloneCondition, AloneHead, AloneNoStore, AloneRange, AloneUncacheable,
	} {
		m.alones[reason] = alones.WithLabelValues(string(reason))
	}
	words := vec("ccnq_cache_requests_total", "Requests by what the cache did for them.", "result")
	for _, word := range []Word{Bypass, Collapsed, Hit, Miss, Revalidated, Stale} {
		m.words[word] = words.WithLabelValues(string(word))
	}
	revalidations := vec("ccnq_cache_revalidations_total", "Validations of stored responses, by outcome.", "outcome")
	m.revalidations.confirmed = revalidations.WithLabelValues("confirmed")
	m.revalidations.failed = revalidations.WithLabelValues("failed")
	m.revalidations.refused = revalidations.WithLabelValues("refused")
	m.revalidations.replaced = revalidations.WithLabelValues("replaced")
	r.MustRegister(m.notStored, m.invalidations)
	gauge := func(name, help string, value func() float64) {
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value))
	}
	gauge("ccnq_cache_fetch_bytes", "Bytes of bodies that are under way.",
		func() float64 { return float64(c.flights.Held() + c.recorded.Load()) })
	gauge("ccnq_cache_waiting", "Requests that wait for a fetch or read from it.",
		func() float64 { return float64(c.flights.Askers()) })
	gauge("ccnq_cache_uncacheable", "Resources, or variants of them, that are remembered as not storable.",
		func() float64 { return float64(c.uncacheable.count()) })
	r.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "ccnq_cache_slow_readers_total", Help: "Readers that were cut loose since they held up others.",
	}, func() float64 { return float64(c.flights.CutLoose()) }))
	return m
}

func (m *metrics) bypassed(reason bypassReason) { m.bypasses[reason].Inc() }

func (m *metrics) alone(reason Alone) { m.alones[reason].Inc() }

// Count counts what the cache did for a request, once it is over.
func (c *Cache) Count(word Word) {
	if counter := c.metrics.words[word]; counter != nil {
		counter.Inc()
	}
}
