package proxy

import (
	"bufio"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// Whatever the target, it is refused or goes to the configured origin with the client's own bytes.
func FuzzRequestTarget(f *testing.F) {
	for _, target := range []string{
		"/", "//evil.example/x", "/\\evil.example/", "http://evil.example/x", "@evil.example/", "*", "/a%2Fb?", "//a|b?c", "/x?a=%zz;b",
		"HTTPS://u@h/p", "http://h?x", "mailto:x", "http:///x", "/caf\xe9", "///", "http://h//a//b", "http://[::1]:80/#f",
	} {
		f.Add("GET", target, "")
		f.Add("OPTIONS", target, "/base")
	}
	f.Fuzz(func(t *testing.T, method, target, base string) {
		raw := method + " " + target + " HTTP/1.1\r\nHost: site.example\r\n\r\n"
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(raw)))
		if err != nil || strings.ContainsAny(method+target, " \r\n") {
			return
		}
		if base != "" && base[0] != '/' {
			return
		}
		upstream, err := url.Parse("http://origin.example" + base)
		if err != nil {
			return
		}
		p, err := New(Options{Upstream: upstream})
		if err != nil {
			return
		}
		sent, err := requestTarget(r)
		if err != nil {
			return
		}
		u, err := p.originURL(sent)
		if err != nil {
			return
		}
		require.Equal(t, "http", u.Scheme)
		require.Equal(t, "origin.example", u.Host)
		written := u.RequestURI()
		if sent == "*" {
			require.Equal(t, "*", written)
			return
		}
		path, ok := strings.CutPrefix(written, strings.TrimRight(upstream.EscapedPath(), "/"))
		require.True(t, ok, written)
		require.True(t, strings.HasPrefix(path, "/"), written)
		// Of an absolute form nothing but the scheme and authority is gone, or the slash of an empty path is new.
		require.True(t, strings.HasSuffix(target, path) || strings.HasSuffix(target, strings.TrimPrefix(path, "/")), "%q sent as %q", target, written)
		if strings.HasPrefix(target, "/") {
			require.Equal(t, target, path)
		}
		require.NotContains(t, written, " ")
	})
}

// Whatever a client sends, the origin sees each of the proxy's own fields once, and from an untrusted peer nothing
// else that looks like one.
func FuzzForwarded(f *testing.F) {
	f.Add("X-Forwarded-For", "198.51.100.66", "X-Forwarded-For", "192.0.2.7:1", false)
	f.Add("X_forwarded_For", "1", "Forwarded", "[2001:db8::7%eth0]:1", false)
	f.Add("X-Request-Id", "abc", "X-Forwarded", "192.0.2.7:1", true)
	f.Add("X-Forwarded-Host", "", "X-Forwarded-Proto", "@", true)
	f.Fuzz(func(t *testing.T, name1, value, name2, remote string, trusted bool) {
		in := &http.Request{Header: http.Header{}, Host: "site.example", RemoteAddr: remote}
		in.Header.Add(name1, value)
		in.Header.Add(name2, value)
		out := in.Header.Clone()
		for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
			delete(out, name) // as ReverseProxy does
		}
		id := setForwarded(out, in, trusted, "", time.Now())
		require.Equal(t, []string{id}, out["X-Request-Id"])
		require.True(t, validRequestID(id))
		for _, name := range []string{"X-Forwarded-Host", "X-Forwarded-Proto"} {
			require.Len(t, out[name], 1)
			require.NotEmpty(t, out[name][0])
		}
		peer := peerAddress(remote)
		require.NotContains(t, peer, "%")
		if peer != "" {
			require.Len(t, out["X-Forwarded-For"], 1)
			require.True(t, strings.HasSuffix(out["X-Forwarded-For"][0], peer))
		}
		if trusted {
			return
		}
		if peer != "" {
			require.Equal(t, []string{peer}, out["X-Forwarded-For"])
		}
		require.NoError(t, uuid.Validate(id))
		for name := range out {
			plain := strings.ReplaceAll(strings.ToLower(name), "_", "-")
			if plain == "forwarded" || plain == "x-forwarded" || strings.HasPrefix(plain, "x-forwarded-") {
				require.Contains(t, []string{"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"}, name)
			}
		}
	})
}

func TestNewRequestID(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(1_700_000_000_123)
	seen := map[string]bool{}
	for range 1000 {
		id, err := uuid.Parse(newRequestID(now))
		require.NoError(t, err)
		require.EqualValues(t, 7, id.Version())
		require.Equal(t, uuid.RFC4122, id.Variant())
		sec, nsec := id.Time().UnixTime()
		require.Equal(t, now.UnixMilli(), time.Unix(sec, nsec).UnixMilli())
		seen[id.String()] = true
	}
	require.Len(t, seen, 1000)
}
