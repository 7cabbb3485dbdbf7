package e2e

import (
	"net/http"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/pkg/bus/embed"
	"github.com/ccnq/ccnq/pkg/qos/redis/redistest"
	"github.com/ccnq/ccnq/tests/internal/await"
	"github.com/ccnq/ccnq/tests/internal/cluster"
	"github.com/ccnq/ccnq/tests/internal/origin"
	"github.com/ccnq/ccnq/tests/internal/scrape"
	"github.com/ccnq/ccnq/tests/internal/visitor"
)

// clusterAt is how many requests of an address, or twice as many of a subnet, the
// cluster of a test blocks. They count for ten minutes.
const clusterAt = 30

// clusterShare is how many of them a test asks of each of three edges: two edges alone
// stay below the limit.
const clusterShare = clusterAt/2 - 1

// together are edges without a queue that count together.
type together struct {
	*visitor.Visitors
	edges    []*cluster.Edge
	settings cluster.Settings
}

func clusterSettings(t *testing.T, store string) (*visitor.Visitors, cluster.Settings) {
	t.Helper()
	return visitor.New(t), cluster.Common(origin.New(t).URL).With(qosSettings()).With(cluster.Settings{
		"CCNQ_DATA_DIR":                          t.TempDir(),
		"CCNQ_QOS_CLUSTER":                       store,
		"CCNQ_QOS_CLUSTER_MAX_IP_RATE":           strconv.FormatFloat(clusterAt/600., 'f', 6, 64),
		"CCNQ_QOS_CLUSTER_MAX_SUBNET_RATE":       strconv.FormatFloat(2*clusterAt/600., 'f', 6, 64),
		"CCNQ_QOS_CLUSTER_MIN_SUBNET_UNIQUE_IPS": "2",
	})
}

func (c *together) start(t *testing.T, settings cluster.Settings) *cluster.Edge {
	t.Helper()
	id := "edge-" + strconv.Itoa(len(c.edges)+1)
	e := cluster.StartEdge(t, c.settings.With(cluster.Settings{"CCNQ_EDGE_ID": id}).With(settings))
	c.edges = append(c.edges, e)
	await.True(t, "the edge syncs", func() bool { return scrape.Get(t, e.Admin).Value(t, "ccnq_qos_cluster_up") == 1 })
	return e
}

// byNATS starts three edges, NATS, and a denylist service whose Postgres is away.
func byNATS(t *testing.T) *together {
	t.Helper()
	nats, err := embed.Start(embed.Options{Host: "127.0.0.1", Port: -1, StoreDir: t.TempDir()})
	require.NoError(t, err)
	t.Cleanup(nats.Stop)
	c := &together{}
	c.Visitors, c.settings = clusterSettings(t, "nats")
	c.settings["CCNQ_NATS_URL"] = nats.ClientURL()
	d := cluster.StartDenylist(t, c.settings.With(cluster.Settings{"CCNQ_PG_HOST": "127.0.0.1", "CCNQ_PG_PORT": "1"}))
	for range 3 {
		c.start(t, nil)
	}
	r, ok := scrape.Ready(t, d.Admin)
	require.True(t, ok)
	require.Equal(t, "ok", r.Parts["denylist_qos"])
	require.NotEqual(t, "ok", r.Parts["denylist_store"])
	return c
}

// listed is how many keys of a kind an edge knows to be above a limit of the cluster.
func listed(m scrape.Metrics, kind string) int {
	return int(m.Sum("ccnq_qos_cluster_listed", `kind="`+kind+`"`))
}

func syncs(t *testing.T, m scrape.Metrics) int {
	t.Helper()
	return int(m.Value(t, "ccnq_qos_cluster_syncs_total"))
}

// ask has an address ask each of three edges for its share of more than the limit.
// The last edge may learn meanwhile that the limit is reached, and refuses from then on.
func (c *together) ask(t *testing.T, ip string) {
	t.Helper()
	require.Len(t, c.edges, 3)
	for _, e := range c.edges[:2] {
		require.Equal(t, times(clusterShare, http.StatusOK), askAs(t, c.Visitors, e.URL, clusterShare, ip))
	}
	statuses := askAs(t, c.Visitors, c.edges[2].URL, clusterShare, ip)
	passed := slices.Index(statuses, http.StatusServiceUnavailable)
	if passed < 0 {
		passed = clusterShare
	}
	require.GreaterOrEqual(t, passed, clusterAt-2*clusterShare, "the limit was not reached")
	want := append(times(passed, http.StatusOK), times(clusterShare-passed, http.StatusServiceUnavailable)...)
	require.Equal(t, want, statuses)
}

// exceed has an address exceed the limit, and waits until all edges know of it.
func (c *together) exceed(t *testing.T, ip string) {
	t.Helper()
	c.ask(t, ip)
	before := make([]int, len(c.edges))
	for i, e := range c.edges {
		before[i] = syncs(t, scrape.Get(t, e.Admin))
	}
	after := map[int]int{} // edges that know, and how many syncs it took
	await.True(t, "the edges know", func() bool {
		for i, e := range c.edges {
			if _, ok := after[i]; ok {
				continue
			}
			if m := scrape.Get(t, e.Admin); listed(m, "ip") == 1 {
				after[i] = syncs(t, m) - before[i]
			}
		}
		return len(after) == len(c.edges)
	})
	for i, e := range c.edges {
		require.LessOrEqual(t, after[i], 2, "within two syncs")
		refused := c.Get(t, visitor.Request{Edge: e.URL, IP: ip})
		require.Equal(t, http.StatusServiceUnavailable, refused.Status)
		seconds, err := strconv.Atoi(refused.Header.Get("Retry-After"))
		require.NoError(t, err)
		require.GreaterOrEqual(t, seconds, 1200, "when two windows are over")
		require.Equal(t, http.StatusOK, c.Get(t, visitor.Request{Edge: e.URL, IP: carol}).Status)
	}
}

// TestQoSCluster_ByNATS has three edges that are below the limit alone and above it
// together, with no Postgres at all. An edge that starts later knows at once.
func TestQoSCluster_ByNATS(t *testing.T) {
	t.Parallel()
	c := byNATS(t)
	c.exceed(t, alice)

	late := cluster.StartEdge(t, c.settings.With(cluster.Settings{
		"CCNQ_EDGE_ID": "late", "CCNQ_QOS_CLUSTER_SYNC_INTERVAL_MS": "600000",
	}))
	await.True(t, "a new edge knows before it has synced", func() bool { return listed(scrape.Get(t, late.Admin), "ip") == 1 })
	require.Equal(t, http.StatusServiceUnavailable, c.Get(t, visitor.Request{Edge: late.URL, IP: alice}).Status)
	require.Equal(t, http.StatusOK, c.Get(t, visitor.Request{Edge: late.URL, IP: bob}).Status)

	// The neighbours of a subnet share its limit.
	for i := range 2 * clusterAt {
		c.Get(t, visitor.Request{Edge: c.edges[i%2].URL, IP: "203.0.113." + strconv.Itoa(100+i%40)})
	}
	for _, e := range append(c.edges, late) {
		await.True(t, "the subnet is blocked", func() bool { return listed(scrape.Get(t, e.Admin), "subnet") == 1 })
		require.Equal(t, http.StatusServiceUnavailable, c.Get(t, visitor.Request{Edge: e.URL, IP: bob}).Status)
		require.Equal(t, http.StatusOK, c.Get(t, visitor.Request{Edge: e.URL, IP: dave}).Status)
	}
}

// TestQoSCluster_InRedis has three edges meet in Redis, whose counts instances of
// connect-qos share.
func TestQoSCluster_InRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	c := &together{}
	c.Visitors, c.settings = clusterSettings(t, "redis")
	c.settings["CCNQ_QOS_CLUSTER_REDIS_URL"] = server.URL
	c.settings["CCNQ_QOS_CLUSTER_SYNC_INTERVAL_MS"] = "500"
	for range 3 {
		c.start(t, nil)
	}
	c.ask(t, alice)
	for _, e := range c.edges {
		await.True(t, "the edge knows", func() bool { return listed(scrape.Get(t, e.Admin), "ip") == 1 })
		require.Equal(t, http.StatusServiceUnavailable, c.Get(t, visitor.Request{Edge: e.URL, IP: alice}).Status)
	}
	server.Kill()
	await.True(t, "the edge says that it counts alone", func() bool {
		r, ok := scrape.Ready(t, c.edges[0].Admin)
		return ok && r.Ready && r.Parts["qos"] != "ok"
	})
	require.Equal(t, http.StatusServiceUnavailable, c.Get(t, visitor.Request{Edge: c.edges[0].URL, IP: alice}).Status,
		"the last lists stay in force")
	server.Restart()
	await.True(t, "the edge syncs again", func() bool {
		r, ok := scrape.Ready(t, c.edges[0].Admin)
		return ok && r.Parts["qos"] == "ok"
	})
}
