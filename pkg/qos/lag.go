package qos

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// Lag tells how far behind its work the process, or what stands behind it, is.
// It is asked for every decision, by many goroutines at once, and must not block.
type Lag interface {
	Lag() time.Duration
}

const (
	// lagInterval is how often a source is sampled.
	lagInterval = 500 * time.Millisecond
	// lagSmoothing is the weight of the newest sample, as in toobusy-js: after one
	// bad sample a third of it is shown, then two thirds of that, and so on.
	lagSmoothing = 1.0 / 3
)

// Meter is a [Lag] that samples a source twice a second, in a goroutine that runs
// until Close. It starts at 0. Several limiters may share one.
type Meter struct {
	smoothed float64 // ms; of the sampling goroutine
	shown    atomic.Int64

	stop     chan struct{}
	stopped  chan struct{}
	stopOnce sync.Once
}

// Lag implements [Lag]: the smoothed samples, in whole milliseconds.
func (m *Meter) Lag() time.Duration { return time.Duration(m.shown.Load()) * time.Millisecond }

// Close stops the goroutine and waits for its end. The last value stays. It may be
// called twice, and always returns nil.
func (m *Meter) Close() error {
	m.stopOnce.Do(func() { close(m.stop) })
	<-m.stopped
	return nil
}

// observe takes a sample in ms. Only one goroutine may call it.
func (m *Meter) observe(sample, smoothing float64) {
	m.smoothed = float64(smoothing*sample) + float64((1-smoothing)*m.smoothed)
	m.shown.Store(int64(math.Round(m.smoothed)))
}

// startMeter runs sample every interval until Close. It is given the time since
// its last run, or since the start, and returns ms.
func startMeter(interval time.Duration, smoothing float64, now func() time.Time, sample func(elapsed time.Duration) float64) *Meter {
	m := &Meter{stop: make(chan struct{}), stopped: make(chan struct{})}
	last := now()
	go func() {
		defer close(m.stopped)
		timer := time.NewTimer(interval)
		defer timer.Stop()
		for {
			select {
			case <-m.stop:
				return
			case <-timer.C:
			}
			tick := now()
			m.observe(sample(tick.Sub(last)), smoothing)
			last = tick
			timer.Reset(interval)
		}
	}()
	return m
}

// NewTimerLag measures how late a timer is, as connect-qos does. In Go that shows
// a lack of processor time and long pauses, but little of a long run queue.
func NewTimerLag() *Meter {
	return startTimerLag(lagInterval, lagSmoothing, time.Now)
}

func startTimerLag(interval time.Duration, smoothing float64, now func() time.Time) *Meter {
	return startMeter(interval, smoothing, now, func(elapsed time.Duration) float64 {
		return lateness(elapsed, interval)
	})
}

// lateness is by how much, in ms, a timer was late.
func lateness(elapsed, interval time.Duration) float64 { return millis(max(0, elapsed-interval)) }
