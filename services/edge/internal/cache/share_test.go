package cache

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/services/edge/internal/cache/flight"
)

const (
	alice = "203.0.113.0/24"
	bob   = "198.51.100.0/24"
)

// gate is an origin that answers when the test lets it.
type gate struct {
	arrived chan *http.Request
	goOn    chan struct{}
	once    sync.Once
}

func newGate() *gate {
	return &gate{arrived: make(chan *http.Request, 4096), goOn: make(chan struct{})}
}

func (g *gate) open() { g.once.Do(func() { close(g.goOn) }) }

// wait holds a request at the origin. It reports false if the edge has hung up.
func (g *gate) wait(r *http.Request) bool {
	g.arrived <- r
	select {
	case <-g.goOn:
		return true
	case <-r.Context().Done():
		return false
	}
}

// held makes the origin answer with a page when the test lets it.
func (s *site) held(head func(http.Header), status int, body string) *gate {
	g := newGate()
	s.t.Cleanup(g.open)
	s.answer(func(w http.ResponseWriter, r *http.Request) {
		if g.wait(r) {
			head(w.Header())
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	})
	return g
}

func cacheable(h http.Header) { h.Set("Cache-Control", "max-age=60") }

// following waits until so many requests wait for the flights of the cache.
func (s *site) following(n int) {
	s.t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for s.flights.Askers() < n {
		select {
		case <-tick.C:
		case <-deadline:
			s.t.Fatalf("%d askers, want %d", s.flights.Askers(), n)
		}
	}
}

func (s *site) herd(n int, path string, fields ...string) []<-chan reply {
	all := make([]<-chan reply, n)
	for i := range all {
		all[i] = s.send(s.t.Context(), path, fields...)
	}
	return all
}

func TestThunderingHerd(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	g := s.held(cacheable, http.StatusOK, "the page")
	all := s.herd(1000, "/page")
	s.following(1000)
	g.open()
	collapsed := 0
	for _, one := range all {
		r := receive(t, one).is(t, "MISS", "fwd=uri-miss")
		require.Equal(t, "the page", r.body)
		if strings.Contains(r.Header.Get("Cache-Status"), "collapsed") {
			collapsed++
		}
	}
	require.Equal(t, 999, collapsed)
	require.EqualValues(t, 1, s.asked.Load())
	s.get("/page").is(t, "HIT", "hit")
}

// TestF13_TheFirstAskerLeaves, and the variations.
func TestF13_TheFirstAskerLeaves(t *testing.T) {
	t.Parallel()
	t.Run("the fetch goes on", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, nil)
		g := s.held(cacheable, http.StatusOK, "the page")
		ctx, leave := context.WithCancel(t.Context())
		first := s.send(ctx, "/page")
		receive(t, g.arrived)
		others := s.herd(19, "/page")
		s.following(20)
		leave()
		require.Error(t, receive(t, first).err)
		g.open()
		for _, one := range others {
			require.Equal(t, "the page", receive(t, one).is(t, "MISS", "collapsed").body)
		}
		require.EqualValues(t, 1, s.asked.Load())
	})
	t.Run("the origin answers 500", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, nil)
		g := s.held(func(http.Header) {}, http.StatusInternalServerError, "sorry")
		all := s.herd(20, "/page")
		s.following(20)
		g.open()
		for _, one := range all {
			r := receive(t, one)
			require.NoError(t, r.err)
			require.Equal(t, http.StatusInternalServerError, r.StatusCode)
			require.Equal(t, "sorry", r.body)
		}
	})
	t.Run("the page is too large, as its length says", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, nil)
		large := strings.Repeat("x", 2<<20)
		g := s.held(func(h http.Header) {
			cacheable(h)
			h.Set("Content-Length", strconv.Itoa(len(large)))
		}, http.StatusOK, large)
		all := s.herd(20, "/page")
		s.following(20)
		g.open()
		for _, one := range all {
			require.Equal(t, large, receive(t, one).is(t, "MISS", "").body)
		}
	})
	t.Run("the page turns out too large", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, func(o *Options) { o.stall = patience }) // a busy machine gives some no turn for seconds
		large := strings.Repeat("x", 3<<20)
		g := s.held(cacheable, http.StatusOK, large)
		all := s.herd(20, "/page")
		s.following(20)
		g.open()
		for _, one := range all {
			require.Equal(t, large, receive(t, one).is(t, "MISS", "").body)
		}
		s.get("/page").is(t, "MISS", "")
		require.LessOrEqual(t, s.asked.Load(), int64(21))
	})
}

// TestF13_UncacheableKeysAreNotSerialised: once a resource was found to be not
// storable, requests for it do not wait for each other.
func TestF13_UncacheableKeysAreNotSerialised(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	g := s.held(func(h http.Header) { h.Set("Cache-Control", "no-store") }, http.StatusOK, "mine")
	all := s.herd(5, "/mine")
	receive(t, g.arrived)
	s.following(5)
	g.open()
	for _, one := range all {
		require.Equal(t, "mine", receive(t, one).is(t, "MISS", "").body)
	}
	require.EqualValues(t, 5, s.asked.Load())

	g = s.held(func(h http.Header) { h.Set("Cache-Control", "no-store") }, http.StatusOK, "mine")
	all = s.herd(5, "/mine")
	for range 5 {
		receive(t, g.arrived) // all at once
	}
	g.open()
	for _, one := range all {
		receive(t, one).is(t, "MISS", "")
	}

	s.answer(func(w http.ResponseWriter, _ *http.Request) {
		cacheable(w.Header())
		_, _ = io.WriteString(w, "for all")
	})
	s.get("/mine").is(t, "MISS", "stored")
	s.get("/mine").is(t, "HIT", "hit")
	require.Zero(t, s.uncacheable.count())
}

// TestABusyGroupHoldsUpNobodyElse: the first whom the queue admits leads.
func TestABusyGroupHoldsUpNobodyElse(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	cancelled := make(chan struct{})
	s.admit(func(ctx context.Context, r *http.Request, _ bool) flight.Seat {
		if r.Header.Get(group) == alice {
			<-ctx.Done() // stands in line for ever
			close(cancelled)
			return full()
		}
		return s.seat()
	})
	busy := s.herd(10, "/page", group+": "+alice)
	s.following(10)
	require.Equal(t, "page /page", s.get("/page", group+": "+bob).is(t, "MISS", "uri-miss").body)
	for _, one := range busy {
		require.Equal(t, "page /page", receive(t, one).is(t, "MISS", "collapsed").body)
	}
	receive(t, cancelled)
	require.EqualValues(t, 1, s.asked.Load())
}

func TestRefusedByTheQueue(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	s.admit(func(context.Context, *http.Request, bool) flight.Seat { return full() })
	for _, one := range s.herd(10, "/page") {
		r := receive(t, one).is(t, "MISS", "uri-miss")
		require.Equal(t, http.StatusTooManyRequests, r.StatusCode)
	}
	require.Zero(t, s.asked.Load())
}

func TestABodyThatBreaksOff(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	g := newGate()
	t.Cleanup(g.open)
	s.answer(func(w http.ResponseWriter, r *http.Request) {
		cacheable(w.Header())
		w.Header().Set("Content-Length", "10")
		_, _ = io.WriteString(w, "half")
		_ = http.NewResponseController(w).Flush()
		g.wait(r)
		panic(http.ErrAbortHandler)
	})
	all := s.herd(5, "/page")
	receive(t, g.arrived)
	s.following(5)
	g.open()
	for _, one := range all {
		r := receive(t, one)
		require.Error(t, r.err, "the break is seen by everybody")
		require.Contains(t, []string{"", "half"}, r.body, "what was on its way may be lost with the connection")
	}
	s.answer(func(w http.ResponseWriter, _ *http.Request) {
		cacheable(w.Header())
		_, _ = io.WriteString(w, "whole")
	})
	require.Equal(t, "whole", s.get("/page").is(t, "MISS", "").body, "half a body is not stored")
}

// TestWhatCameWhileARequestWaited is not fetched again.
func TestWhatCameWhileARequestWaited(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	s.admit(func(_ context.Context, r *http.Request, _ bool) flight.Seat {
		if r.Header.Get("Range") == "" { // somebody else fetches it meanwhile
			s.get("/a", "Range: bytes=0-1").is(t, "MISS", "stored")
		}
		return s.seat()
	})
	require.Equal(t, "page /a", s.get("/a").is(t, "HIT", "hit").body)
	require.EqualValues(t, 1, s.asked.Load())
}
