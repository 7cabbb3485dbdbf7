package e2e

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/tests/internal/cluster"
	"github.com/ccnq/ccnq/tests/internal/origin"
	"github.com/ccnq/ccnq/tests/internal/visitor"
)

// askRaw sends a request of bob's, whose group is full, with the very bytes.
func askRaw(t *testing.T, c *cluster.Cluster, requestLine string, lines ...string) visitor.Answer {
	t.Helper()
	return visitor.Ask(t, c.Edges[0].URL, append([]string{
		requestLine, "Host: site.example", visitor.AddressField + ": " + bob, origin.Do + ": " + origin.DoEcho,
	}, lines...)...)
}

// ruled starts a cluster with a ruleset, where the group of alice and bob is
// full. occupied must be in scope.
func ruled(t *testing.T, rules string, occupied visitor.Request) *cluster.Cluster {
	t.Helper()
	c := cluster.New(t, cluster.Options{Rules: rules, Settings: limits("1", "0")})
	occupied.IP = alice
	occupy(t, c, occupied)
	return c
}

func TestF05_AllConditionsOfAGroupMustHold(t *testing.T) {
	t.Parallel()
	conditions := []string{
		`{"target": "path", "matchType": "endsWith", "value": ".pdf"}`,
		`{"target": "header", "name": "authorization", "negate": true}`,
		`{"target": "cookie", "name": "session", "negate": true}`,
	}
	for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 0, 2}} {
		var group []string
		for _, i := range order {
			group = append(group, conditions[i])
		}
		c := ruled(t, `[[], [`+strings.Join(group, ", ")+`]]`, visitor.Request{Path: "/a.pdf"})
		require.Equal(t, refused, askRaw(t, c, "GET /x.pdf HTTP/1.1").Status)
		require.Equal(t, served, askRaw(t, c, "GET /x.pdf HTTP/1.1", "Cookie: a=b; session=1").Status)
		require.Equal(t, served, askRaw(t, c, "GET /x.pdf HTTP/1.1", "Authorization:").Status, "empty, but there")
		require.Equal(t, served, askRaw(t, c, "GET /x.html HTTP/1.1").Status)
		requireVerdicts(t, c, 3, "proxied")
	}
}

func TestF06_StrangeButLegalHeaderValues(t *testing.T) {
	t.Parallel()
	c := ruled(t, `[
		[{"target": "header", "name": "accept-language", "matchType": "regex", "value": "^und$"}],
		[{"target": "cookie", "name": "a", "matchType": "startsWith", "value": "x"}],
		[{"target": "cookie", "name": "b", "matchType": "endsWith", "value": "=c"}],
		[{"target": "header", "name": "user-agent", "matchType": "includes", "value": "bot"}],
		[{"target": "query", "name": "b", "matchType": "startsWith", "value": "1"}],
		[{"target": "query", "name": "a", "matchType": "startsWith", "value": "z"}]
	]`, visitor.Request{Path: "/?b=1"})
	long := strings.Repeat("u", 16<<10)
	for _, tc := range []struct {
		name, target string
		lines        []string
		want         int
	}{
		{"language", "/", []string{"Accept-Language: und"}, refused},
		{"cookies", "/", []string{"Cookie: ;;=;a;b==c; =x"}, refused},
		{"cookies that cannot be read", "/", []string{"Cookie: ;;=;a; =x"}, served},
		{"a long agent", "/", []string{"User-Agent: " + long}, served},
		{"a long agent in scope", "/", []string{"User-Agent: " + long + "bot"}, refused},
		{"Latin-1", "/", []string{"X-Name: caf\xe9", "User-Agent: \xe9t\xe9"}, served},
		{"three agents", "/", []string{"User-Agent: one", "User-Agent: two bot", "User-Agent: three"}, refused},
		{"three other agents", "/", []string{"User-Agent: one", "User-Agent: two", "User-Agent: three"}, served},
		{"no agent", "/", nil, served},
		{"a query that can be read in part", "/?a=%zz&b=1;c=2&&=", nil, refused},
		{"a query that cannot be read", "/?a=%zz&&=", nil, served},
	} {
		t.Run(tc.name, func(t *testing.T) {
			answer := askRaw(t, c, "GET "+tc.target+" HTTP/1.1", tc.lines...)
			require.Equal(t, tc.want, answer.Status, answer.Body)
			if tc.want == refused {
				return
			}
			// The origin gets the untouched bytes; JSON shows those that are
			// no UTF-8 as U+FFFD.
			got := seen(t, answer)
			require.Equal(t, tc.target, got.Target)
			wanted := map[string][]string{"User-Agent": nil}
			for _, line := range tc.lines {
				name, value, _ := strings.Cut(line, ": ")
				wanted[name] = append(wanted[name], strings.ToValidUTF8(value, "\ufffd"))
			}
			for name, values := range wanted {
				require.Equal(t, values, got.Header[name], name)
			}
		})
	}
	tooLong := askRaw(t, c, "GET / HTTP/1.1", "User-Agent: "+strings.Repeat("u", 80<<10))
	require.Equal(t, 431, tooLong.Status)
}

func TestF07_EncodedPathsAndRules(t *testing.T) {
	t.Parallel()
	c := ruled(t, `[[
		{"target": "path", "matchType": "startsWith", "value": "/download/"},
		{"target": "path", "matchType": "endsWith", "value": "/file"}
	]]`, visitor.Request{Path: "/download/file"})
	for target, want := range map[string]int{
		"/download/a%3Fb/file":             refused, // an encoded ? does not end the path
		"/download/a%2Fb/file":             refused,
		"/%64ownload/x/file":               refused, // decoded once
		"/download/x/file?y=/other":        refused, // the query takes no part
		"/download/../download/x/file":     refused, // matched as it stands
		"/download/../x/file":              refused,
		"//download/x/file":                served, // not normalised, in no gate
		"/x/../download/x/file":            served,
		"/%2564ownload/x/file":             served, // decoded only once
		"/download/x?/file":                served,
		"/download/x%3Fy/FILE":             served,
		"/other/a%2f%2Fb/%7e~;p=1/./..//?": served,
	} {
		answer := askRaw(t, c, "GET "+target+" HTTP/1.1")
		require.Equal(t, want, answer.Status, target)
		if want == served {
			require.Equal(t, target, seen(t, answer).Target, "the origin gets the client's bytes")
		}
	}
	// The bytes stay the same for requests in scope, too.
	for _, target := range []string{"/download/a%3Fb/file", "/%64ownload/x/file", "/download/../download/x/file"} {
		answer := visitor.Ask(t, c.Edges[0].URL, "GET "+target+" HTTP/1.1", "Host: site.example",
			visitor.AddressField+": "+carol, origin.Do+": "+origin.DoEcho)
		require.Equal(t, target, seen(t, answer).Target)
		c.Active(t, 1) // carol's place is free again
	}
	requireVerdicts(t, c, 3, "admitted")
}
