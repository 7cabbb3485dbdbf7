package faults

import (
	"fmt"
	"net/http"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/tests/internal/await"
	"github.com/ccnq/ccnq/tests/internal/cluster"
	"github.com/ccnq/ccnq/tests/internal/origin"
	"github.com/ccnq/ccnq/tests/internal/process"
	"github.com/ccnq/ccnq/tests/internal/scrape"
	"github.com/ccnq/ccnq/tests/internal/visitor"
)

// counting is an installation whose edges count together by way of NATS. There is
// no Postgres and no queue.
type counting struct {
	*visitor.Visitors
	t        *testing.T
	nats     *process.NATS
	edges    []*process.Service
	services []*process.Service
	settings cluster.Settings
	passed   int // requests
}

// countedAt is how many requests of an address in ten minutes the cluster blocks.
const countedAt = 60

func startCounting(t *testing.T) *counting {
	t.Helper()
	c := &counting{t: t, Visitors: visitor.New(t), nats: process.NewNATS(t)}
	c.nats.Configure(t, fmt.Sprintf("jetstream { store_dir: %q }", t.TempDir()))
	c.nats.Run(t)
	c.settings = cluster.Common(origin.New(t).URL).With(cluster.Settings{
		"CCNQ_DATA_DIR":                     t.TempDir(),
		"CCNQ_NATS_URL":                     c.nats.URL,
		"CCNQ_PG_HOST":                      "127.0.0.1",
		"CCNQ_PG_PORT":                      "1",
		"CCNQ_QOS_CLUSTER":                  "nats",
		"CCNQ_QOS_CLUSTER_MAX_IP_RATE":      strconv.FormatFloat(countedAt/600., 'f', 6, 64),
		"CCNQ_QOS_CLUSTER_SYNC_INTERVAL_MS": "500",
		"CCNQ_QOS_ENABLED":                  "true",
		"CCNQ_QOS_MAX_AGE_MS":               "600000",
		"CCNQ_QOS_MIN_HOST_RATE":            "0",
	})
	for range 2 {
		c.services = append(c.services, process.StartDenylist(t, c.settings))
	}
	for i := range 3 {
		c.edges = append(c.edges, process.StartEdge(t, c.settings.With(cluster.Settings{"CCNQ_EDGE_ID": fmt.Sprintf("edge-%d", i+1)})))
	}
	for _, p := range c.services {
		await.True(t, "the service is there", func() bool { return p.Part(t, "denylist_qos") == "ok" })
	}
	c.synced()
	return c
}

// synced waits until each edge has synced, and one of the services leads.
func (c *counting) synced() {
	c.t.Helper()
	for _, e := range c.edges {
		await.True(c.t, "the edge syncs", func() bool { return e.Ready(c.t) && e.Part(c.t, "qos") == "ok" })
	}
	c.leader(-1)
}

// leader waits until a service other than not leads, and returns its index.
func (c *counting) leader(not int) int {
	c.t.Helper()
	return leader(c.t, c.services, "ccnq_denylist_qos_leader", not)
}

// pass has an address let through so many times, by each edge in turn, or until it is
// blocked.
func (c *counting) pass(ip string, times int) {
	c.t.Helper()
	for range times {
		e := c.edges[c.passed%len(c.edges)]
		if status := c.Get(c.t, visitor.Request{Edge: e.URL, IP: ip}).Status; status != http.StatusOK {
			require.Equal(c.t, http.StatusServiceUnavailable, status)
			return
		}
		c.passed++
	}
}

// hits is how many requests a service has counted.
func (c *counting) hits(service int) int {
	return int(scrape.Get(c.t, c.services[service].Admin).Value(c.t, "ccnq_denylist_qos_hits_total"))
}

// counted waits until a service has counted every request, and requires that it has
// counted none twice.
func (c *counting) counted(services ...int) {
	c.t.Helper()
	for _, i := range services {
		await.True(c.t, "every request is counted", func() bool { return c.hits(i) >= c.passed })
		require.Equal(c.t, c.passed, c.hits(i), "none counts twice")
	}
}

// blocked waits until every edge knows so many addresses that are blocked, and
// requires that it refuses this one.
func (c *counting) blocked(ip string, all int) {
	c.t.Helper()
	for _, e := range c.edges {
		await.True(c.t, "the edge knows", func() bool {
			return scrape.Get(c.t, e.Admin).Sum("ccnq_qos_cluster_listed", `kind="ip"`) == float64(all)
		})
		require.Equal(c.t, http.StatusServiceUnavailable, c.Get(c.t, visitor.Request{Edge: e.URL, IP: ip}).Status)
	}
}

// TestQoS_NATSAway stops NATS for real, while requests come. What edges let pass
// meanwhile counts once, and so does what came before. NATS has lost what it held in
// memory by then; what it had acknowledged and nobody had read would be lost, which is
// printed.
func TestQoS_NATSAway(t *testing.T) {
	t.Parallel()
	c := startCounting(t)
	const ip = "203.0.113.7"
	c.pass(ip, 30)
	c.counted(0, 1)

	const onTheWay = 9
	c.pass(ip, onTheWay)
	c.nats.Kill(t)
	c.pass(ip, 9)
	for _, e := range c.edges {
		await.True(t, "the edge says that it counts alone", func() bool { return e.Ready(t) && e.Part(t, "qos") != "ok" })
	}
	c.pass(ip, 9)
	c.nats.Run(t)
	c.synced()
	c.pass(ip, countedAt/2)
	// All but what was on its way when NATS ended must come; that may have been
	// acknowledged, and not read.
	for i := range c.services {
		await.True(t, "the requests are counted", func() bool { return c.hits(i) >= c.passed-onTheWay })
	}
	c.twoSyncs()
	for i := range c.services {
		lost := c.passed - c.hits(i)
		t.Logf("acknowledged by NATS, not read by service %d before it restarted: %d of %d requests", i, lost, c.passed)
		require.GreaterOrEqual(t, lost, 0, "none counts twice")
	}

	c.blocked(ip, 1)
	c.pass("203.0.113.8", 2*countedAt)
	c.blocked("203.0.113.8", 2)
}

// twoSyncs waits until each edge has synced twice more.
func (c *counting) twoSyncs() {
	c.t.Helper()
	for _, e := range c.edges {
		syncs := func() float64 { return scrape.Get(c.t, e.Admin).Value(c.t, "ccnq_qos_cluster_syncs_total") }
		begin := syncs()
		await.True(c.t, "two more syncs", func() bool { return syncs() >= begin+2 })
	}
}

// TestQoS_LeaderFrozenAndKilled: the other service publishes what both know, and what
// the first one believes when it wakes changes nothing.
func TestQoS_LeaderFrozenAndKilled(t *testing.T) {
	t.Parallel()
	c := startCounting(t)
	first := c.leader(-1)
	c.pass("203.0.113.7", countedAt/2)
	c.counted(0, 1)
	c.services[first].Freeze(t)
	c.pass("203.0.113.7", countedAt)
	second := c.leader(first)
	c.blocked("203.0.113.7", 1)
	c.counted(second)

	c.services[first].Thaw(t)
	c.counted(first)
	await.True(t, "the first one has noticed", func() bool {
		return scrape.Get(t, c.services[first].Admin).Sum("ccnq_denylist_qos_leader") == 0
	})
	c.blocked("203.0.113.7", 1)

	c.services[second].Kill(t)
	c.pass("203.0.113.8", 2*countedAt)
	await.True(t, "the first one leads again", func() bool {
		return scrape.Get(t, c.services[first].Admin).Sum("ccnq_denylist_qos_leader") == 1
	})
	c.blocked("203.0.113.8", 2)
}
