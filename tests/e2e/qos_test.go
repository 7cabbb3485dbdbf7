package e2e

import (
	"context"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/pkg/wire"
	"github.com/ccnq/ccnq/tests/internal/await"
	"github.com/ccnq/ccnq/tests/internal/cluster"
	"github.com/ccnq/ccnq/tests/internal/origin"
	"github.com/ccnq/ccnq/tests/internal/scrape"
	"github.com/ccnq/ccnq/tests/internal/visitor"
)

// qosAlways is how many requests of an actor always pass with [qosSettings]: the
// next one is refused unless ten minutes have passed.
const qosAlways = 6

// qosSettings switch the load-aware limits on, with a rate of 0.01 a second for
// each of the limits named, and none for the others.
func qosSettings(limited ...string) cluster.Settings {
	s := cluster.Settings{
		"CCNQ_QOS_ENABLED": "true", "CCNQ_QOS_MAX_AGE_MS": "600000",
		"CCNQ_QOS_MIN_HOST_RATE": "0", "CCNQ_QOS_MIN_SUBNET_UNIQUE_IPS": "2",
	}
	for _, limit := range limited {
		s["CCNQ_QOS_MIN_"+limit+"_RATE"] = "0.01"
		s["CCNQ_QOS_MAX_"+limit+"_RATE"] = "0.01"
	}
	return s
}

// alone starts an edge that has neither NATS nor a queue.
func alone(t *testing.T, settings cluster.Settings) (*cluster.Edge, *visitor.Visitors, *origin.Origin) {
	t.Helper()
	o := origin.New(t)
	v := visitor.New(t)
	return cluster.StartEdge(t, cluster.Common(o.URL).With(settings)), v, o
}

// askAs asks n times as one visitor and returns the statuses.
func askAs(t *testing.T, v *visitor.Visitors, edge string, n int, ip string) []int {
	t.Helper()
	var statuses []int
	for range n {
		statuses = append(statuses, v.Get(t, visitor.Request{Edge: edge, IP: ip}).Status)
	}
	return statuses
}

// times is n times the same status.
func times(n, status int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = status
	}
	return all
}

func TestQoS_LimitsByHostAddressAndSubnet(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, limit, reason string
		busy                [][2]string // host and address of the requests, in turn
		next                [2]string   // is refused
		others              [][2]string // are not
	}{
		{
			"host", "HOST", "badHost",
			[][2]string{{"a.example", alice}, {"WWW.A.example:80", carol}}, [2]string{"a.example", dave},
			[][2]string{{"b.example", alice}},
		},
		{
			"address", "IP", "badIp",
			[][2]string{{"a.example", alice}, {"b.example", alice}}, [2]string{"c.example", alice},
			[][2]string{{"a.example", bob}, {"a.example", carol}},
		},
		{
			"subnet", "SUBNET", "badSubnet",
			[][2]string{{"a.example", alice}, {"b.example", bob}}, [2]string{"c.example", "203.0.113.99"},
			[][2]string{{"a.example", carol}, {"a.example", dave}},
		},
		{
			"IPv6 subnet", "SUBNET", "badSubnet",
			[][2]string{{"a.example", dave}, {"a.example", "2001:db8:5::a"}}, [2]string{"a.example", "2001:db8:5:0:1::"},
			[][2]string{{"a.example", "2001:db8:5:1::9"}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			e, _, o := alone(t, qosSettings(tc.limit))
			ask := func(from [2]string) visitor.Answer {
				return visitor.Ask(t, e.URL, "GET /page HTTP/1.1", "Host: "+from[0], visitor.AddressField+": "+from[1])
			}
			for i := range qosAlways {
				require.Equal(t, http.StatusOK, ask(tc.busy[i%len(tc.busy)]).Status)
			}
			refused := ask(tc.next)
			require.Equal(t, http.StatusServiceUnavailable, refused.Status)
			require.Equal(t, []string{"600"}, refused.Header["Retry-After"])
			require.Equal(t, []string{"no-store"}, refused.Header["Cache-Control"])
			require.NotEmpty(t, refused.Header.Get(reference))
			for _, other := range tc.others {
				require.Equal(t, http.StatusOK, ask(other).Status, other)
			}
			require.Equal(t, qosAlways+len(tc.others), o.Total(), "the origin never saw the refused request")
			await.True(t, "the refusal is counted", func() bool {
				m := scrape.Get(t, e.Admin)
				return m.Sum("ccnq_requests_total", `verdict="qos"`, `status="5xx"`) == 1 &&
					m.Sum("ccnq_qos_decisions_total", `reason="`+tc.reason+`"`) == 1
			})
		})
	}
}

func TestQoS_TheAllowlistAndMonitorModePass(t *testing.T) {
	t.Parallel()
	e, v, _ := alone(t, qosSettings("IP").With(cluster.Settings{"CCNQ_QUEUE_ALLOWLIST": "198.51.100.0/24"}))
	require.Equal(t, times(3*qosAlways, http.StatusOK), askAs(t, v, e.URL, 3*qosAlways, carol))

	e, v, _ = alone(t, qosSettings("IP").With(cluster.Settings{"CCNQ_QOS_MODE": "monitor"}))
	require.Equal(t, times(3*qosAlways, http.StatusOK), askAs(t, v, e.URL, 3*qosAlways, alice))
	await.True(t, "what would have been refused is counted", func() bool {
		m := scrape.Get(t, e.Admin)
		return m.Sum("ccnq_qos_decisions_total", `reason="badIp"`) == 2*qosAlways &&
			m.Sum("ccnq_requests_total", `verdict="would-deny"`) == 2*qosAlways
	})
}

func TestQoS_StatusAndOptions(t *testing.T) {
	t.Parallel()
	e, v, _ := alone(t, qosSettings("IP").With(cluster.Settings{
		"CCNQ_QOS_ERROR_STATUS_CODE": "429", "CCNQ_QOS_IP_WHITELIST": alice, "CCNQ_QOS_LAG_SOURCE": "origin",
	}))
	require.Equal(t, times(2*qosAlways, http.StatusOK), askAs(t, v, e.URL, 2*qosAlways, alice))
	require.Equal(t, append(times(qosAlways, http.StatusOK), http.StatusTooManyRequests), askAs(t, v, e.URL, qosAlways+1, bob))
}

// TestQoS_ConnectionsOfRefusedClients: the client's own connection ends with the
// refusal, that of a proxy goes on, also with the next client's request.
func TestQoS_ConnectionsOfRefusedClients(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name     string
		settings cluster.Settings
		ends     bool
	}{
		{"a trusted proxy", nil, false},
		{"a client", cluster.Settings{"CCNQ_CLIENT_IP_HEADER": "", "CCNQ_TRUSTED_PROXIES": ""}, true},
		{"a client, kept", cluster.Settings{
			"CCNQ_CLIENT_IP_HEADER": "", "CCNQ_TRUSTED_PROXIES": "", "CCNQ_QOS_DESTROY_SOCKET": "false",
		}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			e, _, _ := alone(t, qosSettings("IP").With(tc.settings))
			c := visitor.Dial(t, e.URL)
			ask := func(ip string) visitor.Answer {
				c.Lines(t, "GET / HTTP/1.1", "Host: site.example", visitor.AddressField+": "+ip, "")
				return c.Answer(t)
			}
			for range qosAlways {
				require.Equal(t, http.StatusOK, ask(alice).Status)
			}
			require.Equal(t, http.StatusServiceUnavailable, ask(alice).Status)
			if tc.ends {
				require.True(t, c.Ended(t))
				return
			}
			want := http.StatusOK
			if tc.settings != nil {
				want = http.StatusServiceUnavailable // it is one client to the edge
			}
			require.Equal(t, want, ask(bob).Status)
		})
	}
}

// TestQoS_HTTP2 has a refusal arrive whole before its connection ends.
func TestQoS_HTTP2(t *testing.T) {
	t.Parallel()
	e, _, _ := alone(t, qosSettings("IP").With(cluster.Settings{"CCNQ_CLIENT_IP_HEADER": "", "CCNQ_TRUSTED_PROXIES": ""}))
	var dialled atomic.Int64
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols, DialContext: counting(&dialled)}
	t.Cleanup(transport.CloseIdleConnections)
	ask := func() *http.Response {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, e.URL, nil)
		require.NoError(t, err)
		resp, err := transport.RoundTrip(r)
		require.NoError(t, err)
		require.Equal(t, 2, resp.ProtoMajor)
		require.NoError(t, resp.Body.Close())
		return resp
	}
	for range qosAlways {
		require.Equal(t, http.StatusOK, ask().StatusCode)
	}
	require.EqualValues(t, 1, dialled.Load())
	refused := ask()
	require.Equal(t, http.StatusServiceUnavailable, refused.StatusCode)
	require.Equal(t, "600", refused.Header.Get("Retry-After"))
	require.EqualValues(t, 1, dialled.Load())
	await.True(t, "a later request needs a new connection", func() bool {
		require.Equal(t, http.StatusServiceUnavailable, ask().StatusCode)
		return dialled.Load() > 1
	})
}

// counting dials and counts.
func counting(n *atomic.Int64) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		n.Add(1)
		var d net.Dialer
		return d.DialContext(ctx, network, address)
	}
}

// TestQoS_FeedsTheDenylist: refusals by the limits make a block if they are told
// to, and none if they are not.
func TestQoS_FeedsTheDenylist(t *testing.T) {
	t.Parallel()
	for _, feeds := range []bool{true, false} {
		t.Run(strconv.FormatBool(feeds), func(t *testing.T) {
			t.Parallel()
			c := cluster.New(t, cluster.Options{
				Edges: 2, Denylist: true, Rules: rulesA,
				Settings: qosSettings("IP").With(limits("1", "0")).With(cluster.Settings{
					"CCNQ_QOS_FEEDS_DENYLIST":              strconv.FormatBool(feeds),
					"CCNQ_QUEUE_DENYLIST_EXCEED_THRESHOLD": "1",
					"CCNQ_QUEUE_DENYLIST_DAILY_THRESHOLD":  "3",
				}),
			})
			require.Equal(t, append(times(qosAlways, http.StatusOK), times(3, http.StatusServiceUnavailable)...),
				askAs(t, c.Visitors, c.Edges[0].URL, qosAlways+3, alice))
			if feeds {
				blockedAt(t, c, 0, alice)
				blockedAt(t, c, 1, alice)
				return
			}
			// Three refusals of the queue that come later do make a block.
			held, pending := occupy(t, c, visitor.Request{IP: carol, Path: "/a/"})
			neighbour := "198.51.100.99"
			require.Equal(t, times(3, http.StatusTooManyRequests), askAs(t, c.Visitors, c.Edges[0].URL+"/a", 3, neighbour))
			finish(t, held, pending)
			blockedAt(t, c, 1, neighbour)
			await.True(t, "the refusals by the limits have been published", func() bool {
				return c.Stored(t, wire.StreamRefusals, "ccnq.v1.events.denied.qos."+c.Edges[0].ID)
			})
			require.Zero(t, c.Count(t, "SELECT count(*) FROM ip_denial_count WHERE ip = $1", alice))
			require.Equal(t, http.StatusOK, c.Get(t, visitor.Request{Edge: c.Edges[1].URL, IP: alice}).Status)
		})
	}
}
