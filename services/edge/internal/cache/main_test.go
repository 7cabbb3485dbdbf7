package cache

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/ccnq/ccnq/pkg/rules"
	"github.com/ccnq/ccnq/services/edge/internal/admission"
	"github.com/ccnq/ccnq/services/edge/internal/cache/flight"
	"github.com/ccnq/ccnq/services/edge/internal/cache/rfc9111"
	"github.com/ccnq/ccnq/services/edge/internal/proxy"
)

// patience bounds every wait for a signal. It is reached only when a test fails.
const patience = 20 * time.Second

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// site is a cache between an HTTP server and an origin, with a queue that the
// test plays.
type site struct {
	*Cache
	t      testing.TB
	origin *httptest.Server
	edge   *httptest.Server
	client *http.Client
	proxy  *proxy.Proxy
	// nowhere takes its place when the origin is gone.
	nowhere *proxy.Proxy
	gone    atomic.Bool

	// serve is the origin's handler.
	serve atomic.Pointer[http.HandlerFunc]
	// asked counts the requests at the origin.
	asked atomic.Int64
	// queue decides on a request; nil admits everybody.
	queue atomic.Pointer[func(ctx context.Context, r *http.Request, patience bool) flight.Seat]
	// offset is added to the time, which stands still otherwise.
	offset atomic.Int64
	// ended is told how a shared fetch at the origin ended; nil is nobody.
	ended atomic.Pointer[func(*proxy.Outcome)]
	// places are taken in the queue.
	places atomic.Int64

	mu      sync.Mutex
	results []Result
}

const everything = `[[{"target": "path", "matchType": "startsWith", "value": "/"}]]`

func newSite(t testing.TB, change func(*Options)) *site {
	t.Helper()
	s := &site{t: t}
	s.answer(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "max-age=60")
		_, _ = io.WriteString(w, "page "+r.URL.Path)
	})
	s.origin = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.asked.Add(1)
		w.Header().Set("Date", s.now().UTC().Format(http.TimeFormat))
		(*s.serve.Load())(w, r)
	}))
	upstream, err := url.Parse(s.origin.URL)
	require.NoError(t, err)
	s.proxy, err = proxy.New(proxy.Options{Upstream: upstream, ConnectTimeout: patience})
	require.NoError(t, err)
	// Nobody is given port 1, so nobody listens there.
	s.nowhere, err = proxy.New(proxy.Options{Upstream: &url.URL{Scheme: "http", Host: "127.0.0.1:1"}, ConnectTimeout: patience})
	require.NoError(t, err)

	began := time.Now()
	file := filepath.Join(t.TempDir(), "rules.json")
	require.NoError(t, os.WriteFile(file, []byte(everything), 0o600))
	set, err := rules.OpenFile(file, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	opts := Options{
		Methods:       []string{http.MethodGet, http.MethodHead},
		Rules:         set,
		Dir:           t.TempDir(),
		MaxBytes:      64 << 20,
		MaxItemBytes:  1 << 20,
		MemoryBytes:   8 << 20,
		SweepInterval: time.Minute,
		Now:           func() time.Time { return began.Add(time.Duration(s.offset.Load())) },
		Registerer:    prometheus.NewRegistry(),
		Logger:        slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(&opts)
	}
	s.Cache, err = New(opts)
	require.NoError(t, err)
	s.edge = httptest.NewServer(http.HandlerFunc(s.handle))
	s.client = &http.Client{
		Transport:     &http.Transport{MaxIdleConnsPerHost: 1024, DisableCompression: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	t.Cleanup(func() {
		s.client.CloseIdleConnections()
		s.edge.Close()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		require.NoError(t, s.Stop(ctx))
		require.Zero(t, s.flights.Held(), "no memory is held")
		require.Zero(t, s.recorded.Load(), "no memory is held")
		require.Zero(t, s.places.Load(), "every place was given back")
		s.proxy.Close()
		s.nowhere.Close()
		s.origin.Close()
		_ = set.Close()
	})
	return s
}

func (s *site) answer(f http.HandlerFunc) { s.serve.Store(&f) }

func (s *site) admit(f func(ctx context.Context, r *http.Request, patience bool) flight.Seat) {
	s.queue.Store(&f)
}

// pass lets time go by.
func (s *site) pass(d time.Duration) { s.offset.Add(int64(d)) }

// toOrigin is the way to the origin as it is now.
func (s *site) toOrigin() *proxy.Proxy {
	if s.gone.Load() {
		return s.nowhere
	}
	return s.proxy
}

// seat is a place in the queue.
func (s *site) seat() flight.Seat {
	s.places.Add(1)
	return flight.Seat{
		Outcome: admission.Outcome{Reason: admission.Admitted, Pass: true},
		Done:    func() { s.places.Add(-1) },
	}
}

func full() flight.Seat {
	return flight.Seat{Outcome: admission.Outcome{Reason: admission.QueueFull, RetryAfter: time.Second}}
}

// handle does what the gateway does.
func (s *site) handle(w http.ResponseWriter, r *http.Request) {
	result := s.Serve(&Request{W: w, R: r, Arrived: s.now(), Way: &road{site: s, r: r}})
	s.Count(result.Word)
	defer func() {
		s.mu.Lock()
		s.results = append(s.results, result)
		s.mu.Unlock()
	}()
	switch result.End {
	case GoOn:
		way := &road{site: s, r: r}
		seat := way.Board(r.Context(), true)
		if !seat.Outcome.Pass {
			http.Error(w, "refused", http.StatusTooManyRequests)
			return
		}
		var o proxy.Outcome
		result.Recording.Observe(&o)
		defer func() {
			result.Recording.End(o.Class == proxy.OK)
			if seat.Done != nil {
				seat.Done()
			}
		}()
		s.toOrigin().Serve(result.W, r, &o)
	case Refused:
		http.Error(w, "refused", http.StatusTooManyRequests)
	case Failed:
		http.Error(w, "failed", result.Status)
	case Broken:
		panic(http.ErrAbortHandler)
	case Answered:
	}
}

// group of a test's client is what it says.
const group = "Test-Group"

// road is the way of a request behind the cache.
type road struct {
	site *site
	r    *http.Request
}

func (w *road) Lane() flight.Lane {
	lane := flight.Lane{}
	if name := w.r.Header.Get(group); name != "" {
		lane.Group = netip.MustParsePrefix(name)
	}
	return lane
}

func (w *road) Keep() Way { return w }

func (w *road) Board(ctx context.Context, patience bool) flight.Seat {
	if decide := w.site.queue.Load(); decide != nil {
		return (*decide)(ctx, w.r, patience)
	}
	return w.site.seat()
}

func (w *road) Fetch(to http.ResponseWriter, r *http.Request, _ flight.Seat, o *proxy.Outcome) {
	defer func() {
		if p := recover(); p != nil && p != http.ErrAbortHandler { //nolint:errorlint // as net/http compares it
			panic(p)
		}
		if tell := w.site.ended.Load(); tell != nil {
			(*tell)(o)
		}
	}()
	w.site.toOrigin().Serve(to, r, o)
}

// reply is what a client got.
type reply struct {
	*http.Response
	body string
	err  error
}

// ask sends a request. Fields are given as "Name: value".
func (s *site) ask(method, path string, fields ...string) reply {
	s.t.Helper()
	return s.askContext(s.t.Context(), method, path, fields...)
}

func (s *site) askContext(ctx context.Context, method, path string, fields ...string) reply {
	req, err := http.NewRequestWithContext(ctx, method, s.edge.URL+path, http.NoBody)
	if err != nil {
		return reply{err: err}
	}
	for _, field := range fields {
		name, value, _ := strings.Cut(field, ": ")
		if name == "Host" {
			req.Host = value
			continue
		}
		req.Header.Add(name, value)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return reply{err: err}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return reply{Response: resp, body: string(body), err: err}
}

func (s *site) get(path string, fields ...string) reply {
	s.t.Helper()
	r := s.ask(http.MethodGet, path, fields...)
	require.NoError(s.t, r.err)
	return r
}

// is requires what the cache did for a request.
func (r reply) is(t testing.TB, xCache, statusHas string) reply {
	t.Helper()
	require.NoError(t, r.err)
	require.Equal(t, []string{xCache}, r.Header["X-Cache"], r.Header["Cache-Status"])
	require.Len(t, r.Header["Cache-Status"], 1)
	require.Contains(t, r.Header.Get("Cache-Status"), statusHas)
	return r
}

// send asks in the background.
func (s *site) send(ctx context.Context, path string, fields ...string) <-chan reply {
	out := make(chan reply, 1)
	go func() { out <- s.askContext(ctx, http.MethodGet, path, fields...) }()
	return out
}

// receive waits for a value.
func receive[T any](t testing.TB, from <-chan T) T {
	t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case v := <-from:
		return v
	case <-timer.C:
		t.Fatal("nothing came")
		panic("unreachable")
	}
}

// settings for the policy.
func policy(p rfc9111.Policy) func(*Options) { return func(o *Options) { o.Policy = p } }
