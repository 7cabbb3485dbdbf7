package cache

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/services/edge/internal/cache/flight"
	"github.com/ccnq/ccnq/services/edge/internal/proxy"
)

// TestAFailingOriginIsNotAskedForEachStaleHit: between validations in the background that bring nothing there is a
// pause, for the variant that is concerned.
func TestAFailingOriginIsNotAskedForEachStaleHit(t *testing.T) {
	t.Parallel()
	var now atomic.Int64 // stands still
	now.Store(time.Now().UnixNano())
	s := newSite(t, func(o *Options) { o.Now = func() time.Time { return time.Unix(0, now.Load()) } })
	var fails atomic.Bool
	s.answer(func(w http.ResponseWriter, _ *http.Request) {
		if fails.Load() {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		w.Header().Set("Cache-Control", "max-age=1, stale-while-revalidate=600")
		w.Header().Set("Vary", "Accept-Language")
		_, _ = io.WriteString(w, "page")
	})
	german, english := "Accept-Language: de", "Accept-Language: en"
	s.get("/a", german).is(t, "MISS", "")
	s.get("/a", english).is(t, "MISS", "")
	fails.Store(true)
	now.Add(int64(5 * time.Second))
	for range 20 {
		s.get("/a", german).is(t, "HIT", "hit; ttl=-")
		s.idle()
	}
	require.EqualValues(t, 3, s.asked.Load())
	s.get("/a", english).is(t, "HIT", "hit; ttl=-")
	s.idle()
	require.EqualValues(t, 4, s.asked.Load(), "another variant has a pause of its own")
	now.Add(int64(retryAfterFailure))
	s.get("/a", german).is(t, "HIT", "hit; ttl=-")
	s.idle()
	require.EqualValues(t, 5, s.asked.Load())
}

// TestTheLeaderHasWhatCameWhileItWaited: when the origin fails then, that is its answer, without another turn in the
// queue.
func TestTheLeaderHasWhatCameWhileItWaited(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	var fails atomic.Bool
	s.answer(func(w http.ResponseWriter, _ *http.Request) {
		if fails.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Cache-Control", "max-age=1, stale-if-error=600")
		_, _ = io.WriteString(w, "page")
	})
	var turns atomic.Int64
	s.admit(func(_ context.Context, r *http.Request, _ bool) flight.Seat {
		if r.Header.Get("Range") == "" {
			turns.Add(1)
			s.get("/a", "Range: bytes=0-1").is(t, "MISS", "stored")
			s.pass(5 * time.Second)
			fails.Store(true)
		}
		return s.seat()
	})
	require.Equal(t, "page", s.get("/a").is(t, "HIT", "hit; ttl=-").body)
	require.EqualValues(t, 1, turns.Load())
	require.EqualValues(t, 2, s.asked.Load())
}

// TestAFollowersOwnWishIsHeard: who asks for a validated answer does not get what the leader found stored.
func TestAFollowersOwnWishIsHeard(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	turn := make(chan struct{})
	seeks := make(chan struct{}, 10)
	s.admit(func(_ context.Context, r *http.Request, _ bool) flight.Seat {
		if r.Header.Get("Test-Waits") != "" {
			seeks <- struct{}{}
			<-turn
		}
		return s.seat()
	})
	lead := s.send(t.Context(), "/a", "Test-Waits: yes")
	receive(t, seeks)
	s.following(1)
	follow := s.send(t.Context(), "/a", "Cache-Control: no-cache")
	content := s.send(t.Context(), "/a", "Cache-Control: max-age=30")
	s.following(3)
	s.get("/a", "Range: bytes=0-1").is(t, "MISS", "stored") // somebody else's, meanwhile
	close(turn)
	receive(t, lead).is(t, "HIT", "hit")
	receive(t, content).is(t, "HIT", "hit")
	receive(t, follow).is(t, "MISS", "")
	require.EqualValues(t, 2, s.asked.Load())
}

// TestALongErrorIsNotTheClientsFault: when there is a stale answer nobody wants the error's body, and where it is long
// the exchange is cut by this side.
func TestALongErrorIsNotTheClientsFault(t *testing.T) {
	t.Parallel()
	for size, classes := range map[int][]proxy.Class{1000: {proxy.OK, proxy.Cut}, 2 * maxDiscard: {proxy.Cut}} {
		t.Run(strconv.Itoa(size), func(t *testing.T) {
			t.Parallel()
			s := newSite(t, nil)
			v := &versioned{control: "max-age=60, stale-if-error=600", etag: `"1"`, body: "one"}
			s.versioned(v)
			s.get("/a").is(t, "MISS", "stored")
			s.pass(61 * time.Second)
			s.answer(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusInternalServerError)
				_, _ = io.WriteString(w, strings.Repeat("x", size))
			})
			ended := make(chan proxy.Outcome, 10)
			report := func(o *proxy.Outcome) { ended <- *o }
			s.ended.Store(&report)
			require.Equal(t, "one", s.get("/a").is(t, "HIT", "hit; ttl=-").body)
			o := receive(t, ended)
			require.Contains(t, classes, o.Class, o.Err)
			require.InDelta(t, 1, testutil.ToFloat64(s.metrics.revalidations.failed), 0)
		})
	}
}

// TestALateFollower: while a body is on its way, who comes after its head gets it as if it were stored, with its age, or
// not at all.
func TestALateFollower(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		passes time.Duration
		field  string
		shares bool
	}{
		"fresh":              {30 * time.Second, "Cache-Control: max-age=40", true},
		"stale":              {56 * time.Second, "A: b", false},
		"against its wish":   {30 * time.Second, "Cache-Control: no-cache", false},
		"too old for it":     {30 * time.Second, "Cache-Control: max-age=20", false},
		"stale, but content": {56 * time.Second, "Cache-Control: max-stale=10", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, nil)
			g := newGate()
			t.Cleanup(g.open)
			var version atomic.Int64
			s.answer(func(w http.ResponseWriter, r *http.Request) {
				now := version.Add(1)
				w.Header().Set("Cache-Control", "max-age=60")
				w.Header().Set("Age", "5")
				_, _ = fmt.Fprintf(w, "version %d", now)
				if now == 1 {
					_ = http.NewResponseController(w).Flush()
					g.wait(r)
				}
			})
			lead, err := s.client.Get(s.edge.URL + "/a")
			require.NoError(t, err)
			defer lead.Body.Close()
			require.Equal(t, "5", lead.Header.Get("Age"))
			s.pass(tt.passes)
			follow := s.send(t.Context(), "/a", tt.field)
			if !tt.shares {
				require.Equal(t, "version 2", receive(t, follow).is(t, "MISS", "").body)
				return
			}
			s.following(2)
			g.open()
			r := receive(t, follow).is(t, "MISS", "collapsed")
			require.Equal(t, "version 1", r.body)
			require.Equal(t, strconv.Itoa(5+int(tt.passes/time.Second)), r.Header.Get("Age"))
		})
	}
}

// TestARefreshThatCannotBeStored is not made, and what is stored stays.
func TestARefreshThatCannotBeStored(t *testing.T) {
	t.Parallel()
	for _, field := range []string{"Authorization: Basic eA==", "Cache-Control: no-store"} {
		t.Run(field, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, nil)
			s.versioned(&versioned{control: "max-age=60, stale-while-revalidate=30", etag: `"1"`, body: "one"})
			s.get("/a").is(t, "MISS", "stored")
			s.pass(61 * time.Second)
			for range 2 {
				require.Equal(t, "one", s.get("/a", field).is(t, "HIT", "hit; ttl=-").body)
				s.idle()
			}
			require.EqualValues(t, 1, s.asked.Load())
			s.get("/a").is(t, "HIT", "hit; ttl=-")
			s.idle()
			require.Equal(t, "yes", s.get("/a").is(t, "HIT", "hit").Header.Get("X-Confirmed"))
			require.EqualValues(t, 2, s.asked.Load())
		})
	}
}

// TestF13_UncacheableVariantsHinderNoOthers: that a page is not stored for those with a cookie says nothing about others.
func TestF13_UncacheableVariantsHinderNoOthers(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	s.answer(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Vary", "Cookie")
		h.Set("Etag", `"1"`)
		switch {
		case r.Header.Get("Cookie") != "":
			h.Set("Cache-Control", "private")
		case r.Header.Get("If-None-Match") != "":
			w.WriteHeader(http.StatusNotModified)
			return
		default:
			h.Set("Cache-Control", "max-age=60")
		}
		_, _ = io.WriteString(w, "page")
	})
	s.get("/a").is(t, "MISS", "stored")
	for range 2 {
		s.get("/a", "Cookie: a=b").is(t, "MISS", "fwd=vary-miss")
	}
	require.Equal(t, 1, s.uncacheable.count())
	s.pass(61 * time.Second)
	s.get("/a", "Cookie: a=b").is(t, "MISS", "")
	s.get("/a").is(t, "MISS", "fwd=stale; fwd-status=304")

	// The same with what goes alone since it was marked itself.
	s.get("/a", "Cookie: a=c").is(t, "MISS", "")
	s.get("/a", "Cookie: a=c").is(t, "MISS", "")
	s.get("/a").is(t, "HIT", "hit")
}
