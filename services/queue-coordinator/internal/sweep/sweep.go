package sweep

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ccnq/ccnq/services/queue-coordinator/internal/store"
)

const (
	// beatEvery is the time between two beats, and frozen the gap between
	// them that shows that the process stood still.
	beatEvery = 250 * time.Millisecond
	frozen    = time.Second + beatEvery
	// pingTimeout bounds the ping of NATS before a reclaim.
	pingTimeout = 500 * time.Millisecond
	// sampleEvery is how often the totals are taken.
	sampleEvery = 5 * time.Second
	// callTimeout bounds every other call of the store.
	callTimeout = 5 * time.Second
)

// Options say what is swept, and how often.
type Options struct {
	Store  store.Store
	Limits store.Limits
	// Every is the time between two sweeps for stale rows and idle groups.
	Every time.Duration
	// IdleGroup is how long a group may be idle before it is forgotten.
	IdleGroup time.Duration
	// Ping reports whether NATS answers.
	Ping     func(context.Context) error
	Logger   *slog.Logger
	Registry prometheus.Registerer
}

// Sweeper frees what edges left behind.
type Sweeper struct {
	opts    Options
	metrics *metrics
	born    time.Time
	// Both on the monotonic clock, as nanoseconds after born: when edges were
	// last cut off, as far as is known, and the last beat.
	quiet, beat atomic.Int64
}

// New returns a sweeper that has not begun.
func New(opts Options) *Sweeper {
	s := &Sweeper{opts: opts, born: time.Now()}
	s.metrics = newMetrics(opts.Registry, s.Suspended)
	return s
}

// Interrupted says that edges may have been cut off until now. Nothing is
// reclaimed for one lease. It is safe for concurrent use and does not block.
func (s *Sweeper) Interrupted() { s.quiet.Store(int64(time.Since(s.born))) }

// Suspended reports whether nothing may be reclaimed at the moment.
func (s *Sweeper) Suspended() bool {
	return time.Since(s.born)-time.Duration(s.quiet.Load()) < s.opts.Limits.Lease
}

// Run sweeps until ctx ends. It promotes first, in case a limit was raised
// since the last run. It must be called once.
func (s *Sweeper) Run(ctx context.Context) {
	s.beat.Store(int64(time.Since(s.born)))
	s.Interrupted()
	var loops sync.WaitGroup
	defer loops.Wait()
	loops.Go(func() { every(ctx, beatEvery, s.stoodStill) })
	loops.Go(func() {
		tick := s.opts.Limits.Lease / 5
		every(ctx, tick, func() { s.reclaim(ctx, tick) })
	})
	loops.Go(func() {
		s.promote(ctx)
		every(ctx, s.opts.Every, func() { s.sweep(ctx) })
	})
	loops.Go(func() {
		s.sample(ctx)
		every(ctx, sampleEvery, func() { s.sample(ctx) })
	})
}

// every calls f at intervals, one call at a time, until ctx ends.
func every(ctx context.Context, interval time.Duration, f func()) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			f()
		}
	}
}

// stoodStill notices if the process did not run for a while. After such a gap
// nobody can tell which goroutine runs first, so it is called both at regular
// intervals and right before anything is taken away.
func (s *Sweeper) stoodStill() {
	now := time.Since(s.born)
	gap := now - time.Duration(s.beat.Swap(int64(now)))
	if gap <= frozen {
		return
	}
	s.Interrupted()
	s.opts.Logger.Warn("this process stood still; dead edges are not looked for during one lease",
		"seconds", gap.Seconds())
}

// reclaim frees the places of edges whose lease has expired. Its context ends
// soon, so that a process that is stopped between the checks and the call does
// not make the call when it goes on.
func (s *Sweeper) reclaim(ctx context.Context, within time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if !s.heard(ctx) {
		return
	}
	swept, err := s.opts.Store.ReclaimDead(ctx, s.opts.Limits)
	s.done("dead", swept, err)
}

// heard reports whether every edge could have renewed its lease during the
// last one.
func (s *Sweeper) heard(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	if s.opts.Ping(ctx) != nil {
		s.Interrupted()
	}
	s.stoodStill()
	return !s.Suspended()
}

// sweep corrects what nothing else has.
func (s *Sweeper) sweep(ctx context.Context) {
	if s.heard(ctx) {
		bounded(ctx, func(ctx context.Context) {
			swept, err := s.opts.Store.ReconcileStale(ctx, s.opts.Limits)
			s.done("stale", swept, err)
		})
	}
	s.promote(ctx)
	bounded(ctx, func(ctx context.Context) {
		pruned, err := s.opts.Store.PruneIdle(ctx, s.opts.IdleGroup)
		s.metrics.failed(err)
		s.metrics.pruned.Add(float64(pruned))
	})
}

func (s *Sweeper) promote(ctx context.Context) {
	bounded(ctx, func(ctx context.Context) {
		s.metrics.failed(s.opts.Store.PromoteWaiting(ctx, s.opts.Limits))
	})
}

func (s *Sweeper) sample(ctx context.Context) {
	bounded(ctx, func(ctx context.Context) {
		totals, err := s.opts.Store.Totals(ctx)
		if err != nil {
			s.metrics.failed(err)
			return
		}
		s.metrics.active.Set(float64(totals.Active))
		s.metrics.waiting.Set(float64(totals.Waiting))
		s.metrics.groups.Set(float64(totals.Groups))
	})
}

// done counts and logs what a call freed.
func (s *Sweeper) done(reason string, swept store.Swept, err error) {
	s.metrics.failed(err)
	if swept == (store.Swept{}) {
		return
	}
	s.metrics.reclaimed.WithLabelValues(reason).Add(float64(swept.Freed))
	s.metrics.corrected.Add(float64(swept.Corrected))
	s.opts.Logger.Warn("freed what edges left behind", "reason", reason,
		"requests", swept.Freed, "groups_corrected", swept.Corrected)
}

func bounded(ctx context.Context, call func(context.Context)) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	call(ctx)
}
