package sweep

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/pkg/wire"
	"github.com/ccnq/ccnq/services/queue-coordinator/internal/store"
	"github.com/ccnq/ccnq/services/queue-coordinator/internal/store/memstore"
)

var limits = store.Limits{MaxServed: 1, MaxPending: 5, Lease: 5 * time.Second, StaleActive: 5 * time.Minute}

// sweeping is a sweeper at work on a memory store, in a synctest bubble.
type sweeping struct {
	*Sweeper
	*counting
	pingErr  atomic.Pointer[error]
	promoted chan store.Promotion
	cancel   context.CancelFunc
	done     sync.WaitGroup
}

func start(t *testing.T) *sweeping {
	t.Helper()
	s := &sweeping{promoted: make(chan store.Promotion, 100)}
	s.counting = &counting{Store: memstore.New(time.Now, func(promotions []store.Promotion) {
		for _, p := range promotions {
			s.promoted <- p
		}
	})}
	s.Sweeper = New(Options{
		Store: s.counting, Limits: limits, Every: time.Minute, IdleGroup: time.Hour,
		Ping: func(context.Context) error {
			if err := s.pingErr.Load(); err != nil {
				return *err
			}
			return nil
		},
		Logger: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry(),
	})
	ctx, cancel := context.WithCancel(t.Context())
	s.cancel = cancel
	s.done.Go(func() { s.Run(ctx) })
	return s
}

func (s *sweeping) stop() {
	s.cancel()
	s.done.Wait()
	s.Close()
}

func (s *sweeping) admit(edge string, n byte) (decision wire.Decision) {
	item := store.AdmitItem{Item: store.Item{ID: wire.RequestID{15: n}, Group: "g", EdgeID: edge}}
	s.Admit(context.Background(), limits, []store.AdmitItem{item}, func(_ int, r store.AdmitResult) { decision = r.Decision })
	return decision
}

// status is one status of an edge with what it has.
func (s *sweeping) status(t *testing.T, edge string, waiting, active []wire.RequestID) {
	t.Helper()
	_, err := s.Status(t.Context(), limits, store.Status{EdgeID: edge, Epoch: 1, Waiting: waiting, Active: active})
	require.NoError(t, err)
}

func (s *sweeping) ping(err error) { s.pingErr.Store(&err) }

// counting counts the calls of sweeps.
type counting struct {
	store.Store
	reclaims, reconciles, prunes atomic.Int64
}

func (c *counting) ReclaimDead(ctx context.Context, l store.Limits) (store.Swept, error) {
	c.reclaims.Add(1)
	return c.Store.ReclaimDead(ctx, l)
}

func (c *counting) ReconcileStale(ctx context.Context, l store.Limits) (store.Swept, error) {
	c.reconciles.Add(1)
	return c.Store.ReconcileStale(ctx, l)
}

func (c *counting) PruneIdle(ctx context.Context, age time.Duration) (int, error) {
	c.prunes.Add(1)
	return c.Store.PruneIdle(ctx, age)
}

func TestDeadEdgeGivesItsPlaceToTheNextInLine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := start(t)
		<-time.After(time.Minute) // past the first lease
		require.False(t, s.Suspended())
		require.Equal(t, wire.Admitted, s.admit("dead", 1))
		require.Equal(t, wire.Queued, s.admit("live", 2))
		died := time.Now()
		for len(s.promoted) == 0 {
			s.status(t, "live", []wire.RequestID{{15: 2}}, nil)
			<-time.After(500 * time.Millisecond)
		}
		require.Equal(t, wire.RequestID{15: 2}, (<-s.promoted).ID)
		took := time.Since(died)
		require.Greater(t, took, 4*time.Second)
		require.LessOrEqual(t, took, 7*time.Second)
		require.InDelta(t, 1, testutil.ToFloat64(s.metrics.reclaimed.WithLabelValues("dead")), 0)
		s.stop()
	})
}

func TestNothingIsReclaimedInTheFirstLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := start(t)
		<-time.After(limits.Lease - time.Millisecond)
		synctest.Wait()
		require.True(t, s.Suspended())
		require.Zero(t, s.reclaims.Load())
		<-time.After(limits.Lease)
		synctest.Wait()
		require.Positive(t, s.reclaims.Load())
		s.stop()
	})
}

func TestReclaimIsSuspendedWhileNATSIsAwayAndOneLeaseLonger(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := start(t)
		<-time.After(time.Minute)
		require.Equal(t, wire.Admitted, s.admit("cut off", 1))
		s.ping(errors.New("no answer"))
		<-time.After(10 * time.Minute)
		synctest.Wait()
		require.True(t, s.Suspended())
		before, reconciles := s.reclaims.Load(), s.reconciles.Load()
		s.ping(nil)
		<-time.After(limits.Lease - 2*time.Second)
		synctest.Wait()
		require.True(t, s.Suspended())
		require.Equal(t, before, s.reclaims.Load())
		require.Equal(t, reconciles, s.reconciles.Load(), "nor is it judged by age")
		s.status(t, "cut off", nil, []wire.RequestID{{15: 1}})
		<-time.After(4 * time.Second)
		synctest.Wait()
		require.False(t, s.Suspended())
		require.Greater(t, s.reclaims.Load(), before)
		totals, err := s.Totals(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, totals.Active, "the edge kept its place")
		s.stop()
	})
}

func TestInterruptionSuspendsForOneLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := start(t)
		<-time.After(time.Minute)
		s.Interrupted()
		<-time.After(limits.Lease - time.Nanosecond)
		require.True(t, s.Suspended())
		<-time.After(time.Nanosecond)
		require.False(t, s.Suspended())
		s.stop()
	})
}

// TestAGapBetweenBeatsSuspends plays a process that was stopped for a while:
// the last beat lies in the past when the next reclaim is due.
func TestAGapBetweenBeatsSuspends(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := start(t)
		<-time.After(time.Minute + time.Millisecond)
		synctest.Wait()
		before := s.reclaims.Load()
		s.beat.Add(-int64(frozen))
		s.reclaim(t.Context(), time.Second)
		require.True(t, s.Suspended())
		require.Equal(t, before, s.reclaims.Load())
		s.stop()
	})
}

func TestSweepsAtItsInterval(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := start(t)
		<-time.After(10*time.Minute + time.Second)
		synctest.Wait()
		require.EqualValues(t, 10, s.reconciles.Load())
		require.EqualValues(t, 10, s.prunes.Load())
		s.stop()
	})
}

func TestPromotesAtStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		promoted := make(chan store.Promotion, 1)
		m := memstore.New(time.Now, func(p []store.Promotion) { promoted <- p[0] })
		low := limits
		low.MaxServed = 1
		for n := range byte(2) {
			m.Admit(t.Context(), low, []store.AdmitItem{{Item: store.Item{ID: wire.RequestID{15: n + 1}, Group: "g", EdgeID: "e"}}},
				func(int, store.AdmitResult) {})
		}
		raised := limits
		raised.MaxServed, raised.Lease = 2, time.Minute
		s := New(Options{
			Store: m, Limits: raised, Every: time.Minute, IdleGroup: time.Hour,
			Ping:   func(context.Context) error { return nil },
			Logger: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry(),
		})
		ctx, cancel := context.WithCancel(t.Context())
		var done sync.WaitGroup
		done.Go(func() { s.Run(ctx) })
		require.Equal(t, wire.RequestID{15: 2}, (<-promoted).ID)
		<-time.After(sampleEvery)
		synctest.Wait()
		require.InDelta(t, 2, testutil.ToFloat64(s.metrics.active), 0)
		cancel()
		done.Wait()
	})
}

func TestFailuresAreCountedAndRepeated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := start(t)
		s.Close() // every call fails from now on
		<-time.After(time.Minute)
		synctest.Wait()
		require.Greater(t, testutil.ToFloat64(s.metrics.failures), 10.0)
		s.stop()
	})
}
