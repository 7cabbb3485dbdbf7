package proxy_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/services/edge/internal/proxy"
)

func trustAll(o *proxy.Options) { o.Trusted = func(*http.Request) bool { return true } }

var uuid7 = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)

func TestF20_HeadersThatAClientMayNotRemove(t *testing.T) {
	t.Parallel()
	for name, trust := range map[string]func(*proxy.Options){"Untrusted": nil, "Trusted": trustAll} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			origin, heads := startRecorder(t)
			e := startEdge(t, origin.url, trust)
			res, _ := e.send(t, "GET / HTTP/1.1\r\nHost: site.example\r\n"+
				"Connection:\r\nConnection: X-Forwarded-For, X-Request-Id, Cookie, close\r\nConnection: ,X-Last,,\r\n"+
				"X-Forwarded-For: 198.51.100.66\r\nX-Request-Id: forged\r\nCookie: a=b\r\nX-Last: 1\r\nX-Kept: 2\r\n"+
				"Keep-Alive: timeout=5\r\nProxy-Connection: keep-alive\r\nTE: trailers, gzip\r\nProxy-Authorization: x\r\n"+
				"Upgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n")
			require.Equal(t, http.StatusOK, res.StatusCode)
			head := receive(t, heads)
			for _, gone := range []string{"Connection", "Cookie", "X-Last", "Keep-Alive", "Proxy-Connection", "Proxy-Authorization", "Upgrade", "HTTP2-Settings"} {
				require.Empty(t, field(head, gone), gone)
			}
			require.Equal(t, []string{"127.0.0.1"}, field(head, "X-Forwarded-For"))
			require.Equal(t, []string{"trailers"}, field(head, "TE"))
			require.Equal(t, []string{"2"}, field(head, "X-Kept"))
			id := field(head, "X-Request-Id")
			require.Len(t, id, 1)
			require.Regexp(t, uuid7, id[0])
			require.Equal(t, id[0], e.outcome(t).RequestID)
		})
	}
}

func TestF20_H2CIsNotTunnelled(t *testing.T) {
	t.Parallel()
	for _, upgrade := range []string{"h2c", "H2C", " h2c , h2c"} {
		origin, heads := startRecorder(t)
		e := startEdge(t, origin.url, nil)
		res, _ := e.send(t, "GET / HTTP/1.1\r\nHost: site.example\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: "+upgrade+"\r\nHTTP2-Settings: AAMAAABk\r\n\r\n")
		require.Equal(t, http.StatusOK, res.StatusCode)
		head := receive(t, heads)
		for _, gone := range []string{"Connection", "Upgrade", "HTTP2-Settings"} {
			require.Empty(t, field(head, gone), gone)
		}
	}
}

func TestServe_Forwarded(t *testing.T) {
	t.Parallel()
	const incoming = "X-Forwarded-For: 198.51.100.66\r\nX-Forwarded-For: 203.0.113.9\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: shop.example\r\n" +
		"X-Forwarded-Port: 444\r\nX_Forwarded_Proto: https\r\nForwarded: for=203.0.113.9\r\nX-Request-Id: abc-1\r\nX-Forwardedness: stays\r\n"
	tests := []struct {
		name, fields string
		trust        func(*proxy.Options)
		want         map[string][]string
	}{
		{"Trusted", incoming, trustAll, map[string][]string{
			"X-Forwarded-For": {"198.51.100.66, 203.0.113.9, 127.0.0.1"}, "X-Forwarded-Proto": {"https"}, "X-Forwarded-Host": {"shop.example"},
			"X-Forwarded-Port": {"444"}, "X_Forwarded_Proto": {"https"}, "Forwarded": {"for=203.0.113.9"}, "X-Request-Id": {"abc-1"},
		}},
		{"Untrusted", incoming, nil, map[string][]string{
			"X-Forwarded-For": {"127.0.0.1"}, "X-Forwarded-Proto": {"http"}, "X-Forwarded-Host": {"site.example"},
			"X-Forwarded-Port": nil, "X_Forwarded_Proto": nil, "Forwarded": nil, "X-Forwardedness": {"stays"},
		}},
		{"TrustedWithout", "", trustAll, map[string][]string{
			"X-Forwarded-For": {"127.0.0.1"}, "X-Forwarded-Proto": {"http"}, "X-Forwarded-Host": {"site.example"}, "Forwarded": nil,
		}},
		{"TrustedEmpty", "X-Forwarded-Proto:\r\nX-Forwarded-Host:\r\n", trustAll, map[string][]string{
			"X-Forwarded-Proto": {"http"}, "X-Forwarded-Host": {"site.example"},
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			origin, heads := startRecorder(t)
			e := startEdge(t, origin.url, test.trust)
			e.send(t, "GET / HTTP/1.1\r\nHost: site.example\r\n"+test.fields+"\r\n")
			head := receive(t, heads)
			for name, want := range test.want {
				require.Equal(t, want, field(head, name), name)
			}
			require.Len(t, field(head, "X-Request-Id"), 1)
		})
	}
}

func TestServe_RequestID(t *testing.T) {
	t.Parallel()
	origin, heads := startRecorder(t)
	e := startEdge(t, origin.url, trustAll)
	for id, kept := range map[string]bool{
		"a": true, "0192f0c1-aaaa:x/y=z+@~.": true, strings.Repeat("x", 128): true,
		strings.Repeat("x", 129): false, "a b": false, "a\"b": false, "caf\xe9": false, "": false,
	} {
		e.send(t, "GET / HTTP/1.1\r\nHost: site.example\r\nX-Request-Id: "+id+"\r\n\r\n")
		got := field(receive(t, heads), "X-Request-Id")
		require.Len(t, got, 1)
		if kept {
			require.Equal(t, id, got[0])
		} else {
			require.Regexp(t, uuid7, got[0])
		}
		require.Equal(t, got[0], e.outcome(t).RequestID)
	}
}

func TestServe_ResponseHeaders(t *testing.T) {
	t.Parallel()
	origin := startRawOrigin(t, func(c net.Conn, br *bufio.Reader) {
		if _, err := readHead(br); err == nil {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nConnection: X-Hop, keep-alive\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\nSet-Cookie: a=1\r\n"+
				"Proxy-Authenticate: x\r\nUpgrade: foo\r\nSet-Cookie: b=2\r\nX-Cache: HIT\r\nCache-Status: inner; hit\r\nX-Kept: \xe9\r\nContent-Length: 2\r\n\r\nok")
		}
	})
	e := startEdge(t, origin.url, nil, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Cache", "MISS")
			w.Header().Set("Cache-Status", "ccnq; fwd=miss")
			next.ServeHTTP(w, r)
		})
	})
	res, body := e.send(t, "GET / HTTP/1.1\r\nHost: site.example\r\n\r\n")
	require.Equal(t, "ok", body)
	require.NotEmpty(t, res.Header["Date"], "RFC 9110 section 6.6.1")
	delete(res.Header, "Date")
	require.Equal(t, http.Header{
		"Cache-Status": {"inner; hit", "ccnq; fwd=miss"}, "Content-Length": {"2"}, "Set-Cookie": {"a=1", "b=2"}, "X-Cache": {"MISS"}, "X-Kept": {"\xe9"},
	}, res.Header, "no Server, no Content-Type is invented, hop-by-hop fields are gone, the gate's own field wins")
	require.False(t, res.Close)
}
