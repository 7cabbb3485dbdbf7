package qos

import (
	"sync"
	"time"
)

const (
	// originMinObservations is how many answers make a sample. Fewer are kept for
	// the next: a single slow page says nothing.
	originMinObservations = 8
	// originFaster and originSlower are how fast the baseline follows an origin
	// that became faster, and one that became slower: with two samples a second, in
	// some 4 seconds and in some 10 minutes.
	originFaster = 1.0 / 8
	originSlower = 1.0 / 1200
)

// OriginLag is a [Lag] for a proxy: how much longer than usual its origin takes
// to begin its answers. What is usual it learns: the mean of the first sample,
// from where it follows a faster origin at once and a slower one within minutes.
// So an overload of more than some minutes becomes usual by and by.
//
// An interval of half a second with no answers counts as no lag.
type OriginLag struct {
	*Meter
	baseline float64 // ms; of the sampling goroutine, 0 before the first sample

	mu       sync.Mutex // a sum is of use only with its number
	observed int
	total    time.Duration
}

// NewOriginLag starts a goroutine that runs until Close.
func NewOriginLag() *OriginLag {
	o := &OriginLag{}
	o.Meter = startMeter(lagInterval, lagSmoothing, time.Now, func(time.Duration) float64 { return o.sample() })
	return o
}

// ObserveTTFB takes the time from sending a request to the first byte of its
// answer, its "time to first byte". For a request that was given up it is the time
// waited so far: else an origin that answers nothing at all would show no lag.
// Times are clamped to 0..1 h. It does not allocate.
func (o *OriginLag) ObserveTTFB(d time.Duration) {
	d = min(max(d, 0), time.Hour)
	o.mu.Lock()
	o.observed++
	o.total += d
	o.mu.Unlock()
}

// sample is how far above the baseline the answers since the last sample were, in
// ms.
func (o *OriginLag) sample() float64 {
	o.mu.Lock()
	n, total := o.observed, o.total
	if n >= originMinObservations {
		o.observed, o.total = 0, 0
	}
	o.mu.Unlock()
	if n < originMinObservations {
		return 0
	}
	mean := millis(total) / float64(n)
	switch {
	case o.baseline == 0:
		o.baseline = mean
	case mean < o.baseline:
		o.baseline += (mean - o.baseline) * originFaster
	default:
		o.baseline += (mean - o.baseline) * originSlower
	}
	return max(0, mean-o.baseline)
}
