package store

import "time"

// Bounds of the estimate of how long a group stays full.
const (
	// MaxFullFor bounds [AdmitResult.FullFor].
	MaxFullFor = 100 * time.Millisecond
	// MaxInterval bounds one observed interval between two places that freed,
	// so that a long quiet spell is soon forgotten.
	MaxInterval = time.Second
)

// Estimate is the free-place clock of one group: what is kept to guess when
// its next place frees. The Postgres functions keep the same two values in
// group_state (free_interval_ms, turned). The zero value knows nothing. It is
// not safe for concurrent use.
type Estimate struct {
	// Interval is the moving average of the time between two places that free
	// while the group is full.
	Interval time.Duration
	// Turned is when the group last freed a place or became full.
	Turned time.Time
}

// Filled records that the group became full.
func (e *Estimate) Filled(now time.Time) { e.Turned = now }

// Freed records that n places freed at once; full says that the group was full
// until then.
func (e *Estimate) Freed(now time.Time, n int, full bool) {
	if full && !e.Turned.IsZero() {
		sample := min(max(now.Sub(e.Turned), 0)/time.Duration(n), MaxInterval)
		if e.Interval == 0 {
			e.Interval = sample
		} else {
			e.Interval += (sample - e.Interval) / 4
		}
	}
	e.Turned = now
}

// FullFor returns how long an edge may take the group for full: half of the
// time in which a place is expected to free, in whole milliseconds up to
// [MaxFullFor]. A place is expected after the average interval or, if the
// group has been stuck for longer than that, after as long again.
func (e *Estimate) FullFor(now time.Time) time.Duration {
	if e.Turned.IsZero() {
		return 0
	}
	expected := max(e.Interval, now.Sub(e.Turned))
	return min(expected/2, MaxFullFor).Truncate(time.Millisecond)
}
