package qos

import (
	"math"
	"runtime/metrics"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

const ms = time.Millisecond

// after waits in the time of a synctest bubble, until all that is due has run.
func after(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func TestTimerLag(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var late atomic.Int64 // what the clock reads too much, as if timers fired late
		m := startTimerLag(lagInterval, lagSmoothing, func() time.Time { return time.Now().Add(time.Duration(late.Load())) })
		after(500 * ms)
		require.Zero(t, m.Lag())
		late.Store(int64(time.Second))
		for _, want := range []int64{333, 222, 148, 99, 66} {
			after(500 * ms)
			require.Equal(t, want, m.Lag().Milliseconds())
		}
		require.NoError(t, m.Close())
		require.NoError(t, m.Close())
		require.Equal(t, 66*ms, m.Lag(), "the last value stays")
	})
}

func TestLagSourcesOfTheProcess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, m := range []*Meter{NewTimerLag(), NewSchedulerLag()} {
			after(2 * time.Second)
			require.GreaterOrEqual(t, m.Lag(), time.Duration(0))
			require.NoError(t, m.Close())
		}
	})
}

// TestSchedulerMetricExists fails if a Go release drops or changes the metric.
func TestSchedulerMetricExists(t *testing.T) {
	t.Parallel()
	sample := []metrics.Sample{{Name: schedulerMetric}}
	metrics.Read(sample)
	require.Equal(t, metrics.KindFloat64Histogram, sample[0].Value.Kind())
	h := sample[0].Value.Float64Histogram()
	require.Len(t, h.Buckets, len(h.Counts)+1)
}

func TestSchedulerLag(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var slow atomic.Uint64
		h := &metrics.Float64Histogram{Counts: []uint64{1000, 0, 7}, Buckets: []float64{0, 0.001, 0.3, math.Inf(1)}}
		m := startSchedulerLag(func() *metrics.Float64Histogram {
			h.Counts[1] = slow.Load()
			return h
		})
		after(500 * ms)
		require.Zero(t, m.Lag(), "what was before does not count")
		slow.Store(100)
		after(500 * ms)
		require.Equal(t, 100*ms, m.Lag(), "a third of 300 ms")
		after(500 * ms)
		require.Equal(t, 67*ms, m.Lag())
		require.NoError(t, m.Close())
	})
}

func TestQuantileSince(t *testing.T) {
	t.Parallel()
	buckets := []float64{math.Inf(-1), 0, 0.001, 0.01, math.Inf(1)}
	tests := []struct {
		name   string
		before []uint64
		counts []uint64
		want   float64
	}{
		{"nothing new", []uint64{0, 5, 5, 5}, []uint64{0, 5, 5, 5}, 0},
		{"99 of 100 in time", []uint64{0, 0, 0, 0}, []uint64{0, 99, 1, 0}, 0.001},
		{"98 of 100 in time", []uint64{0, 0, 0, 0}, []uint64{0, 98, 2, 0}, 0.01},
		{"no upper bound", []uint64{0, 9, 0, 0}, []uint64{0, 9, 0, 1}, 0.01},
		{"no lower bound", []uint64{0, 0, 0, 0}, []uint64{3, 0, 0, 0}, 0},
		{"other buckets than before", []uint64{0}, []uint64{0, 1, 1, 1}, 0},
		{"no metric", nil, nil, 0},
	}
	for _, test := range tests {
		h := &metrics.Float64Histogram{Counts: test.counts, Buckets: buckets}
		require.InDelta(t, test.want, quantileSince(test.before, h, schedulerQuantile), 0, test.name)
	}
}

func TestOriginLag(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := NewOriginLag()
		observe := func(n int, d time.Duration) {
			for range n {
				o.ObserveTTFB(d)
			}
			after(500 * ms)
		}
		observe(20, 100*ms)
		require.Zero(t, o.Lag(), "the first sample is the baseline")
		observe(20, 400*ms)
		require.InDelta(t, 100, millis(o.Lag()), 1, "a third of 300 ms")
		observe(20, 400*ms)
		require.InDelta(t, 166, millis(o.Lag()), 2)
		observe(0, 0)
		require.InDelta(t, 111, millis(o.Lag()), 2, "no answer is no lag")
		observe(originMinObservations-1, time.Hour)
		require.InDelta(t, 74, millis(o.Lag()), 2, "few answers say nothing yet")
		require.NoError(t, o.Close())
	})
}

// TestOriginLagBaseline: a slower origin becomes usual within the hour, a faster
// one within seconds.
func TestOriginLagBaseline(t *testing.T) {
	t.Parallel()
	var o OriginLag
	sample := func(d time.Duration) float64 {
		for range originMinObservations {
			o.ObserveTTFB(d)
		}
		return o.sample()
	}
	require.Zero(t, sample(100*ms))
	require.Greater(t, sample(300*ms), 199.0)
	for range 2 * 60 {
		sample(300 * ms)
	}
	require.Greater(t, sample(300*ms), 175.0, "a minute of overload is not usual yet")
	for range 2 * 60 * 60 {
		sample(300 * ms)
	}
	require.Less(t, sample(300*ms), 1.0, "an hour is")
	for range 2 * 15 {
		require.Zero(t, sample(100*ms))
	}
	require.Greater(t, sample(300*ms), 190.0, "a quarter of a minute of speed is usual")
	require.Zero(t, sample(-time.Second))
}
