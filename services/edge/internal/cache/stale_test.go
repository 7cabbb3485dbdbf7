package cache

import (
	"context"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/services/edge/internal/cache/flight"
	"github.com/ccnq/ccnq/services/edge/internal/cache/rfc9111"
)

// versioned is an origin whose page has an ETag, and that confirms it.
type versioned struct {
	control string
	etag    string
	body    string
	broken  int // a status instead
}

func (s *site) versioned(v *versioned) {
	s.answer(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		switch {
		case v.broken != 0:
			w.WriteHeader(v.broken)
			return
		case r.Header.Get("If-None-Match") == v.etag:
			h.Set("Cache-Control", v.control)
			h.Set("X-Confirmed", "yes")
			w.WriteHeader(http.StatusNotModified)
			return
		}
		h.Set("Cache-Control", v.control)
		h.Set("Etag", v.etag)
		_, _ = io.WriteString(w, v.body)
	})
}

func TestValidation(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	v := &versioned{control: "max-age=60", etag: `"1"`, body: "one"}
	s.versioned(v)
	s.get("/a").is(t, "MISS", "stored")
	s.pass(61 * time.Second)
	r := s.get("/a").is(t, "MISS", "fwd=stale; fwd-status=304")
	require.Equal(t, "one", r.body)
	require.Equal(t, "yes", r.Header.Get("X-Confirmed"))
	require.Equal(t, "one", s.get("/a").is(t, "HIT", "hit").body)
	require.EqualValues(t, 2, s.asked.Load())

	s.pass(61 * time.Second)
	s.versioned(&versioned{control: "max-age=60", etag: `"2"`, body: "two"})
	require.Equal(t, "two", s.get("/a").is(t, "MISS", "fwd=stale; ttl=").body)
	require.Equal(t, "two", s.get("/a").is(t, "HIT", "hit").body)
	require.EqualValues(t, 3, s.asked.Load())
}

// TestValidationIsShared, and its answer suits each client's own condition.
func TestValidationIsShared(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	s.versioned(&versioned{control: "max-age=60", etag: `"1"`, body: "one"})
	s.get("/a")
	s.pass(61 * time.Second)
	g := newGate()
	t.Cleanup(g.open)
	s.answer(func(w http.ResponseWriter, r *http.Request) {
		if g.wait(r) {
			w.Header().Set("Cache-Control", "max-age=60")
			w.WriteHeader(http.StatusNotModified)
		}
	})
	plain, conditional := s.herd(5, "/a"), s.herd(5, "/a", `If-None-Match: "1"`)
	s.following(10)
	g.open()
	for _, one := range plain {
		require.Equal(t, "one", receive(t, one).is(t, "MISS", "fwd-status=304").body)
	}
	for _, one := range conditional {
		require.Equal(t, http.StatusNotModified, receive(t, one).is(t, "MISS", "fwd-status=304").StatusCode)
	}
	require.EqualValues(t, 2, s.asked.Load())
}

func TestStaleWhileRevalidate(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	v := &versioned{control: "max-age=60, stale-while-revalidate=30", etag: `"1"`, body: "one"}
	s.versioned(v)
	s.get("/a")
	s.pass(61 * time.Second)
	s.versioned(&versioned{control: v.control, etag: `"2"`, body: "two"})
	patient := make(chan bool, 10)
	s.admit(func(_ context.Context, _ *http.Request, patience bool) flight.Seat {
		patient <- patience
		return full()
	})
	require.Equal(t, "one", s.get("/a").is(t, "HIT", "hit; ttl=-").body)
	require.False(t, receive(t, patient), "in the background nobody waits in line")
	s.idle()
	require.Equal(t, "one", s.get("/a").is(t, "HIT", "hit; ttl=-").body)
	s.idle()
	require.Empty(t, patient, "nor is it tried again at once")

	s.pass(2 * retryAfterFailure)
	s.admit(func(context.Context, *http.Request, bool) flight.Seat { return s.seat() })
	require.Equal(t, "one", s.get("/a").is(t, "HIT", "hit; ttl=-").body)
	s.idle()
	require.Equal(t, "two", s.get("/a").is(t, "HIT", "hit; ttl=").body)
	require.EqualValues(t, 2, s.asked.Load())
}

// TestAnUnaskedConfirmationIsNone: a 304 to a request that was not conditional says
// nothing about what is stored.
func TestAnUnaskedConfirmationIsNone(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	s.get("/a").is(t, "MISS", "stored") // without a validator
	s.pass(61 * time.Second)
	s.answer(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Cache-Control", "max-age=60")
		w.WriteHeader(http.StatusNotModified)
	})
	require.Equal(t, http.StatusNotModified, s.get("/a").is(t, "MISS", "").StatusCode)
	s.answer(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "new") })
	require.Equal(t, "new", s.get("/a").is(t, "MISS", "").body)
}

// idle waits until nobody waits for anything.
func (s *site) idle() {
	s.t.Helper()
	s.refreshing.Wait()
	deadline := time.After(patience)
	for s.flights.Askers() > 0 || s.places.Load() > 0 {
		select {
		case <-time.After(time.Millisecond):
		case <-deadline:
			s.t.Fatal("not idle")
		}
	}
}

func TestStaleIfError(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	v := &versioned{control: "max-age=60, stale-if-error=600", etag: `"1"`, body: "one"}
	s.versioned(v)
	s.get("/a")
	s.pass(61 * time.Second)
	for _, status := range []int{500, 502, 503, 504} {
		s.versioned(&versioned{broken: status})
		require.Equal(t, "one", s.get("/a").is(t, "HIT", "hit; ttl=-").body)
		r := s.get("/a", "Cache-Control: no-cache").is(t, "MISS", "")
		require.Equal(t, status, r.StatusCode, "a client that wants no stale answer")
		s.pass(uncacheableFor) // what it left behind
	}
	s.gone.Store(true)
	require.Equal(t, "one", s.get("/a").is(t, "HIT", "hit; ttl=-").body)
	s.pass(600 * time.Second)
	r := s.get("/a").is(t, "MISS", "")
	require.Equal(t, http.StatusBadGateway, r.StatusCode)
}

// TestAnUnreachableOriginFailsEverybodyAtOnce: nobody tries again in turn.
func TestAnUnreachableOriginFailsEverybodyAtOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	s.gone.Store(true)
	line := make(chan struct{})
	asked := 0
	s.admit(func(context.Context, *http.Request, bool) flight.Seat {
		asked++
		<-line
		return s.seat()
	})
	all := s.herd(20, "/page")
	s.following(20)
	close(line)
	for _, one := range all {
		require.Equal(t, http.StatusBadGateway, receive(t, one).is(t, "MISS", "").StatusCode)
	}
	require.Equal(t, 1, asked)
}

func TestStaleOnRefusal(t *testing.T) {
	t.Parallel()
	for control, want := range map[string]int{
		"max-age=60, stale-if-error=600": http.StatusOK,
		"max-age=60":                     http.StatusTooManyRequests,
		"max-age=60, stale-if-error=600, must-revalidate": http.StatusTooManyRequests,
	} {
		t.Run(control, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, nil)
			s.versioned(&versioned{control: control, etag: `"1"`, body: "one"})
			s.get("/a")
			s.pass(61 * time.Second)
			s.admit(func(context.Context, *http.Request, bool) flight.Seat { return full() })
			r := s.get("/a")
			require.Equal(t, want, r.StatusCode)
			if want == http.StatusOK {
				r.is(t, "HIT", "hit; ttl=-")
			} else {
				r.is(t, "MISS", "fwd=stale")
			}
		})
	}
}

func TestOnlyIfCached(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	r := s.get("/a", "Cache-Control: only-if-cached").is(t, "MISS", "fwd=request")
	require.Equal(t, http.StatusGatewayTimeout, r.StatusCode)
	require.Zero(t, s.asked.Load())
	s.get("/a")
	s.get("/a", "Cache-Control: only-if-cached").is(t, "HIT", "hit")
}

func TestFallbackTTL(t *testing.T) {
	t.Parallel()
	s := newSite(t, policy(rfc9111.Policy{TTL: time.Minute}))
	s.answer(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/events" {
			w.Header().Set("Content-Type", "text/event-stream")
		}
		_, _ = io.WriteString(w, "page")
	})
	s.get("/a").is(t, "MISS", "stored")
	s.get("/a").is(t, "HIT", "hit")
	s.get("/events")
	s.get("/events").is(t, "MISS", "")
}

// TestOriginThatClosesTheConnection: no response is none of the origin's, so the client gets 502, or what is stored
// where that is allowed.
func TestOriginThatClosesTheConnection(t *testing.T) {
	t.Parallel()
	for control, want := range map[string]int{
		"":                                  http.StatusBadGateway, // nothing is stored
		"max-age=60":                        http.StatusBadGateway,
		"max-age=60, must-revalidate":       http.StatusBadGateway,
		"max-age=60, stale-if-error=3600":   http.StatusOK,
		"s-maxage=60":                       http.StatusBadGateway,
		"s-maxage=60, stale-if-error=36000": http.StatusOK,
	} {
		t.Run(control, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, nil)
			if control != "" {
				s.versioned(&versioned{control: control, etag: `"1"`, body: "one"})
				s.get("/a").is(t, "MISS", "stored")
				s.pass(61 * time.Second)
			}
			s.answer(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
			r := s.get("/a")
			require.Equal(t, want, r.StatusCode)
			require.Equal(t, want == http.StatusOK, r.Header.Get("X-Cache") == "HIT")
			require.Zero(t, s.uncacheable.count(), "it says nothing about the resource")
		})
	}
}

// TestF10_CookieOfAConfirmation: what a 304 sets is the client's whose request was sent, and nobody else's.
func TestF10_CookieOfAConfirmation(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	s.versioned(&versioned{control: "max-age=60", etag: `"1"`, body: "one"})
	s.get("/a").is(t, "MISS", "stored")
	s.pass(61 * time.Second)
	g := newGate()
	t.Cleanup(g.open)
	s.answer(func(w http.ResponseWriter, r *http.Request) {
		if g.wait(r) {
			w.Header().Set("Cache-Control", "max-age=60")
			w.Header().Add("Set-Cookie", "session=AAA")
			w.Header().Add("Set-Cookie", "lang=en")
			w.WriteHeader(http.StatusNotModified)
		}
	})
	all := s.herd(5, "/a")
	s.following(5)
	g.open()
	cookies := 0
	for _, one := range all {
		r := receive(t, one)
		require.Equal(t, "one", r.body)
		if got := r.Header["Set-Cookie"]; got != nil {
			require.Equal(t, []string{"session=AAA", "lang=en"}, got)
			require.NotContains(t, r.Header.Get("Cache-Status"), "collapsed")
			cookies++
		}
	}
	require.Equal(t, 1, cookies)
	require.Empty(t, s.get("/a").is(t, "HIT", "hit").Header["Set-Cookie"])
}
