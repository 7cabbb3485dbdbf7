package guard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/services/queue-coordinator/internal/store"
)

var errGone = errors.New("connection reset by peer")

// fakeStore answers every call with one error, which the test may change.
type fakeStore struct {
	err   atomic.Pointer[error]
	calls atomic.Int64
}

func (f *fakeStore) set(err error) { f.err.Store(&err) }

func (f *fakeStore) get() error {
	f.calls.Add(1)
	if err := f.err.Load(); err != nil {
		return *err
	}
	return nil
}

func (f *fakeStore) Admit(_ context.Context, _ store.Limits, items []store.AdmitItem, done func(int, store.AdmitResult)) {
	for i := range items {
		done(i, store.AdmitResult{Err: f.get()})
	}
}

func (f *fakeStore) Cancel(_ context.Context, _ store.Limits, items []store.Item, done func(int, store.CancelResult)) {
	for i := range items {
		done(i, store.CancelResult{Err: f.get()})
	}
}

func (f *fakeStore) Release(_ context.Context, _ store.Limits, items []store.Item, done func(int, error)) {
	for i := range items {
		done(i, f.get())
	}
}

func (f *fakeStore) Close() {}

func (f *fakeStore) PromoteWaiting(context.Context, store.Limits) error { return f.get() }

func (f *fakeStore) PruneIdle(context.Context, time.Duration) (int, error) { return 0, f.get() }

func (f *fakeStore) ReclaimDead(context.Context, store.Limits) (store.Swept, error) {
	return store.Swept{}, f.get()
}

func (f *fakeStore) ReconcileStale(context.Context, store.Limits) (store.Swept, error) {
	return store.Swept{}, f.get()
}

func (f *fakeStore) Status(context.Context, store.Limits, store.Status) (store.StatusResult, error) {
	return store.StatusResult{}, f.get()
}

func (f *fakeStore) Totals(context.Context) (store.Totals, error) { return store.Totals{}, f.get() }

// guarding is a guard of a fake store, with what it did.
type guarding struct {
	*Store
	fake     *fakeStore
	pings    atomic.Int64
	restores atomic.Int64
	changes  atomic.Int64
	ping     atomic.Pointer[error] // what a ping and a restore answer
}

func newGuarding() *guarding {
	g := &guarding{fake: new(fakeStore)}
	answer := func() error {
		if err := g.ping.Load(); err != nil {
			return *err
		}
		return nil
	}
	g.Store = New(Options{
		Store:    g.fake,
		Ping:     func(context.Context) error { g.pings.Add(1); return answer() },
		Restore:  func(context.Context) error { g.restores.Add(1); return answer() },
		OnChange: func() { g.changes.Add(1) },
		Logger:   slog.New(slog.DiscardHandler),
		Registry: prometheus.NewRegistry(),
	})
	return g
}

// away makes the store, pings and restores fail, or work again.
func (g *guarding) away(err error) {
	g.fake.set(err)
	g.ping.Store(&err)
}

// all makes every call once and returns the errors.
func (g *guarding) all() (errs []error) {
	ctx, limits := context.Background(), store.Limits{}
	g.Admit(ctx, limits, make([]store.AdmitItem, 1), func(_ int, r store.AdmitResult) { errs = append(errs, r.Err) })
	g.Cancel(ctx, limits, make([]store.Item, 1), func(_ int, r store.CancelResult) { errs = append(errs, r.Err) })
	g.Release(ctx, limits, make([]store.Item, 1), func(_ int, err error) { errs = append(errs, err) })
	_, err := g.Status(ctx, limits, store.Status{})
	errs = append(errs, err, g.PromoteWaiting(ctx, limits))
	_, err = g.PruneIdle(ctx, 0)
	errs = append(errs, err)
	_, err = g.ReclaimDead(ctx, limits)
	errs = append(errs, err)
	_, err = g.ReconcileStale(ctx, limits)
	errs = append(errs, err)
	_, err = g.Totals(ctx)
	return append(errs, err)
}

func TestPassesCallsOn(t *testing.T) {
	t.Parallel()
	g := newGuarding()
	defer g.Close()
	for _, err := range g.all() {
		require.NoError(t, err)
	}
	g.fake.set(store.ErrBusy)
	for _, err := range g.all() {
		require.ErrorIs(t, err, store.ErrBusy)
	}
	require.True(t, g.Up())
	require.EqualValues(t, 18, g.fake.calls.Load())
}

func TestLostStoreIsNotAskedUntilItIsBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGuarding()
		g.away(errGone)
		g.Admit(t.Context(), store.Limits{}, make([]store.AdmitItem, 3), func(_ int, r store.AdmitResult) {
			require.ErrorIs(t, r.Err, errGone)
		})
		require.False(t, g.Up())
		asked := g.fake.calls.Load()
		for _, err := range g.all() {
			require.ErrorIs(t, err, ErrUnavailable)
		}
		require.Equal(t, asked, g.fake.calls.Load())

		<-time.After(time.Minute)
		synctest.Wait()
		require.False(t, g.Up())
		require.Greater(t, g.restores.Load(), int64(25))
		require.Less(t, g.restores.Load(), int64(40), "every two seconds at last")
		require.EqualValues(t, 1, g.changes.Load(), "said once")

		g.away(nil)
		<-time.After(maxDelay)
		synctest.Wait()
		require.True(t, g.Up())
		require.EqualValues(t, 2, g.changes.Load())
		for _, err := range g.all() {
			require.NoError(t, err)
		}
		g.Close()
	})
}

func TestFirstRestoreIsTriedAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGuarding()
		g.fake.set(errGone)
		start := time.Now()
		require.ErrorIs(t, g.PromoteWaiting(t.Context(), store.Limits{}), errGone)
		synctest.Wait()
		require.True(t, g.Up(), "one broken connection is no outage")
		require.Equal(t, start, time.Now())

		// A store that can be restored and fails again is not tried without end.
		for range 10 {
			_ = g.PromoteWaiting(t.Context(), store.Limits{})
			<-time.After(minDelay)
			synctest.Wait()
		}
		require.Less(t, g.restores.Load(), int64(6))
		g.Close()
	})
}

func TestTimeoutIsLookedInto(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGuarding()
		g.fake.set(store.ErrExpired)
		require.ErrorIs(t, g.PromoteWaiting(t.Context(), store.Limits{}), store.ErrExpired)
		synctest.Wait()
		require.True(t, g.Up(), "a slow call is no outage")
		require.EqualValues(t, 1, g.pings.Load())
		require.Zero(t, g.changes.Load())

		g.away(context.DeadlineExceeded)
		require.Error(t, g.PromoteWaiting(t.Context(), store.Limits{}))
		synctest.Wait()
		require.False(t, g.Up(), "nor does the ping come back")
		g.Close()
	})
}

func TestCloseEndsTheWatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGuarding()
		g.away(errGone)
		require.Error(t, g.PromoteWaiting(t.Context(), store.Limits{}))
		g.Close()
		restores := g.restores.Load()
		require.Error(t, g.PromoteWaiting(t.Context(), store.Limits{}))
		<-time.After(time.Minute)
		require.Equal(t, restores, g.restores.Load())
	})
}

func TestMemoryIsNeverAway(t *testing.T) {
	t.Parallel()
	fake := new(fakeStore)
	fake.set(errGone)
	s := New(Options{Store: fake, Logger: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry()})
	defer s.Close()
	require.ErrorIs(t, s.PromoteWaiting(t.Context(), store.Limits{}), errGone)
	require.True(t, s.Up())
}

func TestClassify(t *testing.T) {
	t.Parallel()
	sql := func(code string) error { return fmt.Errorf("queue admit: %w", &pgconn.PgError{Code: code}) }
	for _, test := range []struct {
		err  error
		want class
	}{
		{store.ErrBusy, fine},
		{store.ErrForeign, fine},
		{store.ErrClosed, fine},
		{ErrUnavailable, fine},
		{context.Canceled, fine},
		{fmt.Errorf("%w: late", store.ErrExpired), suspect},
		{context.DeadlineExceeded, suspect},
		{sql("57014"), suspect},
		{errGone, lost},
		{sql("08006"), lost},
		{sql("53300"), lost},
		{sql("57P01"), lost},
		{sql("57P03"), lost},
		{sql("28P01"), lost},
		{sql("42883"), lost},
		{sql("3F000"), lost},
		{fmt.Errorf("%w: outcome", store.ErrAnswer), failed},
		{sql("22003"), failed},
		{sql("42501"), failed},
	} {
		require.Equal(t, test.want, classify(test.err), "%v", test.err)
	}
}
