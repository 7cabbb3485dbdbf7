package cache

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/services/edge/internal/cache/rfc9111"
)

// TestOtherSettingsEmptyTheCache: what was stored with others, or comes from another origin, is not served after a
// restart, and takes no room.
func TestOtherSettingsEmptyTheCache(t *testing.T) {
	t.Parallel()
	before := rfc9111.Policy{TTL: time.Hour, VaryHeaders: []string{"Accept"}}
	for name, tt := range map[string]struct {
		change func(*Options)
		kept   bool
	}{
		"none":          {func(*Options) {}, true},
		"a larger item": {func(o *Options) { o.MaxItemBytes++ }, true},
		"origin":        {func(o *Options) { o.Origin = "http://b.example" }, false},
		"TTL":           {func(o *Options) { o.Policy.TTL = time.Minute }, false},
		"Cache-Control": {func(o *Options) { o.Policy.IgnoreCacheControl = true }, false},
		"query":         {func(o *Options) { o.Policy.IgnoreQuery = true }, false},
		"Set-Cookie":    {func(o *Options) { o.Policy.StripSetCookie = true }, false},
		"Vary":          {func(o *Options) { o.Policy.VaryHeaders = nil }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			set := func(o *Options) { o.Dir, o.Policy, o.Origin = dir, before, "http://a.example" }
			s := newSite(t, set)
			const host = "Host: site.example"
			s.get("/a", host).is(t, "MISS", "stored")
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			require.NoError(t, s.Stop(ctx))

			s = newSite(t, func(o *Options) { set(o); tt.change(o) })
			if !tt.kept {
				require.True(t, s.Empty())
				s.get("/a", host).is(t, "MISS", "stored")
				return
			}
			s.get("/a", host).is(t, "HIT", "hit")
		})
	}
}

// has waits until so many entries are stored.
func (s *site) has(n int) {
	s.t.Helper()
	require.Eventually(s.t, func() bool { return s.store.Len() == n }, patience, time.Millisecond, "%d are stored", s.store.Len())
}

// TestF24_IndexesGoAfterTheirVariants: a resource that varies leaves nothing behind, and its index lasts as long as any
// of its variants, whether that came later or was confirmed.
func TestF24_IndexesGoAfterTheirVariants(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	s := newSite(t, func(o *Options) { o.SweepInterval = time.Millisecond })
	s.answer(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Vary", "Accept-Language")
		h.Set("Cache-Control", "max-age=60")
		if r.Header.Get("Accept-Language") == "de" {
			h.Set("Cache-Control", "max-age=864000") // ten days
			h.Set("Etag", `"1"`)
			if r.Header.Get("If-None-Match") != "" {
				w.WriteHeader(http.StatusNotModified)
				return
			}
		}
		_, _ = io.WriteString(w, "page")
	})
	s.get("/a").is(t, "MISS", "stored")
	s.pass(6 * day)
	s.has(1) // the index
	s.get("/a", "Accept-Language: de").is(t, "MISS", "stored")
	s.pass(5 * day) // the index of the first alone would be gone
	s.get("/b").is(t, "MISS", "stored")
	s.pass(2 * day)
	s.has(3) // both indexes, and one variant
	s.get("/a", "Accept-Language: de").is(t, "HIT", "hit")
	s.pass(3*day + time.Hour)
	s.get("/a", "Accept-Language: de").is(t, "MISS", "fwd-status=304")
	s.pass(9 * day) // that of the first two would be gone
	s.has(2)
	s.get("/a", "Accept-Language: de").is(t, "HIT", "hit")
	s.pass(20 * day)
	s.has(0)
}

// TestWhatIsTooLargeToBeStored is not said to be stored, and does not make requests wait for each other.
func TestWhatIsTooLargeToBeStored(t *testing.T) {
	t.Parallel()
	reason := func(s *site, reason rfc9111.NotStored) float64 {
		return testutil.ToFloat64(s.metrics.notStored.WithLabelValues(string(reason)))
	}
	s := newSite(t, func(o *Options) { o.MaxBytes = 4 << 20 })
	large := strings.Repeat("x", 600_000) // more than an eighth, but less than an item may have
	s.answer(func(w http.ResponseWriter, _ *http.Request) {
		cacheable(w.Header())
		w.Header().Set("Content-Length", strconv.Itoa(len(large)))
		_, _ = io.WriteString(w, large)
	})
	for _, want := range []float64{1, 2} {
		r := s.get("/a").is(t, "MISS", "")
		require.Equal(t, large, r.body)
		require.NotContains(t, r.Header.Get("Cache-Status"), "stored")
		require.InDelta(t, want, reason(s, tooLarge), 0)
	}
	require.InDelta(t, 1, testutil.ToFloat64(s.metrics.alones[AloneUncacheable]), 0)

	s = newSite(t, func(o *Options) { o.budget = 100_000 }) // there is no memory for it
	s.answer(func(w http.ResponseWriter, _ *http.Request) {
		cacheable(w.Header())
		_, _ = io.WriteString(w, large)
	})
	require.Equal(t, large, s.get("/a").body)
	s.idle()
	require.InDelta(t, 1, reason(s, noMemory), 0)

	s = newSite(t, func(o *Options) { o.MaxBytes, o.MaxItemBytes = 1<<30, 1<<30 })
	require.EqualValues(t, maxItemBytes, s.opts.MaxItemBytes)
}
