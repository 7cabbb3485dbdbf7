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
