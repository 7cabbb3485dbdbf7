package rpc

import (
	"context"
	"sync/atomic"
	"time"
)

const (
	// beatEvery is the time between two beats, and stillAfter the time without
	// one from which the process is taken to have stood still. Any admit that
	// waited for so long has been given up by its edge.
	beatEvery  = 100 * time.Millisecond
	stillAfter = time.Second
	// backlog is for how long after such a gap what comes in may have waited in
	// the buffers of the connection.
	backlog = 500 * time.Millisecond
)

// pulse notices that the process stood still: that it was stopped by a signal,
// or its machine was. Messages that came in meanwhile look as if they had come
// in just now, but nobody waits for their answer any more. It is safe for
// concurrent use.
type pulse struct {
	began time.Time
	// Both as nanoseconds after began, on the monotonic clock.
	beat, until atomic.Int64
}

func newPulse() *pulse { return &pulse{began: time.Now()} }

// run beats until ctx ends.
func (p *pulse) run(ctx context.Context) {
	ticker := time.NewTicker(beatEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			now := time.Since(p.began)
			p.stoodStill(now)
			p.beat.Store(int64(now))
		}
	}
}

// stale reports whether what is read now may be old.
func (p *pulse) stale() bool {
	now := time.Since(p.began)
	return p.stoodStill(now) || int64(now) < p.until.Load()
}

func (p *pulse) stoodStill(now time.Duration) bool {
	if now-time.Duration(p.beat.Load()) < stillAfter {
		return false
	}
	p.until.Store(int64(now + backlog))
	return true
}
