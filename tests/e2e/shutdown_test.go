package e2e

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/tests/internal/await"
	"github.com/ccnq/ccnq/tests/internal/cluster"
	"github.com/ccnq/ccnq/tests/internal/origin"
	"github.com/ccnq/ccnq/tests/internal/scrape"
	"github.com/ccnq/ccnq/tests/internal/visitor"
)

// TestShutdown_InOrder: not ready but accepting, then drained, then what never
// ends by itself is cut, and every place is given back.
func TestShutdown_InOrder(t *testing.T) {
	t.Parallel()
	c := cluster.New(t, cluster.Options{Settings: limits("5", "5").With(noRepair)})
	e := c.StartEdge(t, cluster.Settings{"CCNQ_SHUTDOWN_DELAY_MS": "60000"})
	slow, slowPending := occupy(t, c, visitor.Request{Edge: e.URL, IP: alice})
	socket := upgraded(t, e, alice)
	events, err := c.Open(t.Context(), visitor.Request{Edge: e.URL, IP: alice, Do: origin.DoEvents})
	require.NoError(t, err)
	defer events.Body.Close()
	stream := c.Origin.Next(t)

	ready, _ := scrape.Ready(t, e.Admin)
	require.True(t, ready.Ready)
	endDelay, stopped := stopping(t, e)
	await.True(t, "the edge says that it is not ready", func() bool {
		ready, ok := scrape.Ready(t, e.Admin)
		return ok && !ready.Ready && ready.Status == 503
	})
	fresh := visitor.New(t) // a new connection
	require.Equal(t, served, fresh.Get(t, visitor.Request{Edge: e.URL, IP: bob}).Status, "still accepting")
	require.Empty(t, stopped, "the edge must not stop within the shutdown delay")

	// The delay ends with the context of Stop, and so does the drain: what is
	// under way is cut.
	endDelay()
	require.NoError(t, await.Value(t, "the end of the edge", stopped))
	require.True(t, socket.Ended(t))
	<-stream.Ended()
	<-slow.Ended()
	require.Error(t, slowPending.Answer(t).Err)
	active, waiting := c.Rows(t)
	require.Zero(t, active, "every place was given back before the edge ended")
	require.Zero(t, waiting)
	_, answers := scrape.Ready(t, e.Admin)
	require.False(t, answers)
}

// stopping begins to stop an edge. The function ends the time it has.
func stopping(t *testing.T, e *cluster.Edge) (end context.CancelFunc, stopped <-chan error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	done := make(chan error, 1)
	go func() { done <- e.Stop(ctx) }()
	return cancel, done
}

// TestShutdown_LetsRequestsFinish, those that wait in line too, while it does
// not wait for sockets and event streams.
func TestShutdown_LetsRequestsFinish(t *testing.T) {
	t.Parallel()
	c := cluster.New(t, cluster.Options{Settings: limits("3", "5").With(noRepair)})
	e := c.Edges[0]
	socket := upgraded(t, e, alice)
	resp, err := c.Open(t.Context(), visitor.Request{Edge: e.URL, IP: alice, Do: origin.DoEvents})
	require.NoError(t, err)
	defer resp.Body.Close()
	stream := c.Origin.Next(t)
	slow, slowPending := occupy(t, c, visitor.Request{IP: alice})
	inLine := c.Send(t.Context(), visitor.Request{Edge: e.URL, IP: bob, Do: origin.DoHold})
	c.Waiting(t, 1)

	_, stopped := stopping(t, e)
	await.True(t, "the edge accepts no more", func() bool {
		return visitor.New(t).Ask(t.Context(), visitor.Request{Edge: e.URL, IP: carol}).Err != nil
	})
	finish(t, slow, slowPending)
	finish(t, c.Origin.Next(t), inLine)
	require.NoError(t, await.Value(t, "the end of the edge", stopped))
	require.True(t, socket.Ended(t))
	<-stream.Ended()
	lines := e.Log.Lines(t, "drained")
	require.Len(t, lines, 1)
	require.InDelta(t, 0, lines[0]["cut_requests"], 0)
	require.InDelta(t, 1, lines[0]["cut_upgrades"], 0)
	require.InDelta(t, 1, lines[0]["cut_event_streams"], 0)
	active, waiting := c.Rows(t)
	require.Zero(t, active)
	require.Zero(t, waiting)
}

// TestShutdown_RollingFailsNobody replaces both edges and both coordinators
// under load, as a load balancer sees it: an edge that is not ready gets no new
// request. It runs before the parallel tests, see
// [TestLeaks_TenThousandRequests].
func TestShutdown_RollingFailsNobody(t *testing.T) {
	const visitors = 8
	c := cluster.New(t, cluster.Options{Edges: 2, Coordinators: 2, Settings: limits("3", "20").With(cluster.Settings{
		"CCNQ_SHUTDOWN_DELAY_MS": "5000",
	})})

	var mu sync.RWMutex
	inRotation := c.Edges[:2:2]
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	var counts [visitors]int
	failures := make(chan error, visitors)
	for i := range visitors {
		all.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				mu.RLock()
				e := inRotation[(i+n)%len(inRotation)]
				mu.RUnlock()
				answer := c.Ask(t.Context(), visitor.Request{
					Edge: e.URL, IP: fmt.Sprintf("2001:db8:0:%x::1", i%3), Do: origin.DoTake + "1ms",
				})
				if answer.Err != nil || answer.Status != served {
					failures <- fmt.Errorf("status %d: %w", answer.Status, answer.Err)
					return
				}
				counts[i]++
			}
		})
	}
	progress := func() {
		t.Helper()
		before := c.Origin.Total()
		await.True(t, "requests go on", func() bool { return c.Origin.Total() > before+50 || len(failures) > 0 })
	}
	for i := range 2 {
		progress()
		old := c.Edges[i]
		next := c.StartEdge(t, nil)
		_, stopped := stopping(t, old)
		await.True(t, "the load balancer sees that the edge is not ready", func() bool {
			ready, ok := scrape.Ready(t, old.Admin)
			return !ok || !ready.Ready
		})
		mu.Lock()
		inRotation = append(inRotation[:0:0], inRotation...)
		inRotation[i] = next
		mu.Unlock()
		require.NoError(t, await.Value(t, "the end of the edge", stopped))
		progress()
		c.StartCoordinator(t, nil)
		cluster.Stop(t, c.Coordinators[i])
	}
	progress()
	cancel()
	all.Wait()
	close(failures)
	for err := range failures {
		require.NoError(t, err)
	}
	require.LessOrEqual(t, c.Origin.MaxOfAll(), 3)
	c.Edges = c.Edges[2:]
	require.Empty(t, undecided(t, c))
	c.NothingLeft(t)
}
