package qos

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestClusterSyncsByItself(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &board{}
		l, err := New(Options{Cluster: &ClusterOptions{Store: store}})
		require.NoError(t, err)
		for n := range 3 {
			l.Decide(actor(l, "a.example", "192.0.2.1"))
			after(defaultSyncInterval - ms)
			require.Empty(t, store.taken(), "sync %d", n)
			after(ms)
			require.Len(t, store.taken(), 1, "sync %d", n)
		}
		l.Decide(actor(l, "a.example", "192.0.2.1"))
		require.NoError(t, l.Close())
		after(time.Minute)
		require.Empty(t, store.taken())
		l.Sync(t.Context())
		require.Len(t, store.taken(), 1, "when told to it publishes even then")
	})
}

// gate is a store whose calls wait.
type gate struct {
	publishing, reading chan context.Context
	goOn                chan struct{}
}

func (g *gate) Publish(ctx context.Context, _ *ClusterLimits, _ *Batch) error {
	g.publishing <- ctx
	select {
	case <-g.goOn:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (g *gate) Blocklists(ctx context.Context, _ *ClusterLimits, _ time.Time) (*Blocklists, error) {
	g.reading <- ctx
	<-ctx.Done()
	return nil, ctx.Err()
}

func newGate() *gate {
	return &gate{make(chan context.Context, 10), make(chan context.Context, 10), make(chan struct{})}
}

func TestCloseFinishesPublishing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newGate()
		l, err := New(Options{Cluster: &ClusterOptions{Store: store}})
		require.NoError(t, err)
		l.Decide(actor(l, "a.example", "192.0.2.1"))
		ctx := <-store.publishing
		l.Sync(t.Context())
		require.Empty(t, store.publishing, "a second one is skipped")
		closed := make(chan struct{})
		go func() {
			defer close(closed)
			_ = l.Close() // always nil
		}()
		synctest.Wait()
		require.NoError(t, ctx.Err())
		select {
		case <-closed:
			require.Fail(t, "closed with a batch under way")
		default:
		}
		store.goOn <- struct{}{}
		<-closed
		require.Empty(t, store.reading, "a node that has left reads nothing")
	})
}

// TestShutdownGivesUp: who has no more time does not wait for a store that hangs.
func TestShutdownGivesUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newGate()
		l, err := New(Options{Cluster: &ClusterOptions{Store: store}})
		require.NoError(t, err)
		l.Decide(actor(l, "a.example", "192.0.2.1"))
		publishing := <-store.publishing
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, l.Shutdown(ctx), context.DeadlineExceeded)
		require.Equal(t, time.Second, time.Since(begin))
		synctest.Wait()
		require.ErrorIs(t, publishing.Err(), context.Canceled)
		require.NoError(t, l.Close())
		require.Equal(t, time.Second, time.Since(begin))
	})
}

func TestCloseEndsReading(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newGate()
		l, err := New(Options{Cluster: &ClusterOptions{Store: store}})
		require.NoError(t, err)
		ctx := <-store.reading
		begin := time.Now()
		require.NoError(t, l.Close())
		require.ErrorIs(t, ctx.Err(), context.Canceled)
		require.Zero(t, time.Since(begin))
	})
}

// TestStoreThatHangs does not hold up decisions, nor the end.
func TestStoreThatHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newGate()
		var failed atomic.Int64
		l, err := New(Options{Cluster: &ClusterOptions{Store: store, OnError: func(error) { failed.Add(1) }}})
		require.NoError(t, err)
		l.Decide(actor(l, "a.example", "192.0.2.1"))
		<-store.publishing
		begin := time.Now()
		require.Equal(t, Pass, l.Decide(actor(l, "a.example", "192.0.2.1")))
		require.Zero(t, time.Since(begin))
		after(storeWait)
		require.EqualValues(t, 1, failed.Load())
		<-store.publishing
		require.NoError(t, l.Close())
		require.LessOrEqual(t, time.Since(begin), 2*storeWait+defaultSyncInterval)
	})
}
