package cache

import (
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMissThenHit(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	first := s.get("/a").is(t, "MISS", "fwd=uri-miss")
	require.Equal(t, "page /a", first.body)
	require.Empty(t, first.Header["Age"])
	second := s.get("/a").is(t, "HIT", "ccnq; hit; ttl=")
	require.Equal(t, "page /a", second.body)
	require.NotEmpty(t, second.Header.Get("Age"))
	require.Equal(t, first.Header.Get("Date"), second.Header.Get("Date"))
	require.EqualValues(t, 7, second.ContentLength)
	require.EqualValues(t, 1, s.asked.Load())
}

func TestF09_HeadAndGetShareAResource(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	s.answer(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "max-age=60")
		w.Header().Set("Content-Length", "5120")
		if r.Method == http.MethodGet {
			_, _ = w.Write(make([]byte, 5120))
		}
	})
	check := func(method string, how string) {
		t.Helper()
		r := s.ask(method, "/page").is(t, how, "")
		require.EqualValues(t, 5120, r.ContentLength)
		want := 5120
		if method == http.MethodHead {
			want = 0
		}
		require.Len(t, r.body, want)
	}
	check(http.MethodHead, "MISS")
	check(http.MethodGet, "MISS")
	check(http.MethodHead, "HIT")
	check(http.MethodGet, "HIT")
	require.EqualValues(t, 2, s.asked.Load())
}

func TestBypass(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	s.answer(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "max-age=60")
		_, _ = io.Copy(w, r.Body)
	})
	s.ask(http.MethodPost, "/a").is(t, "BYPASS", "fwd=method")
	s.ask(http.MethodOptions, "/a").is(t, "BYPASS", "fwd=bypass")
	require.EqualValues(t, 2, s.asked.Load())
}

// TestCacheStatusOfOthers: what other caches have said stays, and this one's word comes last (RFC 9211 section 2).
func TestCacheStatusOfOthers(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	g := newGate()
	t.Cleanup(g.open)
	s.answer(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "max-age=60")
		w.Header().Add("Cache-Status", "inner; hit")
		w.Header().Add("Cache-Status", "outer; fwd=miss")
		if r.URL.Path != "/shared" || g.wait(r) {
			_, _ = io.WriteString(w, "page")
		}
	})
	check := func(r reply, own string) {
		t.Helper()
		require.NoError(t, r.err)
		lines := r.Header["Cache-Status"]
		require.Len(t, lines, 3)
		require.Equal(t, []string{"inner; hit", "outer; fwd=miss"}, lines[:2])
		require.Contains(t, lines[2], own)
	}
	all := s.herd(3, "/shared")
	s.following(3)
	g.open()
	for _, one := range all {
		check(receive(t, one), "ccnq; fwd=uri-miss")
	}
	check(s.get("/shared"), "ccnq; hit")
	check(s.get("/shared", "Range: bytes=0-1"), "ccnq; hit")
	check(s.get("/alone", "Range: bytes=0-1"), "ccnq; fwd=partial; ttl=")
	check(s.get("/alone"), "ccnq; hit")
	check(s.ask(http.MethodPost, "/alone"), "ccnq; fwd=method")
}
