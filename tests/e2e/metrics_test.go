package e2e

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/tests/internal/await"
	"github.com/ccnq/ccnq/tests/internal/cluster"
	"github.com/ccnq/ccnq/tests/internal/origin"
	"github.com/ccnq/ccnq/tests/internal/scrape"
	"github.com/ccnq/ccnq/tests/internal/visitor"
)

// TestMetrics_VerdictsAddUp: each request is counted once, by what became of it.
func TestMetrics_VerdictsAddUp(t *testing.T) {
	t.Parallel()
	c := cluster.New(t, cluster.Options{Rules: rulesA, Settings: limits("1", "1").With(cluster.Settings{
		"CCNQ_QUEUE_ALLOWLIST": dave,
	})})
	e := c.Edges[0]
	held, heldPending := occupy(t, c, visitor.Request{IP: alice, Path: "/a/"})
	inLine := c.Send(t.Context(), visitor.Request{Edge: e.URL, IP: bob, Path: "/a/"})
	c.Waiting(t, 1)
	require.Equal(t, refused, c.Get(t, visitor.Request{Edge: e.URL, IP: bob, Path: "/a/"}).Status)
	require.Equal(t, served, c.Get(t, visitor.Request{Edge: e.URL, IP: bob, Path: "/b/"}).Status)
	require.Equal(t, served, c.Get(t, visitor.Request{Edge: e.URL, IP: dave, Path: "/a/"}).Status)
	require.Equal(t, http.StatusBadGateway,
		c.Get(t, visitor.Request{Edge: e.URL, IP: carol, Path: "/a/", Do: origin.DoReset}).Status)
	require.Equal(t, http.StatusBadRequest, visitor.Ask(t, e.URL, "GET * HTTP/1.1", "Host: site.example").Status)

	// A handler ends, and gives its place back, a moment after its answer was read.
	for gauge, want := range map[string]float64{"ccnq_requests_in_flight": 2, "ccnq_queue_held": 1, "ccnq_queue_waiting": 1} {
		await.True(t, gauge, func() bool { return scrape.Get(t, e.Admin).Value(t, gauge) == want })
	}
	finish(t, held, heldPending)
	require.Equal(t, served, inLine.Answer(t).Status)
	c.NothingLeft(t)

	await.True(t, "the last requests are counted", func() bool {
		m := scrape.Get(t, e.Admin)
		return m.Sum("ccnq_requests_total") >= 7 && m.Value(t, "ccnq_request_seconds_count") >= 7
	})
	m := scrape.Get(t, e.Admin)
	for labels, want := range map[string]float64{
		`status="2xx",verdict="admitted"`:    1,
		`status="5xx",verdict="admitted"`:    1,
		`status="2xx",verdict="promoted"`:    1,
		`status="4xx",verdict="queue-full"`:  1,
		`status="2xx",verdict="proxied"`:     1,
		`status="2xx",verdict="allowlisted"`: 1,
		`status="4xx",verdict="bad-request"`: 1,
	} {
		require.InDelta(t, want, m["ccnq_requests_total{"+labels+"}"], 0, labels)
	}
	require.InDelta(t, 7, m.Sum("ccnq_requests_total"), 0, "nothing else")
	require.InDelta(t, 7, m.Value(t, "ccnq_request_seconds_count"), 0)
	for _, name := range []string{
		"ccnq_queue_admit_seconds_count", "ccnq_queue_promotion_seconds_count", "ccnq_queue_wait_seconds_count",
		"ccnq_queue_asks_total",
	} {
		require.Positive(t, m.Value(t, name), name)
	}
	require.InDelta(t, 0, m.Value(t, "ccnq_queue_breaker_state"), 0)
}

// TestMetrics_DoNotGrowWithClients: neither values nor numbers of labels.
func TestMetrics_DoNotGrowWithClients(t *testing.T) {
	t.Parallel()
	c := cluster.New(t, cluster.Options{Settings: limits("1", "0")})
	series := func() int {
		return len(scrape.Get(t, c.Edges[0].Admin)) + len(scrape.Get(t, c.Coordinators[0].Admin))
	}
	visit := func(ip string) {
		require.Equal(t, served, c.Get(t, visitor.Request{Edge: c.Edges[0].URL, IP: ip}).Status)
		c.NothingLeft(t)
		held, pending := occupy(t, c, visitor.Request{IP: ip})
		require.Equal(t, refused, c.Get(t, visitor.Request{Edge: c.Edges[0].URL, IP: ip}).Status)
		finish(t, held, pending)
	}
	visit(alice)
	before := series()
	for _, ip := range []string{carol, dave, "192.0.2.1", "2001:db8:77::1"} {
		visit(ip)
	}
	require.Equal(t, before, series())
	address := regexp.MustCompile(`\d+\.\d+\.\d+\.\d+|[0-9a-f]+:[0-9a-f]*:`)
	for _, base := range []string{c.Edges[0].Admin, c.Coordinators[0].Admin} {
		for name := range scrape.Get(t, base) {
			if strings.HasPrefix(name, "ccnq_") {
				require.NotRegexp(t, address, name)
			}
		}
	}
}

func TestReady_SaysWhichPartIsDegraded(t *testing.T) {
	t.Parallel()
	c := cluster.New(t, cluster.Options{})
	e := c.Edges[0]
	well, ok := scrape.Ready(t, e.Admin)
	require.True(t, ok)
	require.Equal(t, scrape.Readiness{Status: http.StatusOK, Ready: true, Parts: well.Parts}, well)
	require.NotEmpty(t, well.Parts)
	for part, status := range well.Parts {
		require.Equal(t, "ok", status, part)
	}
	cluster.Stop(t, c.Coordinators[0])
	await.True(t, "the queue is degraded, and the edge ready", func() bool {
		r, ok := scrape.Ready(t, e.Admin)
		return ok && r.Ready && r.Status == http.StatusOK && strings.HasPrefix(r.Parts["queue"], "degraded: ")
	})
	c.StartCoordinator(t, nil)
	e.Decides(t)
}
