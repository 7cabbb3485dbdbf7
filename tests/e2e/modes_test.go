package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/tests/internal/await"
	"github.com/ccnq/ccnq/tests/internal/cluster"
	"github.com/ccnq/ccnq/tests/internal/origin"
	"github.com/ccnq/ccnq/tests/internal/scrape"
	"github.com/ccnq/ccnq/tests/internal/visitor"
)

// TestMonitor_CountsAndRefusesNobody: the verdicts are those of enforcing.
func TestMonitor_CountsAndRefusesNobody(t *testing.T) {
	t.Parallel()
	c := cluster.New(t, cluster.Options{Edges: 2, Settings: limits("1", "1").With(noRepair).With(cluster.Settings{
		"CCNQ_QUEUE_MODE": "monitor", "CCNQ_QUEUE_MAX_ACTIVE_DURATION_MS": "1",
	})})
	var held []*origin.Arrival
	var pending []*visitor.Pending
	for i := range 4 {
		a, p := occupy(t, c, visitor.Request{Edge: c.Edges[i%2].URL, IP: alice})
		held, pending = append(held, a), append(pending, p)
	}
	active, waiting := c.Rows(t)
	require.Equal(t, 1, active)
	require.Equal(t, 1, waiting, "what would be refused is not recorded")
	for i := range held {
		finish(t, held[i], pending[i])
	}
	requireVerdicts(t, c, 1, "admitted")
	requireVerdicts(t, c, 1, "would-wait")
	requireVerdicts(t, c, 2, "would-deny")
	require.Zero(t, verdicts(t, c, "queue-full"))
	c.NothingLeft(t)
}

// TestFallbackLocal_CountsAloneAndComesBack: without coordinators each edge
// keeps the limits it last saw, and tells the store what it let in. It runs
// before the parallel tests, see [TestLeaks_TenThousandRequests].
func TestFallbackLocal_CountsAloneAndComesBack(t *testing.T) {
	c := cluster.New(t, cluster.Options{Settings: limits("2", "1").With(cluster.Settings{"CCNQ_QUEUE_LEASE_MS": "600000"})})
	e := c.StartEdge(t, limits("7", "7").With(cluster.Settings{"CCNQ_QUEUE_FALLBACK": "local"}))
	before, beforePending := occupy(t, c, visitor.Request{Edge: e.URL, IP: alice}) // tells the edge the limits
	cluster.Stop(t, c.Coordinators[0])
	e.Degraded(t)

	local, localPending := occupy(t, c, visitor.Request{Edge: e.URL, IP: bob})
	require.InEpsilon(t, 2.0, scrape.Get(t, e.Admin).Value(t, "ccnq_queue_held"), 0)
	// Of two more, one waits and one is refused.
	third := c.Send(t.Context(), visitor.Request{Edge: e.URL, IP: bob, Do: origin.DoHold, Mark: "third"})
	fourth := c.Send(t.Context(), visitor.Request{Edge: e.URL, IP: bob, Do: origin.DoHold, Mark: "third"})
	await.True(t, "one is refused", func() bool { return third.Answered() || fourth.Answered() })
	if third.Answered() {
		third, fourth = fourth, third
	}
	require.Equal(t, refused, fourth.Answer(t).Status)
	require.Equal(t, 2, c.Origin.Now(visitor.Group(alice)))

	finish(t, before, beforePending)
	thirdHeld := c.Origin.Next(t)
	require.Equal(t, "third", thirdHeld.Mark)
	require.Equal(t, 2, c.Origin.Max(visitor.Group(alice)))

	c.StartCoordinator(t, nil)
	e.Decides(t)
	c.Active(t, 2) // the store knows what the edge let in
	fifth := c.Send(t.Context(), visitor.Request{Edge: e.URL, IP: alice})
	c.Waiting(t, 1)
	finish(t, local, localPending)
	require.Equal(t, served, fifth.Answer(t).Status)
	finish(t, thirdHeld, third)
	require.Equal(t, 2, c.Origin.Max(visitor.Group(alice)))
	require.Empty(t, undecided(t, c))
	c.NothingLeft(t)
}

// TestOpen_WithoutCoordinatorsEverythingPasses is the default.
func TestOpen_WithoutCoordinatorsEverythingPasses(t *testing.T) {
	t.Parallel()
	c := cluster.New(t, cluster.Options{Settings: limits("1", "0")})
	cluster.Stop(t, c.Coordinators[0])
	e := c.Edges[0]
	twoAtOnce := func() {
		t.Helper()
		first, firstPending := occupy(t, c, visitor.Request{IP: alice})
		second, secondPending := occupy(t, c, visitor.Request{IP: bob})
		finish(t, first, firstPending)
		finish(t, second, secondPending)
	}
	twoAtOnce() // before the edge knows
	e.Degraded(t)
	asks := scrape.Get(t, e.Admin).Value(t, "ccnq_queue_asks_total")
	for range 20 {
		twoAtOnce()
	}
	require.InDelta(t, asks, scrape.Get(t, e.Admin).Value(t, "ccnq_queue_asks_total"), 0, "nobody is asked any more")
	requireVerdicts(t, c, 42, "fail-open")
	passed := 0
	for _, n := range undecided(t, c) {
		passed += n
	}
	require.Equal(t, 42, passed)

	c.StartCoordinator(t, nil)
	e.Decides(t)
	held, pending := occupy(t, c, visitor.Request{IP: alice})
	require.Equal(t, refused, c.Get(t, visitor.Request{Edge: e.URL, IP: bob}).Status)
	finish(t, held, pending)
	c.NothingLeft(t)
}

// TestRaisedLimit_LetsThoseWhoWaitIn: coordinators are replaced by ones that
// allow more; nobody's release is needed.
func TestRaisedLimit_LetsThoseWhoWaitIn(t *testing.T) {
	t.Parallel()
	c := cluster.New(t, cluster.Options{Settings: limits("1", "5").With(noRepair)})
	first, firstPending := occupy(t, c, visitor.Request{IP: alice})
	second := c.Send(t.Context(), visitor.Request{Edge: c.Edges[0].URL, IP: bob, Do: origin.DoHold, Mark: "second"})
	c.Waiting(t, 1)
	third := c.Send(t.Context(), visitor.Request{Edge: c.Edges[0].URL, IP: bob, Do: origin.DoHold, Mark: "third"})
	c.Waiting(t, 2)

	c.StartCoordinator(t, limits("2", "5")) // before the other ends, so that somebody always answers
	cluster.Stop(t, c.Coordinators[0])
	secondHeld := c.Origin.Next(t)
	require.Equal(t, "second", secondHeld.Mark)
	_, waiting := c.Rows(t)
	require.Equal(t, 1, waiting)
	finish(t, first, firstPending)
	finish(t, secondHeld, second)
	finish(t, c.Origin.Next(t), third)
	c.NothingLeft(t)
}
