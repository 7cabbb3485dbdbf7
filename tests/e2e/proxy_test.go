package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/tests/internal/cluster"
	"github.com/ccnq/ccnq/tests/internal/origin"
	"github.com/ccnq/ccnq/tests/internal/visitor"
)

func TestF20_HeadersThatAClientMayNotRemove(t *testing.T) {
	t.Parallel()
	c := cluster.New(t, cluster.Options{})
	answer := visitor.Ask(t, c.Edges[0].URL,
		"GET / HTTP/1.1", "Host: site.example", visitor.AddressField+": "+alice, origin.Do+": "+origin.DoEcho,
		"X-Forwarded-For: 198.51.100.66", "X-Request-Id: chosen", "Cookie: a=b", "X-Kept: yes",
		"Connection:", "Connection: X-Forwarded-For, X-Request-Id, Cookie, close", "Keep-Alive: timeout=5",
		"TE: trailers, gzip", "Proxy-Authorization: x", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__",
	)
	got := seen(t, answer)
	require.Equal(t, []string{"127.0.0.1"}, got.Header["X-Forwarded-For"], "the proxy's own, and nothing that was named away")
	require.Len(t, got.Header["X-Request-Id"], 1)
	require.NotEqual(t, "chosen", got.Header.Get("X-Request-Id"))
	require.Equal(t, "trailers", got.Header.Get("Te"))
	require.Equal(t, "yes", got.Header.Get("X-Kept"))
	for _, name := range []string{"Connection", "Keep-Alive", "Proxy-Authorization", "Upgrade", "Http2-Settings", "Cookie"} {
		require.NotContains(t, got.Header, name)
	}
}

func TestF21_APathThatBeginsWithTwoSlashes(t *testing.T) {
	t.Parallel()
	c := cluster.New(t, cluster.Options{})
	other := origin.New(t) // never to be contacted
	elsewhere := other.URL[len("http://"):]
	ask := func(requestLine, host string) visitor.Answer {
		t.Helper()
		return visitor.Ask(t, c.Edges[0].URL, requestLine, "Host: "+host,
			visitor.AddressField+": "+alice, origin.Do+": "+origin.DoEcho)
	}
	got := seen(t, ask("GET //"+elsewhere+"/x HTTP/1.1", "site.example"))
	require.Equal(t, "//"+elsewhere+"/x", got.Target, "a path, byte for byte")
	require.Equal(t, "site.example", got.Host)

	got = seen(t, ask("GET http://"+elsewhere+"/x?y HTTP/1.1", "site.example"))
	require.Equal(t, "/x?y", got.Target)
	require.Equal(t, elsewhere, got.Host, "the target wins over Host (RFC 9112 section 3.2.2)")

	backslash := ask(`GET /\`+elsewhere+`/ HTTP/1.1`, "site.example")
	if backslash.Status == served {
		require.Equal(t, `/\`+elsewhere+`/`, seen(t, backslash).Target)
	} else {
		require.Equal(t, 400, backslash.Status)
	}
	for _, target := range []string{"@" + elsewhere + "/", "x", "*", elsewhere, "http:///x", "ftp://" + elsewhere + "/"} {
		require.Equal(t, 400, ask("GET "+target+" HTTP/1.1", "site.example").Status, target)
	}
	require.Zero(t, other.Total())
	c.NothingLeft(t)
}

// TestProxy_MalformedRequestsNeverReachTheOrigin and leave the edge unharmed.
func TestProxy_MalformedRequestsNeverReachTheOrigin(t *testing.T) {
	t.Parallel()
	c := cluster.New(t, cluster.Options{})
	for name, lines := range map[string][]string{
		"no host":             {"GET / HTTP/1.1"},
		"two hosts":           {"GET / HTTP/1.1", "Host: a.example", "Host: b.example"},
		"two lengths":         {"POST / HTTP/1.1", "Host: a.example", "Content-Length: 1", "Content-Length: 2"},
		"a negative length":   {"POST / HTTP/1.1", "Host: a.example", "Content-Length: -1"},
		"an unknown coding":   {"POST / HTTP/1.1", "Host: a.example", "Transfer-Encoding: gzip, chunked"},
		"a blank in a name":   {"GET / HTTP/1.1", "Host: a.example", "Bad Name: x"},
		"a control character": {"GET / HTTP/1.1", "Host: a.example", "X-A: a\x00b"},
		"a bad version":       {"GET / HTTP/9.1", "Host: a.example"},
		"a bad escape":        {"GET /%zz HTTP/1.1", "Host: a.example"},
	} {
		answer := visitor.Ask(t, c.Edges[0].URL, lines...)
		require.GreaterOrEqual(t, answer.Status, 400, name)
		require.NotEqual(t, 502, answer.Status, name)
	}
	require.Zero(t, c.Origin.Total())
	c.NothingLeft(t)
}
