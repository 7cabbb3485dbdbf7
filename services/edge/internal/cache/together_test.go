package cache

import (
	"context"
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
