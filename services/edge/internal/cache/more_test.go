package cache

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/services/edge/internal/cache/store"
)

func TestRequestsThatGoAlone(t *testing.T) {
	t.Parallel()
	for reason, fields := range map[Alone][]string{
		AloneAuthorization: {"Authorization: Basic eA=="},
		AloneNoStore:       {"Cache-Control: no-store"},
		AloneCondition:     {`If-Match: "1"`},
		AloneRange:         {"Range: bytes=0-1"},
	} {
		t.Run(string(reason), func(t *testing.T) {
			t.Parallel()
			s := newSite(t, nil)
			g := s.held(cacheable, http.StatusOK, "page")
			all := s.herd(3, "/a", fields...)
			for range all {
				receive(t, g.arrived) // at once: nobody waits for another
			}
			g.open()
			for _, one := range all {
				require.Equal(t, "page", receive(t, one).is(t, "MISS", "").body)
			}
		})
	}
}

// TestAuthorization: what has credentials is stored only where the origin says so
// (RFC 9111 section 3.5).
func TestAuthorization(t *testing.T) {
	t.Parallel()
	for control, stored := range map[string]bool{
		"max-age=60": false, "max-age=60, public": true, "s-maxage=60": true, "max-age=60, must-revalidate": true,
	} {
		t.Run(control, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, nil)
			s.answer(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Cache-Control", control)
				_, _ = io.WriteString(w, "page")
			})
			s.get("/a", "Authorization: Basic eA==").is(t, "MISS", "")
			want := "MISS"
			if stored {
				want = "HIT"
			}
			s.get("/a").is(t, want, "")
		})
	}
}

func TestNoStoreOfARequestLeavesNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	s.get("/a", "Cache-Control: no-store").is(t, "MISS", "fwd=request")
	s.get("/a").is(t, "MISS", "uri-miss")
}

func TestInvalidation(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	post := func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			w.Header().Set("Cache-Control", "max-age=60")
			_, _ = io.WriteString(w, "page")
			return
		}
		w.Header().Set("Location", r.URL.Query().Get("location"))
		status, _ := strconv.Atoi(r.URL.Query().Get("status"))
		w.WriteHeader(status)
	}
	s.answer(post)
	warm := func(paths ...string) {
		t.Helper()
		for _, path := range paths {
			s.get(path)
			s.get(path).is(t, "HIT", "hit")
		}
	}
	target := "/form?status=500&location=/other"
	warm(target, "/other")
	s.ask(http.MethodPost, target)
	s.get(target).is(t, "HIT", "hit") // an error changes nothing

	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch, "M-SEARCH"} {
		target = "/form?status=303&location=/other"
		warm(target, "/other")
		s.ask(method, target).is(t, "BYPASS", "fwd=method")
		s.get(target).is(t, "MISS", "")
		s.get("/other").is(t, "MISS", "")
	}
	target = "/form?status=201&location=http://elsewhere.example/other"
	warm(target)
	s.get("/other", "Host: elsewhere.example")
	s.ask(http.MethodPost, target)
	s.get(target).is(t, "MISS", "")
	s.get("/other", "Host: elsewhere.example").is(t, "HIT", "hit")
}

// TestWhatIsOutOfDateIsNotStored: by an unsafe request, and by a purge, while the
// fetch is under way. Newcomers do not join it.
func TestWhatIsOutOfDateIsNotStored(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*testing.T, *site){
		"unsafe": func(t *testing.T, s *site) {
			t.Helper()
			require.NoError(t, s.ask(http.MethodPost, "/page").err)
		},
		"purge": func(t *testing.T, s *site) {
			t.Helper()
			require.NoError(t, s.Purge(t.Context(), store.Purge{Name: strings.TrimPrefix(s.edge.URL, "http://") + "/", Prefix: true}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, nil)
			g := newGate()
			t.Cleanup(g.open)
			var version atomic.Int64
			s.answer(func(w http.ResponseWriter, r *http.Request) {
				if r.Method != http.MethodGet {
					return
				}
				now := version.Load()
				if now == 0 && !g.wait(r) {
					return
				}
				w.Header().Set("Cache-Control", "max-age=60")
				_, _ = fmt.Fprintf(w, "version %d", now)
			})
			before := s.herd(3, "/page")
			receive(t, g.arrived)
			s.following(3)
			version.Store(1)
			change(t, s)
			require.Equal(t, "version 1", s.get("/page").is(t, "MISS", "uri-miss").body)
			g.open()
			for _, one := range before {
				require.Equal(t, "version 0", receive(t, one).body)
			}
			require.Equal(t, "version 1", s.get("/page").is(t, "HIT", "hit").body)
		})
	}
}

// raw sends a request and reads the responses to it as they are on the wire.
func (s *site) raw(t *testing.T, path string) (interim []*http.Response, final *http.Response) {
	t.Helper()
	c, err := net.Dial("tcp", s.edge.Listener.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	_, err = io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: site.example\r\n\r\n")
	require.NoError(t, err)
	in := bufio.NewReader(c)
	for {
		resp, err := http.ReadResponse(in, nil)
		require.NoError(t, err)
		if resp.StatusCode >= 200 {
			return interim, resp
		}
		interim = append(interim, resp)
	}
}

func TestInterimResponsesAndTrailersPass(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	s.answer(func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h.Set("Link", "</style.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		h.Set("Cache-Control", "max-age=60")
		h.Set("Trailer", "Checksum")
		_, _ = io.WriteString(w, "page")
		_ = http.NewResponseController(w).Flush()
		h.Set("Checksum", "1234")
	})
	interim, final := s.raw(t, "/a")
	require.Len(t, interim, 1)
	require.Equal(t, http.StatusEarlyHints, interim[0].StatusCode)
	require.Equal(t, "</style.css>; rel=preload", interim[0].Header.Get("Link"))
	require.Empty(t, interim[0].Header.Get("X-Cache"))
	body, err := io.ReadAll(final.Body)
	require.NoError(t, err)
	require.Equal(t, "page", string(body))
	require.Equal(t, "1234", final.Trailer.Get("Checksum"))
	require.Equal(t, "MISS", final.Header.Get("X-Cache"))

	interim, final = s.raw(t, "/a")
	require.Empty(t, interim)
	require.Equal(t, "HIT", final.Header.Get("X-Cache"))
	require.Empty(t, final.Header["Trailer"])
}

// TestFollowersStream: what has come is passed on while the rest is still to come.
func TestFollowersStream(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	g := newGate()
	t.Cleanup(g.open)
	s.answer(func(w http.ResponseWriter, r *http.Request) {
		cacheable(w.Header())
		_, _ = io.WriteString(w, "first ")
		_ = http.NewResponseController(w).Flush()
		g.wait(r)
		_, _ = io.WriteString(w, "second")
	})
	var bodies []io.ReadCloser
	for range 3 {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.edge.URL+"/a", nil)
		require.NoError(t, err)
		resp, err := s.client.Do(req)
		require.NoError(t, err)
		t.Cleanup(func() { _ = resp.Body.Close() })
		first := make([]byte, 6)
		_, err = io.ReadFull(resp.Body, first)
		require.NoError(t, err)
		require.Equal(t, "first ", string(first))
		bodies = append(bodies, resp.Body)
	}
	g.open()
	for _, body := range bodies {
		rest, err := io.ReadAll(body)
		require.NoError(t, err)
		require.Equal(t, "second", string(rest))
	}
	require.EqualValues(t, 1, s.asked.Load())
}

// TestEverybodyGone: when nobody is left, the origin's request is cancelled and
// the place is free.
func TestEverybodyGone(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	g := s.held(cacheable, http.StatusOK, "page")
	ctx, leave := context.WithCancel(t.Context())
	var all []<-chan reply
	for range 3 {
		all = append(all, s.send(ctx, "/a"))
	}
	r := receive(t, g.arrived)
	s.following(3)
	leave()
	for _, one := range all {
		require.Error(t, receive(t, one).err)
	}
	receive(t, r.Context().Done())
	s.idle()
}

// TestNoWrongBodies: many resources, variants, ranges, sizes and evictions at once;
// every body is what the origin would have sent.
func TestNoWrongBodies(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(o *Options) {
		o.MaxBytes, o.MaxItemBytes, o.MemoryBytes = 4<<20, 300<<10, 1<<20
	})
	bodies := map[string]string{}
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range 40 {
		for _, language := range []string{"de", "en"} {
			b := make([]byte, 8*(1+rng.IntN(44<<10)>>rng.IntN(12)))
			for j := 0; j < len(b); j += 8 {
				binary.LittleEndian.PutUint64(b[j:], rng.Uint64())
			}
			bodies[fmt.Sprintf("/%d %s", i, language)] = string(b)
		}
	}
	bodyOf := func(path, language string) string { return bodies[path+" "+language] }
	s.answer(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Cache-Control", "max-age=1, stale-while-revalidate=1")
		h.Set("Etag", `"`+r.URL.Path+`"`)
		h.Set("Vary", "Accept-Language")
		if r.Header.Get("If-None-Match") != "" {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		_, _ = io.WriteString(w, bodyOf(r.URL.Path, r.Header.Get("Accept-Language")))
	})
	var wg sync.WaitGroup
	var hits atomic.Int64
	for worker := range 8 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(worker), 2))
			for range 150 {
				path, language := fmt.Sprintf("/%d", rng.IntN(40)), []string{"de", "en"}[rng.IntN(2)]
				want := bodyOf(path, language)
				fields := []string{"Accept-Language: " + language}
				low, high := 0, len(want)
				if rng.IntN(3) == 0 {
					low = rng.IntN(len(want))
					high = low + 1 + rng.IntN(len(want)-low)
					fields = append(fields, fmt.Sprintf("Range: bytes=%d-%d", low, high-1))
				}
				r := s.askContext(context.Background(), http.MethodGet, path, fields...)
				if r.err != nil {
					t.Errorf("%s: %v", path, r.err)
					return
				}
				if r.StatusCode == http.StatusPartialContent {
					want = want[low:high]
				}
				if r.body != want {
					t.Errorf("%s %v: %d bytes, want %d: %s", path, fields, len(r.body), len(want), r.Header["Cache-Status"])
					return
				}
				if r.Header.Get("X-Cache") == "HIT" {
					hits.Add(1)
				}
				if rng.IntN(20) == 0 {
					s.pass(time.Second)
				}
			}
		})
	}
	wg.Wait()
	require.Positive(t, hits.Load())
	s.idle()
}
