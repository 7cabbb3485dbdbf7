package rfc9111

import (
	"crypto/tls"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

// ask makes a request as the listener would, with the target's bytes as they are.
func ask(host, target string, lines ...string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Host, r.RequestURI, r.Header = host, target, fields(lines...)
	return r
}

func secure(r *http.Request) *http.Request {
	r.TLS = &tls.ConnectionState{}
	return r
}

// TestF12_KeyParts: what the origin tells apart has keys of its own, and what it does not has one (RFC 9111 section 2,
// RFC 9110 section 4.2.3).
func TestF12_KeyParts(t *testing.T) {
	t.Parallel()
	p := &Policy{}
	head := ask("one.example", "/get?name=x")
	head.Method = http.MethodHead
	for name, requests := range map[string][]*http.Request{
		"one resource": {
			ask("one.example", "/get?name=x"), ask("ONE.example", "/get?name=x"), ask("one.example:80", "/get?name=x"), ask("one.example:", "/get?name=x"),
			ask("one.example", "http://ignored.example/get?name=x"), head,
			ask("one.example", "/get?name=x", "X-Forwarded-Host: evil.example", "Cookie: a=b"),
		},
		"one secure resource": {secure(ask("one.example", "/")), secure(ask("One.Example:443", "https://one.example")), secure(ask("one.example:", "/"))},
		"empty path":          {ask("one.example", "http://one.example?b"), ask("one.example", "/?b")},
	} {
		for i, r := range requests {
			require.Equal(t, p.Key(requests[0], false), p.Key(r, false), "%s, %d", name, i)
		}
	}
	seen := map[Key]string{}
	for _, r := range []*http.Request{
		ask("one.example", "/get?name=x"), ask("one.example", "/?getname=x"), ask("two.example", "/get?name=x"),
		ask("one.example", "/a?b"), ask("one.example", "/a%3Fb"), ask("one.example", "/a%3fb"), ask("one.example", "/a"),
		ask("one.example", "/a?"), ask("one.example", "//a"), ask("one.example", "/b/../a"), ask("one.example", "/%61"),
		ask("one.example:443", "/a"), ask("one.example:8080", "/a"), secure(ask("one.example", "/a")),
		secure(ask("one.example:80", "/a")), ask("one.example.", "/a"), ask("one.examplea", "/"), ask("one.example", "/A"),
		ask("one.exampl", "e/a"), ask("", "/a"), ask("[::1]", "/a"), ask("one.example::", "/a"),
	} {
		key := p.Key(r, false)
		require.Empty(t, seen[key], "%s %s", r.Host, r.RequestURI)
		seen[key] = r.Host + " " + r.RequestURI
	}
}

// TestF12_ForwardedFields: an origin may build its pages from what trusted proxies say, so that is part of the key.
func TestF12_ForwardedFields(t *testing.T) {
	t.Parallel()
	p := &Policy{}
	plain := p.Key(ask("one.example", "/"), true)
	seen := map[Key]string{plain: "plain"}
	for _, line := range []string{
		"X-Forwarded-Host: a", "X-Forwarded-Host: b", "X-Forwarded-Proto: https", "X-Forwarded-Prefix: /a", "X-Forwarded: a",
		"X_Forwarded_Host: a", "x_forwarded-host: b", "X-Forwarded_Proto: https",
		"Forwarded: host=a", "Forwarded: for=1;host=b", "Forwarded: proto=https", "Forwarded: proto=https;host=a",
	} {
		r := ask("one.example", "/", line)
		require.Equal(t, plain, p.Key(r, false), "an untrusted %s is dropped on the way", line)
		key := p.Key(r, true)
		require.Empty(t, seen[key], line)
		seen[key] = line
	}
	for _, line := range []string{"X-Forwarded-For: 192.0.2.1", "X_Forwarded_For: 192.0.2.1", "X_Other: a", "Forwarded: for=192.0.2.1;by=x, For=192.0.2.2"} {
		require.Equal(t, plain, p.Key(ask("one.example", "/", line), true), "addresses do not split the cache: %s", line)
	}
	require.Equal(t,
		p.Key(ask("one.example", "/", "X-Forwarded-Host: a", "X-Forwarded-Proto: b", "Forwarded: for=1;host=c"), true),
		p.Key(ask("one.example", "/", "Forwarded: for=2;host=c", "X-Forwarded-Proto: b", "X-Forwarded-Host: a"), true))
}

func TestPolicy_KeyWithoutQuery(t *testing.T) {
	t.Parallel()
	p := &Policy{IgnoreQuery: true}
	require.Equal(t, p.Key(ask("a", "/x"), false), p.Key(ask("a", "/x?y=1"), false))
	require.NotEqual(t, p.Key(ask("a", "/x"), false), p.Key(ask("a", "/x%3Fy=1"), false))
	res, reason := p.Store(ask("A:80", "/x?y=1"), 200, fields("Cache-Control: max-age=1"), start, start)
	require.Equal(t, Stored, reason)
	require.Equal(t, "http://a/x", res.URL)
}

func TestPolicy_StoreURL(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		r    *http.Request
		want string
	}{
		{ask("One.example:80", "/a%20B?c"), "http://one.example/a%20B?c"},
		{ask("one.example:443", "/"), "http://one.example:443/"},
		{secure(ask("one.example:443", "/")), "https://one.example/"},
		{ask("one.example", "http://one.example"), "http://one.example/"},
		{get(), "http://one.example/a?b"},
	} {
		res, reason := (&Policy{}).Store(tt.r, 200, fields("Cache-Control: max-age=1"), start, start)
		require.Equal(t, Stored, reason)
		require.Equal(t, tt.want, res.URL)
	}
}

// TestPolicy_KeyIsStable: keys outlive a restart, so they must not change unless the codec's version does.
func TestPolicy_KeyIsStable(t *testing.T) {
	t.Parallel()
	key := (&Policy{}).Key(ask("one.example", "/a?b"), false)
	require.Equal(t, "6058c0170e3d2a72fd421aa857b1a7d2", hex.EncodeToString(key[:]))
}

//nolint:paralleltest // it counts allocations
func TestPolicy_KeyAllocatesNothing(t *testing.T) {
	p, r := &Policy{}, ask("One.example:80", "/some/longer/path/to/a/page?with=a&query=string")
	index := NewIndex("", []string{"Accept-Encoding", "Accept-Language", "X-Other"}, 1)
	h := fields("Accept-Encoding: gzip, deflate, br, zstd", "Accept-Language: en-GB,en;q=0.9,de;q=0.8", "X-Other: a, b")
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if p.Key(r, false) == (Key{}) || index.Variant(Key{}, h) == (Key{}) {
			t.Fail()
		}
	}))
}
