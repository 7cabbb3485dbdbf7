package listen

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// stage is a handler whose requests the test holds: /plain until it is released, /stream and /upgrade until they are
// cut.
type stage struct {
	causes  chan error // why a request's context was cancelled
	entered chan string
	release chan struct{}
}

func newStage() *stage {
	return &stage{causes: make(chan error, 8), entered: make(chan string, 8), release: make(chan struct{})}
}

func (s *stage) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/plain":
		s.entered <- r.URL.Path
		select {
		case <-s.release:
			_, _ = io.WriteString(w, "done")
		case <-r.Context().Done():
			s.causes <- context.Cause(r.Context())
			panic(http.ErrAbortHandler)
		}
	case "/stream":
		done := EventStream(r)
		defer done()
		_ = http.NewResponseController(w).Flush()
		s.entered <- r.URL.Path
		<-r.Context().Done()
		s.causes <- context.Cause(r.Context())
		panic(http.ErrAbortHandler)
	case "/upgrade":
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer func() { _ = c.Close() }()
		s.entered <- r.URL.Path
		_, err = c.Read(make([]byte, 1))
		s.causes <- err
	case "/stuck":
		s.entered <- r.URL.Path
		buf := make([]byte, 1<<20)
		for {
			if _, err := w.Write(buf); err != nil { // to a client that does not read
				s.causes <- err
				return
			}
		}
	}
}

// ask sends a request and waits until its handler runs.
func (s *stage) ask(t *testing.T, addr, path string) *bufio.Reader {
	t.Helper()
	c, br := dial(t, addr)
	write(t, c, "GET "+path+" HTTP/1.1\r\nHost: a\r\n\r\n")
	require.Equal(t, path, receive(t, s.entered))
	return br
}

func TestServer_DrainWaitsForPlainRequestsOnly(t *testing.T) {
	t.Parallel()
	stage := newStage()
	s, addr := start(t, Options{Handler: stage})
	idle, idleReader := dial(t, addr)
	write(t, idle, "GET /quick HTTP/1.1\r\nHost: a\r\n\r\n")
	readResponse(t, idleReader)
	stream, upgrade, plain := stage.ask(t, addr, "/stream"), stage.ask(t, addr, "/upgrade"), stage.ask(t, addr, "/plain")
	require.Equal(t, Counts{EventStreams: 1, Requests: 1, Upgrades: 1}, s.Active())

	drained := make(chan error, 1)
	go func() { drained <- s.Drain(within(t)) }()
	_, err := idleReader.ReadByte()
	require.ErrorIs(t, err, io.EOF, "idle connections are closed first, and so the drain has begun")
	require.Empty(t, drained)
	close(stage.release)
	res, body := readResponse(t, plain)
	require.Equal(t, "done", body)
	require.True(t, res.Close, "the client is told not to use this connection again")
	require.NoError(t, receive(t, drained))
	require.Equal(t, Counts{EventStreams: 1, Upgrades: 1}, s.Active())

	cut, err := s.Cut(within(t))
	require.NoError(t, err)
	require.Equal(t, Counts{EventStreams: 1, Upgrades: 1}, cut)
	require.Zero(t, s.Active(), "every handler has returned")
	causes := []error{receive(t, stage.causes), receive(t, stage.causes)}
	if !errors.Is(causes[0], ErrCut) {
		causes[0], causes[1] = causes[1], causes[0]
	}
	require.ErrorIs(t, causes[0], ErrCut)
	require.Error(t, causes[1])
	_, err = io.ReadAll(stream)
	require.NoError(t, err, "closed")
	_, _ = io.ReadAll(upgrade)
}

func TestServer_DrainWithNothingLeft(t *testing.T) {
	t.Parallel()
	stage := newStage()
	s, addr := start(t, Options{Handler: stage})
	br := stage.ask(t, addr, "/plain")
	drained := make(chan error, 1)
	go func() { drained <- s.Drain(within(t)) }()
	close(stage.release)
	_, body := readResponse(t, br)
	require.Equal(t, "done", body)
	require.NoError(t, receive(t, drained))
	cut, err := s.Cut(within(t))
	require.NoError(t, err)
	require.Zero(t, cut)
}

func TestServer_DrainEndsWithItsContext(t *testing.T) {
	t.Parallel()
	stage := newStage()
	s, addr := start(t, Options{Handler: stage})
	stage.ask(t, addr, "/plain")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.ErrorIs(t, s.Drain(ctx), context.Canceled)
	cut, err := s.Cut(within(t))
	require.NoError(t, err)
	require.Equal(t, Counts{Requests: 1}, cut)
	require.ErrorIs(t, receive(t, stage.causes), ErrCut)
}

// A handler that waits for a client which does not read is freed too.
func TestServer_CutFreesStuckWriters(t *testing.T) {
	t.Parallel()
	stage := newStage()
	s, addr := start(t, Options{Handler: stage})
	stage.ask(t, addr, "/stuck")
	cut, err := s.Cut(within(t))
	require.NoError(t, err)
	require.Equal(t, Counts{Requests: 1}, cut)
	require.Error(t, receive(t, stage.causes))
}

func TestServer_CutReportsWhatDoesNotEnd(t *testing.T) {
	t.Parallel()
	entered, release := make(chan struct{}), make(chan struct{})
	s, addr := start(t, Options{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(entered)
		<-release
	})})
	c, _ := dial(t, addr)
	write(t, c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	receive(t, entered)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := s.Cut(ctx)
	require.ErrorContains(t, err, "1 requests did not end")
	require.ErrorIs(t, err, context.Canceled)
	close(release) // the second Cut, when the test ends, succeeds
}

func TestServer_CutHTTP2(t *testing.T) {
	t.Parallel()
	stage := newStage()
	s, addr := start(t, Options{Handler: stage})
	client := newClient(t, h2c, nil)
	failed := make(chan error, 2)
	for _, path := range []string{"/stream", "/plain"} {
		go func() {
			res, err := client.Get("http://" + addr + path)
			if err == nil {
				_, err = io.ReadAll(res.Body)
				_ = res.Body.Close()
			}
			failed <- err
		}()
		require.Equal(t, path, receive(t, stage.entered))
	}
	require.Equal(t, Counts{EventStreams: 1, Requests: 1}, s.Active())
	cut, err := s.Cut(within(t))
	require.NoError(t, err)
	require.Equal(t, Counts{EventStreams: 1, Requests: 1}, cut)
	for range 2 {
		require.ErrorIs(t, receive(t, stage.causes), ErrCut)
		require.Error(t, receive(t, failed))
	}
}

func TestServer_StopBeforeStart(t *testing.T) {
	t.Parallel()
	s, _ := start(t, Options{Handler: echoProto})
	fresh, err := New(Options{Addr: "127.0.0.1:0", Handler: echoProto, Logger: s.options.Logger})
	require.NoError(t, err)
	require.NoError(t, fresh.Drain(within(t)))
	for range 2 {
		_, err = fresh.Cut(within(t))
		require.NoError(t, err)
	}
	require.NoError(t, s.Drain(within(t)))
	require.NoError(t, s.Drain(within(t)))
}

func TestEventStream_ForeignRequest(t *testing.T) {
	t.Parallel()
	r, err := http.NewRequest(http.MethodGet, "/", nil)
	require.NoError(t, err)
	EventStream(r)()
	require.False(t, PeerGone(r))
}
