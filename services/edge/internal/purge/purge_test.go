package purge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/pkg/bus"
	"github.com/ccnq/ccnq/pkg/bus/embed"
	"github.com/ccnq/ccnq/pkg/wire"
)

const (
	patience = 30 * time.Second
	tick     = time.Millisecond
	// enoughQuiet ends the wait for answers that a test looks at, someQuiet the wait for others.
	someQuiet, enoughQuiet = 300 * time.Millisecond, 5 * time.Second
)

// fakeCache notes what is purged.
type fakeCache struct {
	mu     sync.Mutex
	purged []string
	all    int
	empty  bool
	err    error
}

func (c *fakeCache) PurgeTargets(_ context.Context, targets []wire.PurgeTarget) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range targets {
		c.purged = append(c.purged, t.Target)
	}
	return c.err
}

func (c *fakeCache) PurgeAll(context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all++
	return c.err
}

func (c *fakeCache) Empty() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.empty
}

func (c *fakeCache) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
}

func (c *fakeCache) state() (purged string, all int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Join(c.purged, " "), c.all
}

// site is a broker with an operator.
type site struct {
	t        *testing.T
	server   *embed.Server
	operator *bus.Conn
}

func newSite(t *testing.T, stream bool) *site {
	t.Helper()
	server, err := embed.Start(embed.Options{StoreDir: t.TempDir()})
	require.NoError(t, err)
	t.Cleanup(server.Stop)
	s := &site{t: t, server: server}
	s.operator = s.connect()
	if stream {
		s.makeStream()
	}
	return s
}

func (s *site) connect() *bus.Conn {
	s.t.Helper()
	conn, err := bus.Connect(bus.Options{InProcess: s.server.InProcess(), Logger: slog.New(slog.DiscardHandler)})
	require.NoError(s.t, err)
	s.t.Cleanup(conn.Close)
	require.Eventually(s.t, conn.Connected, patience, tick)
	return conn
}

func (s *site) makeStream() {
	s.t.Helper()
	_, err := bus.EnsureStream(s.t.Context(), s.operator, bus.StreamSpec{
		Name: wire.StreamPurges, Subjects: []string{wire.SubjectPurge}, Direct: true, MaxPerSubject: 5,
	})
	require.NoError(s.t, err)
}

func request(host string) wire.PurgeRequest {
	return wire.PurgeRequest{ID: NewID(), Targets: []wire.PurgeTarget{{Scope: wire.PurgeHost, Target: host}}}
}

// order purges a host, and returns what the edges say until they are quiet.
func (s *site) order(host string, quiet time.Duration) bus.Gathered[wire.PurgeReply] {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	all, err := bus.Gather[wire.PurgeRequest, wire.PurgeReply](ctx, s.operator, wire.SubjectPurge, wire.SubjectPurged, request(host), quiet)
	require.NoError(s.t, err)
	return all
}

// edge is a listener with its cache.
type edge struct {
	*Listener
	cache *fakeCache
}

func (s *site) edge(id, dir string, empty bool) *edge {
	s.t.Helper()
	return s.edgeOf(id, dir, &fakeCache{empty: empty})
}

func (s *site) edgeOf(id, dir string, cache *fakeCache) *edge {
	s.t.Helper()
	e := &edge{cache: cache}
	conn := s.connect()
	e.Listener = New(Options{
		EdgeID: id, Conn: conn, Cache: e.cache, Dir: dir,
		Registerer: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler),
	})
	e.interval = 5 * time.Millisecond
	require.NoError(s.t, e.Start())
	s.t.Cleanup(e.Stop)
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	require.NoError(s.t, conn.Ping(ctx))
	return e
}

// isAt waits until an edge has kept a place.
func (s *site) isAt(dir string, seq uint64) {
	s.t.Helper()
	require.Eventually(s.t, func() bool { return loadPosition(dir).Seq == seq }, patience, tick)
}

// isMade waits until an edge has kept a place in a stream.
func (s *site) isMade(dir string) {
	s.t.Helper()
	require.Eventually(s.t, func() bool { return !loadPosition(dir).Created.IsZero() }, patience, tick)
}

func TestEveryEdgeAnswers(t *testing.T) {
	t.Parallel()
	s := newSite(t, true)
	dirs := []string{t.TempDir(), t.TempDir()}
	a, b := s.edge("a", dirs[0], true), s.edge("b", dirs[1], true)
	s.isAt(dirs[1], 0)
	b.cache.fail(errors.New("not kept"))
	all := s.order("one.example", enoughQuiet)
	require.True(t, all.Stored)
	require.Equal(t, map[string]wire.PurgeReply{"a": {}, "b": {Warning: "not kept"}}, all.Replies)
	s.isAt(dirs[0], 1)
	purged, emptied := a.cache.state()
	require.Equal(t, "one.example", purged, "once, not again from the stream")
	require.Zero(t, emptied)
	b.cache.fail(nil)
	s.isAt(dirs[1], 1)
}

func TestWithoutAStream(t *testing.T) {
	t.Parallel()
	s := newSite(t, false)
	e := s.edge("a", t.TempDir(), false)
	all := s.order("one.example", enoughQuiet)
	require.False(t, all.Stored)
	require.Len(t, all.Replies, 1)
	purged, emptied := e.cache.state()
	require.Equal(t, "one.example", purged)
	require.Zero(t, emptied)
}

func TestAnEdgeThatWasAway(t *testing.T) {
	t.Parallel()
	s := newSite(t, true)
	dir := t.TempDir()
	e := s.edge("a", dir, true)
	s.order("0.example", someQuiet)
	s.isAt(dir, 1)
	e.Stop()
	e.opts.Conn.Close()
	for n := 1; n < 4; n++ {
		require.Empty(t, s.order(fmt.Sprint(n, ".example"), someQuiet).Replies)
	}
	e = s.edge("a", dir, false)
	s.isAt(dir, 4)
	purged, emptied := e.cache.state()
	require.Equal(t, "1.example 2.example 3.example", purged)
	require.Zero(t, emptied)
	e.Stop()
	e.opts.Conn.Close()

	// The stream keeps five: now some are gone.
	for n := 4; n < 12; n++ {
		s.order(fmt.Sprint(n, ".example"), someQuiet)
	}
	e = s.edge("a", dir, false)
	s.isAt(dir, 12)
	purged, emptied = e.cache.state()
	require.Empty(t, purged)
	require.Equal(t, 1, emptied)
	s.order("last.example", someQuiet)
	s.isAt(dir, 13)
	purged, emptied = e.cache.state()
	require.Equal(t, "last.example", purged)
	require.Equal(t, 1, emptied)
}

func TestAPlaceThatIsNotKnown(t *testing.T) {
	t.Parallel()
	s := newSite(t, true)
	s.order("one.example", someQuiet)
	for _, c := range []struct {
		name    string
		place   string
		empty   bool
		emptied int
	}{
		{"NothingStored", "", true, 0},
		{"SomethingStored", "", false, 1},
		{"OfAnotherStream", `{"created":"2020-01-01T00:00:00Z","seq":1}`, false, 1},
		{"NotReadable", `{"created":`, false, 1},
		// What is being fetched is not stored then.
		{"OfAnotherStreamAndNothingStored", `{"created":"2020-01-01T00:00:00Z","seq":1}`, true, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			if c.place != "" {
				require.NoError(t, os.WriteFile(filepath.Join(dir, positionFile), []byte(c.place), 0o600))
			}
			e := s.edge("a", dir, c.empty)
			require.Eventually(t, func() bool {
				p := loadPosition(dir)
				return p.Seq == 1 && p.Created.Year() > 2020
			}, patience, tick)
			_, emptied := e.cache.state()
			require.Equal(t, c.emptied, emptied)
		})
	}
}

// TestTheFirstLookComesLate: what was stored since the beginning stays, but for
// what was purged.
func TestTheFirstLookComesLate(t *testing.T) {
	t.Parallel()
	s := newSite(t, false)
	dir := t.TempDir()
	e := s.edge("a", dir, true)
	e.cache.mu.Lock()
	e.cache.empty = false
	e.cache.mu.Unlock()
	s.makeStream()
	s.isMade(dir)
	s.order("one.example", someQuiet)
	s.isAt(dir, 1)
	purged, emptied := e.cache.state()
	require.Equal(t, "one.example", purged)
	require.Zero(t, emptied)
}

// TestWhatCannotBeKeptIsToldOnce, though it is tried at every look, and told again when there is something new.
func TestWhatCannotBeKeptIsToldOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t, true)
	s.order("0.example", someQuiet)
	dir := t.TempDir()
	cache := &fakeCache{err: errors.New("the disk is full")}
	e := s.edgeOf("a", dir, cache) // which has missed a purge
	looks := func(more int) {
		t.Helper()
		_, before := cache.state()
		require.Eventually(t, func() bool { _, now := cache.state(); return now >= before+more }, patience, tick)
	}
	told := func(from string) float64 { return testutil.ToFloat64(e.purges.WithLabelValues(from)) }
	looks(5)
	require.InDelta(t, 1, told(fromGap), 0)
	s.order("1.example", someQuiet)
	looks(5)
	require.InDelta(t, 2, told(fromGap), 0)
	require.InDelta(t, 1, told(fromNATS), 0)
	cache.fail(nil)
	s.isAt(dir, 2)

	cache.fail(errors.New("the disk is full"))
	s.order("2.example", someQuiet)
	require.Eventually(t, func() bool { purged, _ := cache.state(); return strings.Count(purged, "2.example") > 5 }, patience, tick)
	require.InDelta(t, 2, told(fromNATS), 0)
	require.InDelta(t, 1, told(fromStream), 0)
	cache.fail(nil)
	s.isAt(dir, 3)
	require.InDelta(t, 1, told(fromStream), 0)
}

func TestAdminListener(t *testing.T) {
	t.Parallel()
	cache := &fakeCache{}
	l := New(Options{EdgeID: "a", Cache: cache, Dir: t.TempDir(), Registerer: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, l.Start())
	defer l.Stop()
	mux := http.NewServeMux()
	mux.Handle(Route, l)
	ask := func(kind, body string) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/cache/purge", strings.NewReader(body))
		r.Header.Set("Content-Type", kind)
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		return w
	}
	w := ask("application/json; charset=utf-8", `{"targets":[{"scope":"host","target":"one.example"}]}`)
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	var reply wire.PurgeReply
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &reply))
	require.Equal(t, wire.PurgeReply{}, reply)
	purged, _ := cache.state()
	require.Equal(t, "one.example", purged)

	require.Equal(t, http.StatusUnsupportedMediaType, ask("text/plain", `{}`).Code)
	require.Equal(t, http.StatusUnsupportedMediaType, ask("", `{}`).Code)
	for _, body := range []string{``, `{}`, `[]`, `{"targets":[]}`, `{"targets":[{"scope":"all","target":"x"}]}`} {
		require.Equal(t, http.StatusBadRequest, ask("application/json", body).Code, body)
	}
	require.Equal(t, http.StatusBadRequest, ask("application/json", `"`+strings.Repeat("x", wire.MaxMessage)+`"`).Code)
	purged, _ = cache.state()
	require.Equal(t, "one.example", purged)
}

func FuzzParsePosition(f *testing.F) {
	f.Add([]byte(`{"created":"2026-01-01T00:00:00Z","seq":17}`))
	f.Add([]byte(`{"seq":-1}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		p := parsePosition(b)
		dir := t.TempDir()
		if p.save(dir) == nil {
			again := loadPosition(dir)
			require.Equal(t, p.Seq, again.Seq)
			require.True(t, p.Created.Equal(again.Created))
		}
	})
}
