package store

import (
	"os"

	"github.com/prometheus/client_golang/prometheus"
)

// Reasons why entries are removed.
const (
	evictedSize    = "size"
	evictedExpired = "expired"
	evictedPurged  = "purged"
)

// Reasons why an entry is not stored.
const (
	droppedTooLarge = "too-large"
	droppedBusy     = "busy"     // too much waits to be written
	droppedFault    = "fault"    // of the disk
	droppedPurged   = "purged"   // since it was asked for
	droppedReplaced = "replaced" // since it was read
)

// metrics of the store.
type metrics struct {
	evictions, drops                              *prometheus.CounterVec
	readFailures, rebuilt, writeFailures, written prometheus.Counter
}

func newMetrics[H any](r prometheus.Registerer, s *Store[H]) *metrics {
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
		r.MustRegister(c)
		return c
	}
	vector := func(name, help, label string, values ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
		for _, v := range values {
			c.WithLabelValues(v)
		}
		r.MustRegister(c)
		return c
	}
	gauge := func(name, help string, value func() float64) {
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value))
	}
	gauge("ccnq_cache_entries", "Entries of the cache.", func() float64 {
		n, _ := s.count()
		return float64(n)
	})
	gauge("ccnq_cache_bytes", "About what they take on disk.", func() float64 {
		_, n := s.count()
		return float64(n)
	})
	gauge("ccnq_cache_file_bytes", "Size of the cache's file.", func() float64 {
		info, err := os.Stat(s.disk.path())
		if err != nil {
			return 0
		}
		return float64(info.Size())
	})
	gauge("ccnq_cache_memory_bytes", "Size of the entries that are held in memory as well.", func() float64 {
		if s.tier == nil {
			return 0
		}
		return float64(s.tier.WeightedSize())
	})
	gauge("ccnq_cache_queued_bytes", "Size of the entries that are not on disk yet.", func() float64 { return float64(s.queue.bytes.Load()) })
	return &metrics{
		evictions: vector("ccnq_cache_evictions_total", "Entries that were removed to make room, because their time was over, or by a purge.",
			"reason", evictedSize, evictedExpired, evictedPurged),
		drops: vector("ccnq_cache_dropped_writes_total", "Entries that were not stored, by reason.",
			"reason", droppedTooLarge, droppedBusy, droppedFault, droppedPurged, droppedReplaced),
		readFailures:  counter("ccnq_cache_read_failures_total", "Entries that were corrupt on disk and dropped."),
		rebuilt:       counter("ccnq_cache_rebuilds_total", "Files that were corrupt or removed, and made anew."),
		writeFailures: counter("ccnq_cache_write_failures_total", "Writes to the cache's file that failed."),
		written:       counter("ccnq_cache_written_bytes_total", "Bytes of entries written to the cache's file."),
	}
}

func (m *metrics) evicted(reason string, n int) {
	if n > 0 {
		m.evictions.WithLabelValues(reason).Add(float64(n))
	}
}

func (m *metrics) dropped(reason string) { m.drops.WithLabelValues(reason).Inc() }
