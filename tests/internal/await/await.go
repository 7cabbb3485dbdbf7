// Package await lets tests wait for something to happen: for a value on a
// channel, or for a condition that only looking can tell. Nothing here is a
// measurement: the limit is far above what is expected, so that a slow machine
// does not fail a test.
package await

import (
	"testing"
	"time"
)

const (
	// Limit is how long a test waits before it gives up.
	Limit = 90 * time.Second
	// interval is the pause between two looks at a condition.
	interval = 5 * time.Millisecond
)

// True returns once cond has returned true. It fails the test if that takes
// longer than [Limit]. Cond runs in the test's goroutine.
func True(t testing.TB, what string, cond func() bool) {
	t.Helper()
	Within(t, Limit, what, cond)
}

// Within is [True] with a limit that the software promises.
func Within(t testing.TB, limit time.Duration, what string, cond func() bool) {
	t.Helper()
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for !cond() {
		select {
		case <-ticker.C:
		case <-deadline.C:
			if cond() {
				return
			}
			t.Fatalf("did not happen within %s: %s", limit, what)
		}
	}
}

// Value returns the next value of a channel. It fails the test if none comes
// within [Limit].
func Value[T any](t testing.TB, what string, from <-chan T) T {
	t.Helper()
	deadline := time.NewTimer(Limit)
	defer deadline.Stop()
	select {
	case v := <-from:
		return v
	case <-deadline.C:
		t.Fatalf("did not come within %s: %s", Limit, what)
		panic("unreachable")
	}
}
