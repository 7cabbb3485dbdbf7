package e2e

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/pkg/config"
	"github.com/ccnq/ccnq/services/edge"
	"github.com/ccnq/ccnq/tests/internal/cluster"
	"github.com/ccnq/ccnq/tests/internal/origin"
	"github.com/ccnq/ccnq/tests/internal/visitor"
)

// addressFrom starts a cluster that reads addresses from a header, with one
// place in each group and the group of 203.0.113.0/24 and that of
// 2001:db8:5::/64 taken. ask sends a request with the given header lines and
// returns its status: refused says that it was counted in one of the two. Its
// own place is free again when it returns.
func addressFrom(t *testing.T, header string, settings cluster.Settings) (c *cluster.Cluster, ask func(lines ...string) visitor.Answer) {
	t.Helper()
	c = cluster.New(t, cluster.Options{
		Settings: limits("1", "0").With(cluster.Settings{"CCNQ_CLIENT_IP_HEADER": header}).With(settings),
	})
	var taken int
	ask = func(lines ...string) visitor.Answer {
		t.Helper()
		answer := visitor.Ask(t, c.Edges[0].URL, append([]string{
			"GET / HTTP/1.1", "Host: site.example", origin.Do + ": " + origin.DoEcho,
		}, lines...)...)
		c.Active(t, taken)
		return answer
	}
	for _, value := range []string{alice, dave} {
		if header == "Forwarded" {
			value = `for="[::ffff:203.0.113.7]"`
			if len(c.Origin.Order()) == 1 {
				value = `for="[2001:db8:5::9]"`
			}
		}
		conn := visitor.Dial(t, c.Edges[0].URL)
		conn.Lines(t, "GET / HTTP/1.1", "Host: site.example", header+": "+value,
			origin.Do+": "+origin.DoHold, origin.Mark+": held", "")
		held := c.Origin.Next(t)
		t.Cleanup(held.Release)
	}
	taken, _ = c.Rows(t) // less than two where one of them is allowlisted
	return c, ask
}

// seen is the request of an answer of [origin.DoEcho].
func seen(t *testing.T, a visitor.Answer) origin.Seen {
	t.Helper()
	require.Equal(t, served, a.Status, a.Body)
	var s origin.Seen
	require.NoError(t, json.Unmarshal([]byte(a.Body), &s), a.Body)
	return s
}

func TestF01_SeveralXForwardedForLines(t *testing.T) {
	t.Parallel()
	_, ask := addressFrom(t, "X-Forwarded-For", nil)
	forged, added := "X-Forwarded-For: 198.51.100.66", "X-Forwarded-For: 203.0.113.9"
	require.Equal(t, refused, ask(forged, added).Status, "the proxy's line decides")
	got := seen(t, ask(added, forged))
	require.Equal(t, []string{"203.0.113.9, 198.51.100.66, 127.0.0.1"}, got.Header["X-Forwarded-For"],
		"one list in order of arrival with the peer at its end")
	got = seen(t, ask("X-Forwarded-For: 203.0.113.9, 198.51.100.66", "x-forwarded-for: 127.0.0.2"))
	require.Equal(t, []string{"203.0.113.9, 198.51.100.66, 127.0.0.2, 127.0.0.1"}, got.Header["X-Forwarded-For"],
		"trusted proxies on the right are skipped")
}

func TestF02_OddEntriesInTheForwardedList(t *testing.T) {
	t.Parallel()
	t.Run("X-Forwarded-For", func(t *testing.T) {
		t.Parallel()
		_, ask := addressFrom(t, "X-Forwarded-For", nil)
		for _, value := range []string{
			"203.0.113.9:51234", "203.0.113.9:51235", "[2001:db8:5::9]:4711", ",,203.0.113.9", " 203.0.113.9 \t ",
			`garbage", 203.0.113.9`, "unknown, 203.0.113.9", strings.Repeat("junk, ", 1365) + "203.0.113.9",
		} {
			require.Equal(t, refused, ask("X-Forwarded-For: "+value).Status, "%.60q", value)
		}
		// The socket peer, which is a trusted proxy: nobody known.
		require.Equal(t, served, ask("X-Forwarded-For: ").Status)
		require.Equal(t, served, ask("X-Forwarded-For: 203.0.113.9, garbage").Status)
	})
	t.Run("Forwarded", func(t *testing.T) {
		t.Parallel()
		_, ask := addressFrom(t, "Forwarded", nil)
		require.Equal(t, refused, ask(`Forwarded: for="[2001:db8:5::9]:4711";proto=https`).Status)
		answer := ask(`Forwarded: for=injected;by=", for=203.0.113.9`)
		require.Contains(t, []int{served, refused}, answer.Status)
	})
}

// TestF03_IPv4WrittenAsIPv6 has the part of the queue and the allowlist; that
// of blocks comes with the denylist.
func TestF03_IPv4WrittenAsIPv6(t *testing.T) {
	t.Parallel()
	c, ask := addressFrom(t, "X-Client-Ip", cluster.Settings{"CCNQ_QUEUE_ALLOWLIST": "203.0.113.128/25"})
	for _, ip := range []string{"203.0.113.9", "::ffff:203.0.113.7", "::ffff:cb00:7107", "0:0:0:0:0:ffff:203.0.113.7"} {
		answer := ask("X-Client-Ip: " + ip)
		require.Equal(t, refused, answer.Status, "%s is of the group of %s", ip, alice)
		lines := c.Edges[0].Log.Lines(t, "refused")
		require.NotContains(t, lines[len(lines)-1]["client"], "ffff", "the log has the plain form")
	}
	require.Equal(t, served, ask("X-Client-Ip: ::ffff:203.0.113.200").Status, "allowlisted")
	require.Equal(t, served, ask("X-Client-Ip: ::ffff:198.51.100.20").Status, "of another group")
	requireVerdicts(t, c, 1, "allowlisted")
}

func TestF04_ARangeWrittenWithTheMappedPrefix(t *testing.T) {
	t.Parallel()
	t.Run("what it means", func(t *testing.T) {
		t.Parallel()
		c, ask := addressFrom(t, "X-Client-Ip", cluster.Settings{"CCNQ_QUEUE_ALLOWLIST": "::ffff:203.0.113.128/121"})
		require.Equal(t, served, ask("X-Client-Ip: 203.0.113.128").Status)
		require.Equal(t, refused, ask("X-Client-Ip: 203.0.113.127").Status)
		require.Equal(t, refused, ask("X-Client-Ip: 2001:db8:5::1").Status, "nothing of IPv6")
		requireVerdicts(t, c, 1, "allowlisted")
	})
	t.Run("all of IPv4", func(t *testing.T) {
		t.Parallel()
		_, ask := addressFrom(t, "X-Client-Ip", cluster.Settings{"CCNQ_TRUSTED_PROXIES": "127.0.0.1", "CCNQ_QUEUE_ALLOWLIST": "::ffff:0:0/96"})
		require.Equal(t, served, ask("X-Client-Ip: 203.0.113.5").Status)
		require.Equal(t, refused, ask("X-Client-Ip: 2001:db8:5::1").Status, "and nothing of IPv6")
	})
	for _, name := range []string{"CCNQ_QUEUE_ALLOWLIST", "CCNQ_TRUSTED_PROXIES"} {
		for _, entry := range []string{
			"::ffff:10.0.0.0/64", "198.51.100.0/33", "198.51.100.30-198.51.100.10", "2001:db8::1-198.51.100.9",
		} {
			t.Run(name+" "+entry, func(t *testing.T) {
				t.Parallel()
				var cfg edge.Config
				err := config.Load(cluster.Common("http://127.0.0.1:1").With(cluster.Settings{
					name: "192.0.2.1," + entry,
				}).Environ(), &cfg)
				require.ErrorContains(t, err, name)
				require.ErrorContains(t, err, entry)
				require.NotContains(t, err.Error(), "192.0.2.1", "the good entry is not blamed")
			})
		}
	}
}
