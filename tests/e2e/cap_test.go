package e2e

import (
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/tests/internal/await"
	"github.com/ccnq/ccnq/tests/internal/cluster"
	"github.com/ccnq/ccnq/tests/internal/origin"
	"github.com/ccnq/ccnq/tests/internal/visitor"
)

// TestF17_MoreThanTheLimitUnderARace is the first half of F17: the other, with
// an edge that is killed, needs processes and is in package faults. It runs
// before the parallel tests, see [TestLeaks_TenThousandRequests].
func TestF17_MoreThanTheLimitUnderARace(t *testing.T) {
	const requests, served = 200, 10
	c := cluster.New(t, cluster.Options{
		Edges: 2, Coordinators: 2,
		Settings: limits("10", "60").With(cluster.Settings{"CCNQ_QUEUE_PENDING_TIMEOUT_MS": "700"}),
	})
	answers := make([]visitor.Answer, requests)
	var all sync.WaitGroup
	for i := range requests {
		all.Go(func() {
			answers[i] = c.Ask(t.Context(), visitor.Request{
				Edge: c.Edges[i%2].URL, IP: fmt.Sprintf("203.0.113.%d", i), Do: origin.DoTake + "200ms",
			})
		})
	}
	all.Wait()

	byStatus := map[int]int{}
	for _, a := range answers {
		require.NoError(t, a.Err)
		byStatus[a.Status]++
	}
	require.Empty(t, undecided(t, c))
	require.LessOrEqual(t, c.Origin.Max(visitor.Group(alice)), served, "requests at once")
	require.Equal(t, requests, byStatus[http.StatusOK]+byStatus[http.StatusTooManyRequests], "%v", byStatus)
	require.Equal(t, byStatus[http.StatusOK], c.Origin.Total())
	c.NothingLeft(t)
	await.True(t, "every request is counted", func() bool {
		return verdicts(t, c, "admitted")+verdicts(t, c, "promoted") == byStatus[http.StatusOK] &&
			verdicts(t, c, "queue-full")+verdicts(t, c, "queue-timeout") == byStatus[http.StatusTooManyRequests]
	})
}

// TestCap_HoldsForEachGroupAlone sends more than there is room for, from
// several groups, and nobody is refused because of another group. It runs
// before the parallel tests, see [TestLeaks_TenThousandRequests].
func TestCap_HoldsForEachGroupAlone(t *testing.T) {
	const groups, each, served = 8, 40, 3
	c := cluster.New(t, cluster.Options{Edges: 2, Coordinators: 2, Settings: limits("3", "40")})
	var all sync.WaitGroup
	answers := make([]visitor.Answer, groups*each)
	for i := range answers {
		all.Go(func() {
			answers[i] = c.Ask(t.Context(), visitor.Request{
				Edge: c.Edges[i%2].URL, IP: fmt.Sprintf("2001:db8:0:%x::%x", i%groups, i), Do: origin.DoTake + "5ms",
			})
		})
	}
	all.Wait()
	for _, a := range answers {
		require.NoError(t, a.Err)
		require.Equal(t, http.StatusOK, a.Status)
	}
	for g := range groups {
		require.LessOrEqual(t, c.Origin.Max(visitor.Group(fmt.Sprintf("2001:db8:0:%x::1", g))), served)
	}
	c.NothingLeft(t)
}

func TestOrder_FirstComeFirstServedOverBothEdges(t *testing.T) {
	t.Parallel()
	const waiting = 12
	c := cluster.New(t, cluster.Options{Edges: 2, Coordinators: 2, Settings: limits("1", "20")})
	first, firstPending := occupy(t, c, visitor.Request{IP: alice, Mark: "first"})
	want := []string{"first"}
	var pending []*visitor.Pending
	for i := range waiting {
		mark := fmt.Sprintf("waiting %d", i)
		want = append(want, mark)
		// Runs of one edge and changes between both.
		pending = append(pending, c.Send(t.Context(), visitor.Request{
			Edge: c.Edges[i/2%2].URL, IP: fmt.Sprintf("203.0.113.%d", 100+i), Do: origin.DoHold, Mark: mark,
		}))
		c.Waiting(t, i+1)
	}
	finish(t, first, firstPending)
	for _, p := range pending {
		finish(t, c.Origin.Next(t), p)
	}
	require.Equal(t, want, c.Origin.Order())
	require.Equal(t, 1, c.Origin.Max(visitor.Group(alice)))
	c.NothingLeft(t)
}

// TestOrder_NewcomersDoNotOvertake: while somebody waits, a free place is his.
func TestOrder_NewcomersDoNotOvertake(t *testing.T) {
	t.Parallel()
	const rounds = 30
	c := cluster.New(t, cluster.Options{Edges: 2, Coordinators: 2, Settings: limits("1", "20")})
	current, currentPending := occupy(t, c, visitor.Request{IP: alice, Mark: "0"})
	for i := 1; i <= rounds; i++ {
		waits := c.Send(t.Context(), visitor.Request{
			Edge: c.Edges[i%2].URL, IP: bob, Do: origin.DoHold, Mark: fmt.Sprint(i),
		})
		c.Waiting(t, 1)
		// The newcomer of another edge comes as the place gets free.
		newcomer := make(chan visitor.Answer, 1)
		go func() {
			newcomer <- c.Ask(t.Context(), visitor.Request{Edge: c.Edges[(i+1)%2].URL, IP: alice, Mark: "newcomer"})
		}()
		finish(t, current, currentPending)
		current, currentPending = c.Origin.Next(t), waits
		require.Equal(t, fmt.Sprint(i), current.Mark)
		finish(t, current, currentPending)
		answer := <-newcomer
		require.NoError(t, answer.Err)
		require.Equal(t, http.StatusOK, answer.Status)
		current, currentPending = occupy(t, c, visitor.Request{IP: alice, Mark: "0"})
	}
	finish(t, current, currentPending)
	require.Equal(t, 1, c.Origin.Max(visitor.Group(alice)))
}
