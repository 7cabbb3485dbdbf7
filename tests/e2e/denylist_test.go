package e2e

import (
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/tests/internal/await"
	"github.com/ccnq/ccnq/tests/internal/cluster"
	"github.com/ccnq/ccnq/tests/internal/visitor"
)

// denied starts two edges with a denylist and has each of ips refused times
// times by the first edge, while somebody else of their network is served.
func denied(t *testing.T, settings cluster.Settings, times int, ips ...string) *cluster.Cluster {
	t.Helper()
	c := cluster.New(t, cluster.Options{
		Edges: 2, Denylist: true,
		Settings: limits("1", "0").With(cluster.Settings{
			"CCNQ_QUEUE_DENYLIST_EXCEED_THRESHOLD": "1",
		}).With(settings),
	})
	held, pending := occupy(t, c, visitor.Request{IP: alice})
	for _, ip := range ips {
		for range times {
			require.Equal(t, http.StatusTooManyRequests, c.Get(t, visitor.Request{Edge: c.Edges[0].URL, IP: ip}).Status)
		}
	}
	finish(t, held, pending)
	c.NothingLeft(t)
	return c
}

// blockedAt asks an edge until it refuses an address for a block, which the
// queue's five seconds tell apart, and returns the answer.
func blockedAt(t *testing.T, c *cluster.Cluster, edge int, ip string) visitor.Answer {
	t.Helper()
	var answer visitor.Answer
	await.True(t, ip+" is blocked at edge "+strconv.Itoa(edge), func() bool {
		answer = c.Get(t, visitor.Request{Edge: c.Edges[edge].URL, IP: ip})
		return answer.Status == http.StatusTooManyRequests && answer.Header.Get("Retry-After") != "5"
	})
	return answer
}

// allCounted waits until every denial is counted: one that comes after a block was
// lifted makes it anew. Who asks again and again is denied too, while the place of
// the request before is not given back yet.
func allCounted(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	c.NothingLeft(t)
	await.True(t, "all denials are counted", func() bool { return c.Denials(t) == verdicts(t, c, "queue-full") })
}

// passesAt asks an edge until it lets an address pass.
func passesAt(t *testing.T, c *cluster.Cluster, edge int, ip string) {
	t.Helper()
	await.True(t, ip+" passes at edge "+strconv.Itoa(edge), func() bool {
		return c.Get(t, visitor.Request{Edge: c.Edges[edge].URL, IP: ip}).Status == http.StatusOK
	})
}

func TestDenylist_TwoEdgesSeeOneBlock(t *testing.T) {
	t.Parallel()
	c := denied(t, cluster.Settings{"CCNQ_QUEUE_DENYLIST_DAILY_THRESHOLD": "3"}, 3, bob)
	for edge := range c.Edges {
		answer := blockedAt(t, c, edge, bob)
		require.Equal(t, []string{"no-store"}, answer.Header["Cache-Control"])
		seconds, err := strconv.Atoi(answer.Header.Get("Retry-After"))
		require.NoError(t, err)
		require.Greater(t, seconds, 29*24*3600, "30 days, less what has passed")
		require.LessOrEqual(t, seconds, 30*24*3600)
	}
	require.NotZero(t, verdicts(t, c, "blocked"))
	passesAt(t, c, 0, alice)
	passesAt(t, c, 1, alice)

	// The operator's SQL lifts it.
	allCounted(t, c)
	c.SQL(t, "UPDATE ip_block SET blocked_until = NOW() WHERE ip = $1", bob)
	passesAt(t, c, 0, bob)
	c.NothingLeft(t)
	passesAt(t, c, 1, bob)
}

func TestDenylist_ARangeIsBlockedAboveTheThreshold(t *testing.T) {
	t.Parallel()
	c := denied(t, cluster.Settings{"CCNQ_QUEUE_DENYLIST_RANGE_IP_THRESHOLD": "2"}, 1,
		"203.0.113.21", "203.0.113.22", "203.0.113.23")
	answer := blockedAt(t, c, 1, alice) // was never denied
	seconds, err := strconv.Atoi(answer.Header.Get("Retry-After"))
	require.NoError(t, err)
	require.Greater(t, seconds, 23*3600)
	require.LessOrEqual(t, seconds, 24*3600)
	passesAt(t, c, 1, carol)

	allCounted(t, c)
	c.SQL(t, "DELETE FROM ip_group_block WHERE ip_group = $1", "203.0.113.0/24")
	passesAt(t, c, 0, alice)
	c.NothingLeft(t)
	passesAt(t, c, 1, alice)
}

// TestF19_TwoBlocksForOneAddress has the block of the address outlive that of
// its range, on edges that saw both begin and on one that starts in between.
func TestF19_TwoBlocksForOneAddress(t *testing.T) {
	t.Parallel()
	c := cluster.New(t, cluster.Options{Edges: 2, Denylist: true, Settings: limits("1", "0")})
	c.SQL(t, "INSERT INTO ip_block (ip, blocked_until) VALUES ($1, NOW() + interval '3 hours')", carol)
	c.SQL(t, "INSERT INTO ip_group_block (ip_group, blocked_until) VALUES ('198.51.100.0/24', NOW() + interval '2 hours')")
	neighbour := "198.51.100.99"
	for edge := range c.Edges {
		blockedAt(t, c, edge, neighbour)
		requireRemaining(t, blockedAt(t, c, edge, carol), 3*time.Hour)
	}
	c.SQL(t, "UPDATE ip_group_block SET blocked_until = NOW()")
	c.StartEdge(t, nil)
	for edge := range c.Edges {
		passesAt(t, c, edge, neighbour)
		requireRemaining(t, blockedAt(t, c, edge, carol), 3*time.Hour)
	}
}

// requireRemaining requires a Retry-After that counts to the end of a block.
func requireRemaining(t *testing.T, answer visitor.Answer, most time.Duration) {
	t.Helper()
	seconds, err := strconv.Atoi(answer.Header.Get("Retry-After"))
	require.NoError(t, err)
	require.LessOrEqual(t, seconds, int(most/time.Second))
	require.Greater(t, seconds, int((most-10*time.Minute)/time.Second))
}

func TestDenylist_MonitorModeRefusesNobody(t *testing.T) {
	t.Parallel()
	c := denied(t, cluster.Settings{
		"CCNQ_QUEUE_DENYLIST_DAILY_THRESHOLD": "2",
		"CCNQ_QUEUE_DENYLIST_MODE":            "monitor",
	}, 2, bob)
	await.True(t, "a blocked request is counted", func() bool {
		require.Equal(t, http.StatusOK, c.Get(t, visitor.Request{Edge: c.Edges[1].URL, IP: bob}).Status)
		return verdicts(t, c, "would-deny") > 0
	})
	require.Zero(t, verdicts(t, c, "blocked"))
}

func TestDenylist_TheAllowlistComesFirst(t *testing.T) {
	t.Parallel()
	c := cluster.New(t, cluster.Options{Denylist: true, Settings: limits("1", "0").With(cluster.Settings{
		"CCNQ_QUEUE_ALLOWLIST": carol,
	})})
	c.SQL(t, "INSERT INTO ip_group_block (ip_group, blocked_until) VALUES ('198.51.100.0/24', NOW() + interval '1 hour')")
	blockedAt(t, c, 0, "198.51.100.99")
	require.Equal(t, http.StatusOK, c.Get(t, visitor.Request{Edge: c.Edges[0].URL, IP: carol}).Status)
}
