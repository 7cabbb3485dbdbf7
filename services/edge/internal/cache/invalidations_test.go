package cache

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/pkg/wire"
)

// TestWhatPassesAloneIsNotStoredWhenOutOfDate: a response of which a copy is taken as it passes is no newer than its
// request.
func TestWhatPassesAloneIsNotStoredWhenOutOfDate(t *testing.T) {
	t.Parallel()
	for name, vary := range map[string]string{"one": "", "variants": "Accept-Language"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, nil)
			g := newGate()
			t.Cleanup(g.open)
			var version atomic.Int64
			s.answer(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPost {
					version.Add(1)
					return
				}
				now := version.Load()
				w.Header().Set("Cache-Control", "public, max-age=60")
				w.Header().Set("Vary", vary)
				_, _ = fmt.Fprintf(w, "version %d", now)
				_ = http.NewResponseController(w).Flush()
				if r.Header.Get("Authorization") != "" {
					g.wait(r)
				}
			})
			before := s.send(t.Context(), "/a", "Authorization: Basic eA==")
			receive(t, g.arrived)
			require.Equal(t, http.StatusOK, s.ask(http.MethodPost, "/a").StatusCode)
			g.open()
			require.Equal(t, "version 0", receive(t, before).body)
			require.Equal(t, "version 1", s.get("/a").is(t, "MISS", "").body)
			require.Equal(t, "version 1", s.get("/a").is(t, "HIT", "").body)
			s.get("/a", "Authorization: Basic eA==").is(t, "HIT", "")
		})
	}
}

// TestAPurgeOfOthersLeavesAFetchAlone: what is under way is stored unless the purge is of it.
func TestAPurgeOfOthersLeavesAFetchAlone(t *testing.T) {
	t.Parallel()
	for name, targets := range map[string][]wire.PurgeTarget{
		"others": {{Scope: wire.PurgeHost, Target: "elsewhere.example"}}, "nothing": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, nil)
			g := s.held(cacheable, http.StatusOK, "page")
			first := s.send(t.Context(), "/a")
			receive(t, g.arrived)
			require.NoError(t, s.PurgeTargets(t.Context(), targets))
			g.open()
			receive(t, first).is(t, "MISS", "stored")
			s.get("/a").is(t, "HIT", "hit")
			require.EqualValues(t, 1, s.asked.Load())
		})
	}
}
