package redis_test

import (
	"context"
	"testing"
	"time"

	"github.com/ccnq/ccnq/pkg/qos"
	"github.com/stretchr/testify/require"
)

// TestOutage: the server is killed. Nodes go on with what they know, and nothing is lost
// or counts twice.
func TestOutage(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	var nodes []*qos.Limiter
	for range 3 {
		nodes = append(nodes, c.join(c.open(), qos.ClusterOptions{MaxIPRate: 10}))
	}
	hits := 0
	decideAll := func(address string, n int) {
		for _, l := range nodes {
			require.Equal(t, qos.Pass, decide(l, "a.example", address, n))
			hits += n
		}
	}
	decideAll("192.0.2.1", 40)
	c.requireSynced(nodes...)
	c.requireSynced(nodes...)

	c.server.Kill()
	decideAll("192.0.2.2", 20)
	for _, l := range nodes {
		l.Sync(t.Context())
	}
	require.Len(t, c.errors, 3)
	decideAll("192.0.2.2", 20)
	for _, l := range nodes {
		l.Sync(t.Context())
		require.Equal(t, qos.BadIP, decide(l, "a.example", "192.0.2.1", 1), "the last list is in force")
	}
	require.Len(t, c.errors, 6)

	c.server.Restart()
	c.errors = nil
	for range 2 {
		c.requireSynced(nodes...)
	}
	for _, l := range nodes {
		require.Equal(t, qos.BadIP, decide(l, "a.example", "192.0.2.2", 1))
	}
	c.requireCounted(hits)
}

// TestFrozenServer: a batch that a node has given up arrives after all, along with its
// repetition.
func TestFrozenServer(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	l := c.join(c.open(), qos.ClusterOptions{MaxIPRate: 10})
	c.requireSynced(l) // it has a connection
	decide(l, "a.example", "192.0.2.1", 40)
	c.server.Freeze()
	for n := range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		l.Sync(ctx)
		cancel()
		require.Len(t, c.errors, n+1)
	}
	c.server.Thaw()
	decide(l, "a.example", "192.0.2.1", 2)
	c.errors = nil
	c.requireSynced(l)
	c.requireCounted(42)
}

// TestPartOfABatchArrives: what has arrived does not count again, whatever it was, and
// also if the next window has begun.
func TestPartOfABatchArrives(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	const actors = 1300 // three parts of a kind
	for name, sends := range map[string]func(int) int{
		"nothing":   func(int) int { return 0 },
		"one":       func(int) int { return 1 },
		"half":      func(n int) int { return n / 2 },
		"all but 1": func(n int) int { return n - 1 },
		"all":       func(n int) int { return n },
	} {
		require.NoError(t, c.client.FlushDB(t.Context()).Err())
		client := c.open()
		hook := &spoil{armed: true, sends: sends}
		client.AddHook(hook)
		l := c.join(client, qos.ClusterOptions{MaxIPRate: 10})
		for n := range actors {
			decide(l, address(n), address(n), 1)
		}
		l.AddHits(qos.Subnet, "192.0.2.0", 7)
		for range 2 {
			l.Sync(t.Context())
			require.Len(t, c.errors, 1, name)
			require.ErrorIs(t, c.errors[0], errFault)
			c.errors = nil
			c.ms.Add(6000)
		}
		hook.armed = false
		c.requireSynced(l)
		require.InDelta(t, actors, c.sum("ip"), 0, name)
		require.InDelta(t, actors+7, c.sum("subnet"), 0, name)
		require.InDelta(t, actors, c.sum("host"), 0, name)
		require.Len(t, c.keys(), 4, "%s: all in the window of the batch", name)
	}
}

// TestKeyOfAnotherType: an error leaves no mark behind.
func TestKeyOfAnotherType(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	l := c.join(c.client, qos.ClusterOptions{MaxIPRate: 10})
	require.NoError(t, c.client.Set(t.Context(), "qos:ip:w170000000", "x", 0).Err())
	decide(l, "a.example", "192.0.2.1", 5)
	l.Sync(t.Context())
	require.Len(t, c.errors, 1)
	require.ErrorContains(t, c.errors[0], "WRONGTYPE")
	c.errors = nil
	require.NoError(t, c.client.Del(t.Context(), "qos:ip:w170000000").Err())
	c.requireSynced(l)
	c.requireCounted(5)
}
