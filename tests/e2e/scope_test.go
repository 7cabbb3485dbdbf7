package e2e

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/tests/internal/await"
	"github.com/ccnq/ccnq/tests/internal/cluster"
	"github.com/ccnq/ccnq/tests/internal/origin"
	"github.com/ccnq/ccnq/tests/internal/visitor"
)

// full starts a cluster in which the group of alice and bob has no room, so
// that whatever is in scope is refused and whatever is not is served.
func full(t *testing.T, o cluster.Options) (c *cluster.Cluster, status func(visitor.Request) int) {
	t.Helper()
	o.Settings = limits("1", "0").With(o.Settings)
	c = cluster.New(t, o)
	occupy(t, c, visitor.Request{IP: alice})
	return c, func(r visitor.Request) int {
		t.Helper()
		r.Edge = c.Edges[0].URL
		if r.IP == "" {
			r.IP = bob
		}
		return c.Get(t, r).Status
	}
}

const (
	served  = http.StatusOK
	refused = http.StatusTooManyRequests
)

func TestScope_Methods(t *testing.T) {
	t.Parallel()
	c, status := full(t, cluster.Options{Settings: cluster.Settings{"CCNQ_QUEUE_METHODS": "get, HEAD"}})
	require.Equal(t, refused, status(visitor.Request{Method: http.MethodGet}))
	require.Equal(t, refused, status(visitor.Request{Method: http.MethodHead}))
	require.Equal(t, served, status(visitor.Request{Method: http.MethodPost}))
	require.Equal(t, served, status(visitor.Request{Method: http.MethodDelete}))
	requireVerdicts(t, c, 2, "proxied")
}

func TestScope_AllMethodsByDefault(t *testing.T) {
	t.Parallel()
	_, status := full(t, cluster.Options{})
	for _, method := range []string{"GET", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "PROPFIND"} {
		require.Equal(t, refused, status(visitor.Request{Method: method}), method)
	}
}

func TestScope_OtherGroupsAreNotConcerned(t *testing.T) {
	t.Parallel()
	_, status := full(t, cluster.Options{})
	require.Equal(t, refused, status(visitor.Request{IP: bob}))
	require.Equal(t, served, status(visitor.Request{IP: carol}))
	require.Equal(t, served, status(visitor.Request{IP: dave}))
}

func TestScope_Allowlist(t *testing.T) {
	t.Parallel()
	c, status := full(t, cluster.Options{Settings: cluster.Settings{
		"CCNQ_QUEUE_ALLOWLIST": "203.0.113.66, 203.0.113.64/31,203.0.113.100-203.0.113.110",
	}})
	for ip, want := range map[string]int{
		"203.0.113.66": served, "203.0.113.65": served, "203.0.113.64": served,
		"203.0.113.99": refused, "203.0.113.100": served, "203.0.113.110": served, "203.0.113.111": refused,
	} {
		require.Equal(t, want, status(visitor.Request{IP: ip}), ip)
	}
	requireVerdicts(t, c, 5, "allowlisted")
}

func TestScope_PrefixLengths(t *testing.T) {
	t.Parallel()
	c, status := full(t, cluster.Options{Settings: cluster.Settings{
		"CCNQ_QUEUE_IPV4_PREFIX_LENGTH": "29",
		"CCNQ_QUEUE_IPV6_PREFIX_LENGTH": "47",
	}})
	require.Equal(t, refused, status(visitor.Request{IP: "203.0.113.0"}), "of the /29 of alice")
	require.Equal(t, served, status(visitor.Request{IP: "203.0.113.8"}), "the next /29")
	held, pending := occupy(t, c, visitor.Request{IP: dave})
	require.Equal(t, refused, status(visitor.Request{IP: "2001:db8:4:ffff::1"}), "of the /47 of dave")
	require.Equal(t, served, status(visitor.Request{IP: "2001:db8:6::1"}), "the next /47")
	finish(t, held, pending)
}

// TestScope_ATrustedProxyIsNobody: an address that is a trusted proxy's says
// that the client's is not known, so it is never counted.
func TestScope_ATrustedProxyIsNobody(t *testing.T) {
	t.Parallel()
	c := cluster.New(t, cluster.Options{Settings: limits("1", "0").With(cluster.Settings{
		"CCNQ_TRUSTED_PROXIES": "127.0.0.0/8,::1,192.0.2.0/24",
	})})
	for _, ip := range []string{"192.0.2.10", "127.0.0.1", ""} {
		first, firstPending := occupy(t, c, visitor.Request{IP: ip})
		second, secondPending := occupy(t, c, visitor.Request{IP: ip})
		finish(t, first, firstPending)
		finish(t, second, secondPending)
	}
	requireVerdicts(t, c, 6, "proxied")
}

const (
	rulesA = `[[{"target": "path", "matchType": "startsWith", "value": "/a/"}]]`
	rulesB = `[[{"target": "path", "matchType": "startsWith", "value": "/b/"}]]`
)

func TestScope_RulesFileIsReloaded(t *testing.T) {
	t.Parallel()
	c := cluster.New(t, cluster.Options{Rules: rulesA, Settings: limits("1", "0")})
	held, pending := occupy(t, c, visitor.Request{IP: alice, Path: "/a/held"})
	status := func(path string) int {
		return c.Get(t, visitor.Request{Edge: c.Edges[0].URL, IP: bob, Path: path}).Status
	}
	require.Equal(t, refused, status("/a/x"))
	require.Equal(t, served, status("/b/x"))

	c.WriteRules(t, rulesB)
	await.True(t, "the new rules are in force by themselves", func() bool { return status("/b/x") == refused })
	require.Equal(t, served, status("/a/x"))

	c.WriteRules(t, `[[{"target": "path"`)
	require.Error(t, c.Edges[0].Reload())
	require.Equal(t, refused, status("/b/x"), "a broken file changes nothing")
	require.Equal(t, served, status("/a/x"))
	require.Contains(t, c.Edges[0].Log.Text(), c.RulesFile, "the log names the file")

	c.WriteRules(t, rulesA)
	require.NoError(t, c.Edges[0].Reload(), "as on SIGHUP")
	require.Equal(t, refused, status("/a/x"))
	require.Equal(t, served, status("/b/x"))
	finish(t, held, pending)
}

// TestScope_EmptyRulesetLimitsNothing is the seed's safe default.
func TestScope_EmptyRulesetLimitsNothing(t *testing.T) {
	t.Parallel()
	c := cluster.New(t, cluster.Options{Rules: `[[], []]`, Settings: limits("1", "0")})
	first, firstPending := occupy(t, c, visitor.Request{IP: alice})
	second, secondPending := occupy(t, c, visitor.Request{IP: alice})
	finish(t, first, firstPending)
	finish(t, second, secondPending)
}

// TestPassThrough_NeedsTheUpstreamAlone: no NATS, no Postgres, no rules.
func TestPassThrough_NeedsTheUpstreamAlone(t *testing.T) {
	t.Parallel()
	o, v := origin.New(t), visitor.New(t)
	e := cluster.StartEdge(t, cluster.Settings{
		"CCNQ_ADMIN_ADDR": "127.0.0.1:0", "CCNQ_PORT": "0", "CCNQ_SHUTDOWN_DELAY_MS": "0",
		"CCNQ_UPSTREAM_URL": o.URL,
	})
	answer := v.Get(t, visitor.Request{Edge: e.URL, IP: alice})
	require.Equal(t, http.StatusOK, answer.Status)
	require.Equal(t, "ok\n", answer.Body)
	require.Equal(t, "BYPASS", answer.Header.Get("X-Cache"))
	require.NotEmpty(t, answer.Header.Get("Cache-Status"))
}
