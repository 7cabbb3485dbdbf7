package qos

import (
	"math"
	"runtime/metrics"
	"time"
)

// schedulerMetric is a histogram of how long goroutines that could run waited.
const schedulerMetric = "/sched/latencies:seconds"

// schedulerQuantile is the share of goroutines that start sooner than the lag.
const schedulerQuantile = 0.99

// NewSchedulerLag measures how long goroutines that could run wait for a thread:
// the 99th percentile of each half second, from runtime/metrics. For the same load
// it shows less than the event loop of Node, whose requests all wait in one line:
// tune MinLag and MaxLag.
func NewSchedulerLag() *Meter {
	sample := []metrics.Sample{{Name: schedulerMetric}}
	return startSchedulerLag(func() *metrics.Float64Histogram {
		metrics.Read(sample)
		if sample[0].Value.Kind() != metrics.KindFloat64Histogram {
			return &metrics.Float64Histogram{} // a Go release without this metric
		}
		return sample[0].Value.Float64Histogram()
	})
}

// startSchedulerLag samples a histogram that read returns, which may be the same
// memory each time.
func startSchedulerLag(read func() *metrics.Float64Histogram) *Meter {
	before := append([]uint64(nil), read().Counts...)
	return startMeter(lagInterval, lagSmoothing, time.Now, func(time.Duration) float64 {
		h := read()
		seconds := quantileSince(before, h, schedulerQuantile)
		before = append(before[:0], h.Counts...)
		return seconds * 1000
	})
}

// quantileSince is a quantile of what was added to h since it had the counts
// before: the upper bound of its bucket, or the lower one if that is infinite. It
// is 0 if nothing was added.
func quantileSince(before []uint64, h *metrics.Float64Histogram, quantile float64) float64 {
	if len(before) != len(h.Counts) {
		return 0
	}
	var total uint64
	for i, n := range h.Counts {
		total += n - before[i]
	}
	if total == 0 {
		return 0
	}
	rank := uint64(math.Ceil(float64(total) * quantile))
	var seen uint64
	for i, n := range h.Counts {
		if seen += n - before[i]; seen >= rank {
			value := h.Buckets[i+1]
			if math.IsInf(value, 0) {
				value = h.Buckets[i]
			}
			return max(value, 0)
		}
	}
	return 0
}
