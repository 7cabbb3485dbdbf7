package rfc9111

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func freshen(t *testing.T, p *Policy, res *Response, after time.Duration, lines ...string) (*Response, NotStored) {
	t.Helper()
	before := res.Append(nil)
	at := start.Add(after)
	fresh, reason := p.Freshen(res, get(), fields(lines...), at, at)
	require.Equal(t, before, res.Append(nil), "the stored one is immutable")
	return fresh, reason
}

// TestPolicy_Freshen pins how a 304 updates what is stored (RFC 9111 section 3.2).
func TestPolicy_Freshen(t *testing.T) {
	t.Parallel()
	p := &Policy{StripSetCookie: true}
	res := store(t, p, "Cache-Control: max-age=60", "Date: "+date(0), `ETag: "a"`, "Foo: 1", "Foo: 2", "Content-Type: text/plain",
		"Content-Length: 5", "Content-Encoding: br", "Content-Range: x", "Content-MD5: x", "Content-Location: /a")
	fresh, reason := freshen(t, p, res, 2*time.Minute, "Date: "+date(2*time.Minute), `ETag: "other"`, "Foo: 3", "Bar: 4",
		"Content-Type: text/html", "Content-Length: 0", "Content-Encoding: gzip", "Content-Range: y", "Content-MD5: y",
		"Content-Location: /b", "Connection: hop", "Hop: 1", "Age: 0", "X-Cache: HIT", "Set-Cookie: a=b")
	require.Equal(t, Stored, reason)
	require.Equal(t, fields("Cache-Control: max-age=60", "Date: "+date(2*time.Minute), `ETag: "a"`, "Foo: 3", "Bar: 4", "Content-Type: text/html",
		"Content-Length: 5", "Content-Encoding: br", "Content-Range: x", "Content-MD5: x", "Content-Location: /b"), fresh.Header)
	require.Equal(t, Validate, res.Decide(Directives{}, start.Add(2*time.Minute)))
	require.Equal(t, Fresh, fresh.Decide(Directives{}, start.Add(2*time.Minute)))
	require.Equal(t, time.Minute, fresh.FreshFor(start.Add(2*time.Minute)))
	require.Equal(t, start.Add(2*time.Minute), fresh.Received())
}

func TestPolicy_FreshenLifetime(t *testing.T) {
	t.Parallel()
	p := &Policy{}
	res := store(t, p, "Cache-Control: max-age=60, stale-if-error=60", "Date: "+date(0), `ETag: "a"`)
	for name, tt := range map[string]struct {
		lines    []string
		age      time.Duration
		freshFor time.Duration
		onError  bool
	}{
		"nothing new":        {freshFor: time.Minute, onError: true},
		"another max-age":    {lines: []string{"Cache-Control: max-age=5"}, freshFor: 5 * time.Second},
		"aged":               {lines: []string{"Age: 20"}, age: 20 * time.Second, freshFor: 40 * time.Second, onError: true},
		"made before":        {lines: []string{"Date: " + date(90*time.Second)}, age: 30 * time.Second, freshFor: 30 * time.Second, onError: true},
		"targeted is stored": {lines: []string{"CDN-Cache-Control: max-age=7"}, freshFor: 7 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fresh, reason := freshen(t, p, res, 2*time.Minute, tt.lines...)
			require.Equal(t, Stored, reason)
			at := start.Add(2 * time.Minute)
			require.Equal(t, tt.age, fresh.Age(at))
			require.Equal(t, tt.freshFor, fresh.FreshFor(at))
			require.Equal(t, tt.onError, fresh.UsableOnError(at.Add(80*time.Second)))
			if len(tt.lines) == 0 {
				require.Equal(t, date(2*time.Minute), fresh.Header.Get("Date"), "when it came, as it has no Date")
			}
		})
	}
}

// TestPolicy_FreshenForTheLastTime pins updates after which a response must be dropped. It still answers the request.
func TestPolicy_FreshenForTheLastTime(t *testing.T) {
	t.Parallel()
	p := &Policy{}
	res := store(t, p, "Cache-Control: max-age=60", `ETag: "a"`, "Vary: Foo", "Keep: me")
	for want, lines := range map[NotStored][]string{
		NoStore:      {"Cache-Control: no-store"},
		Private:      {"Cache-Control: private"},
		NoCache:      {"Cache-Control: no-cache"},
		Stale:        {"Cache-Control: max-age=0"},
		VaryStar:     {"Vary: *"},
		VaryChanged:  {"Vary: Foo, Bar"},
		HeadTooLarge: {"A: " + string(make([]byte, maxHeadBytes))},
	} {
		fresh, reason := freshen(t, p, res, time.Hour, lines...)
		require.Equal(t, want, reason)
		require.Equal(t, "me", fresh.Header.Get("Keep"))
		require.Equal(t, date(time.Hour), fresh.Header.Get("Date"), want)
		require.Equal(t, 200, fresh.Status)
	}
	_, reason := p.Freshen(res, get("Authorization: x"), http.Header{}, start, start)
	require.Equal(t, AuthorizedRequest, reason)
	_, reason = p.Freshen(res, get("Cache-Control: no-store"), http.Header{}, start, start)
	require.Equal(t, NoStoreRequest, reason)
}

func TestPolicy_FreshenKeepsQualifiedFieldsOut(t *testing.T) {
	t.Parallel()
	p := &Policy{}
	res := store(t, p, `Cache-Control: max-age=60, private="Foo"`, "Foo: 1", `ETag: "a"`)
	fresh, reason := freshen(t, p, res, time.Hour, "Foo: 2")
	require.Equal(t, Stored, reason)
	require.Empty(t, fresh.Header["Foo"])
}

// TestPolicy_Invalidates pins what an unsafe request makes invalid (RFC 9111 section 4.4).
func TestPolicy_Invalidates(t *testing.T) {
	t.Parallel()
	p := &Policy{}
	key := func(host, target string) Key { return p.Key(ask(host, target), false) }
	for name, tt := range map[string]struct {
		method string
		status int
		header []string
		want   []Key
	}{
		"POST":                  {method: http.MethodPost, status: 200, want: []Key{key("one.example", "/a/b?c")}},
		"unknown method":        {method: "M-SEARCH", status: 204, want: []Key{key("one.example", "/a/b?c")}},
		"redirect":              {method: http.MethodPut, status: 303, header: []string{"Location: d?e"}, want: []Key{key("one.example", "/a/b?c"), key("one.example", "/a/d?e")}},
		"both":                  {method: http.MethodPut, status: 201, header: []string{"Content-Location: /x%2F", "Location: http://ONE.example:80/y"}, want: []Key{key("one.example", "/a/b?c"), key("one.example", "/y"), key("one.example", "/x%2F")}},
		"another host":          {method: http.MethodPut, status: 201, header: []string{"Location: http://two.example/y"}, want: []Key{key("one.example", "/a/b?c")}},
		"another scheme":        {method: http.MethodPut, status: 201, header: []string{"Location: https://one.example/y"}, want: []Key{key("one.example", "/a/b?c")}},
		"another port":          {method: http.MethodPut, status: 201, header: []string{"Location: http://one.example:81/y"}, want: []Key{key("one.example", "/a/b?c")}},
		"no URL":                {method: http.MethodPut, status: 201, header: []string{"Location: %zz", "Content-Location: mailto:a@one.example"}, want: []Key{key("one.example", "/a/b?c")}},
		"two of them":           {method: http.MethodPut, status: 201, header: []string{"Location: /x", "Location: /y"}, want: []Key{key("one.example", "/a/b?c")}},
		"only a fragment":       {method: http.MethodPut, status: 201, header: []string{"Location: #d"}, want: []Key{key("one.example", "/a/b?c"), key("one.example", "/a/b?c")}},
		"error":                 {method: http.MethodPost, status: 400},
		"error of the origin":   {method: http.MethodDelete, status: 500},
		"no answer":             {method: http.MethodDelete, status: 0},
		"switched protocols":    {method: http.MethodPost, status: 101},
		"safe":                  {method: http.MethodOptions, status: 200},
		"safe, with a Location": {method: http.MethodGet, status: 200, header: []string{"Location: /y"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := ask("one.example", "/a/b?c")
			r.Method = tt.method
			require.Equal(t, tt.want, p.Invalidates(r, false, tt.status, fields(tt.header...)))
		})
	}
	// Without the query in keys, it does not count here either.
	ignoring := &Policy{IgnoreQuery: true}
	r := ask("one.example", "/a?b")
	r.Method = http.MethodPost
	require.Equal(t, []Key{ignoring.Key(ask("one.example", "/a"), false), ignoring.Key(ask("one.example", "/c"), false)},
		ignoring.Invalidates(r, false, 200, fields("Location: /c?d")))
	// A target that no URL can hold is invalidated itself.
	r = httptest.NewRequest(http.MethodPost, "/", nil)
	r.RequestURI = "/%zz"
	require.Len(t, p.Invalidates(r, false, 200, fields("Location: /c")), 1)
}
