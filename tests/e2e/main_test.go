package e2e

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/ccnq/ccnq/tests/internal/await"
	"github.com/ccnq/ccnq/tests/internal/cluster"
	"github.com/ccnq/ccnq/tests/internal/origin"
	"github.com/ccnq/ccnq/tests/internal/scrape"
	"github.com/ccnq/ccnq/tests/internal/visitor"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Addresses for documentation (RFC 5737, RFC 3849). The first two are of one
// group.
const (
	alice = "203.0.113.7"
	bob   = "203.0.113.200"
	carol = "198.51.100.20"
	dave  = "2001:db8:5::9"
)

// limits are settings of the coordinators.
func limits(served, pending string) cluster.Settings {
	return cluster.Settings{
		"CCNQ_QUEUE_MAX_SERVED_PER_GROUP":  served,
		"CCNQ_QUEUE_MAX_PENDING_PER_GROUP": pending,
	}
}

// occupy takes one place of a visitor's group, and returns the request at the
// origin and at the visitor.
func occupy(t *testing.T, c *cluster.Cluster, r visitor.Request) (*origin.Arrival, *visitor.Pending) {
	t.Helper()
	if r.Edge == "" {
		r.Edge = c.Edges[0].URL
	}
	if r.Do == "" {
		r.Do = origin.DoHold
	}
	pending := c.Send(t.Context(), r)
	return c.Origin.Next(t), pending
}

// finish lets a held request end well.
func finish(t *testing.T, a *origin.Arrival, p *visitor.Pending) {
	t.Helper()
	a.Release()
	answer := p.Answer(t)
	require.NoError(t, answer.Err)
	require.Equal(t, http.StatusOK, answer.Status)
}

// verdicts counts the requests with a verdict over all edges.
func verdicts(t *testing.T, c *cluster.Cluster, verdict string) int {
	t.Helper()
	sum := 0.0
	for _, e := range c.Edges {
		sum += scrape.Get(t, e.Admin).Sum("ccnq_requests_total", `verdict="`+verdict+`"`)
	}
	return int(sum)
}

// requireVerdicts waits until so many requests have ended with a verdict, and
// requires that it is not more. A request is counted when its handler ends,
// which may be a moment after its answer was read.
func requireVerdicts(t *testing.T, c *cluster.Cluster, want int, verdict string) {
	t.Helper()
	await.True(t, "the requests are counted", func() bool { return verdicts(t, c, verdict) >= want })
	require.Equal(t, want, verdicts(t, c, verdict), verdict)
}

// undecided returns the requests that passed because nobody could decide, by
// cause.
func undecided(t *testing.T, c *cluster.Cluster) map[string]int {
	t.Helper()
	causes := map[string]int{}
	for _, e := range c.Edges {
		for series, n := range scrape.Get(t, e.Admin) {
			if cause, ok := strings.CutPrefix(series, "ccnq_queue_fail_open_total"); ok && n > 0 {
				causes[cause] += int(n)
			}
		}
	}
	return causes
}
