package proxy_test

import (
	"bufio"
	"context"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/ccnq/ccnq/services/edge/internal/listen"
	"github.com/ccnq/ccnq/services/edge/internal/proxy"
)

// silentLog keeps the expected complaints of a test server out of the output.
var silentLog = log.New(io.Discard, "", 0)

// patience bounds every wait for a signal. It is reached only when a test fails.
const patience = 20 * time.Second

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// edge is a proxy behind the edge's real listener.
type edge struct {
	addr     string
	outcomes chan proxy.Outcome
	server   *listen.Server
}

// startEdge puts a proxy in front of the upstream URL. edit may change the options, wrap the handler.
func startEdge(t *testing.T, upstream string, edit func(*proxy.Options), wrap ...func(http.Handler) http.Handler) *edge {
	t.Helper()
	u, err := url.Parse(upstream)
	require.NoError(t, err)
	options := proxy.Options{Upstream: u, OnEventStream: listen.EventStream}
	if edit != nil {
		edit(&options)
	}
	p, err := proxy.New(options)
	require.NoError(t, err)
	e := &edge{outcomes: make(chan proxy.Outcome, 1024)}
	var handler http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var o proxy.Outcome
		defer func() { e.outcomes <- o }()
		p.Serve(w, r, &o)
	})
	for _, w := range wrap {
		handler = w(handler)
	}
	e.server, err = listen.New(listen.Options{Addr: "127.0.0.1:0", Handler: handler, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	addr, err := e.server.Start()
	require.NoError(t, err)
	e.addr = addr.String()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_, err := e.server.Cut(ctx)
		require.NoError(t, err)
		p.Close()
	})
	return e
}

// outcome waits for the next exchange to end.
func (e *edge) outcome(t *testing.T) proxy.Outcome {
	t.Helper()
	return receive(t, e.outcomes)
}

// url returns an address on the edge.
func (e *edge) url(path string) string { return "http://" + e.addr + path }

// dial opens a raw connection to the edge.
func (e *edge) dial(t *testing.T) (net.Conn, *bufio.Reader) {
	t.Helper()
	return dial(t, e.addr)
}

func dial(t *testing.T, addr string) (net.Conn, *bufio.Reader) {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
	return c, bufio.NewReader(c)
}

// send writes a raw request and returns the answer with its body read.
func (e *edge) send(t *testing.T, raw string) (*http.Response, string) {
	t.Helper()
	c, br := e.dial(t)
	write(t, c, raw)
	method, _, _ := strings.Cut(raw, " ")
	return readResponse(t, br, method)
}

func write(t *testing.T, w io.Writer, s string) {
	t.Helper()
	_, err := io.WriteString(w, s)
	require.NoError(t, err)
}

func readResponse(t *testing.T, br *bufio.Reader, method string) (*http.Response, string) {
	t.Helper()
	res, err := http.ReadResponse(br, &http.Request{Method: method})
	require.NoError(t, err)
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return res, string(body)
}

// newClient returns a client whose connections are closed with the test.
func newClient(t *testing.T) *http.Client {
	t.Helper()
	tr := &http.Transport{DisableCompression: true}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// startOrigin starts an origin that speaks HTTP.
func startOrigin(t *testing.T, handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(handler)
	t.Cleanup(s.Close)
	return s
}

// rawOrigin is an origin that hands every connection to a function, byte for byte.
type rawOrigin struct {
	addr string
	url  string
}

func startRawOrigin(t *testing.T, serve func(c net.Conn, br *bufio.Reader)) *rawOrigin {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan struct{})
	t.Cleanup(func() { _ = l.Close(); <-done })
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				serve(c, bufio.NewReader(c))
			}()
		}
	}()
	addr := l.Addr().String()
	return &rawOrigin{addr: addr, url: "http://" + addr}
}

// startRecorder starts a raw origin that answers every request head with 200 "ok" and reports the heads as they came.
// It reads a body by Content-Length or to the end of chunked framing, and reports it behind the head.
func startRecorder(t *testing.T) (*rawOrigin, <-chan string) {
	t.Helper()
	heads := make(chan string, 64)
	o := startRawOrigin(t, func(c net.Conn, br *bufio.Reader) {
		for {
			message, err := readMessage(br)
			if err != nil {
				return
			}
			heads <- message
			if _, err := io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"); err != nil {
				return
			}
		}
	})
	return o, heads
}

// readHead returns everything up to the empty line, as it came.
func readHead(br *bufio.Reader) (string, error) {
	var head strings.Builder
	for {
		line, err := br.ReadString('\n')
		if err != nil {
			return "", err
		}
		head.WriteString(line)
		if line == "\r\n" {
			return head.String(), nil
		}
	}
}

// readMessage returns a head and its body as they came.
func readMessage(br *bufio.Reader) (string, error) {
	head, err := readHead(br)
	if err != nil {
		return "", err
	}
	for line := range strings.SplitSeq(head, "\r\n") {
		name, value, _ := strings.Cut(line, ": ")
		switch name {
		case "Content-Length":
			var n int64
			for _, digit := range value {
				n = n*10 + int64(digit-'0')
			}
			body, err := io.ReadAll(io.LimitReader(br, n))
			return head + string(body), err
		case "Transfer-Encoding":
			var body strings.Builder
			for !strings.HasSuffix(body.String(), "0\r\n\r\n") {
				line, err := br.ReadString('\n')
				if err != nil {
					return "", err
				}
				body.WriteString(line)
			}
			return head + body.String(), nil
		}
	}
	return head, nil
}

// receive waits for a value.
func receive[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v, ok := <-c:
		require.True(t, ok, "the channel was closed")
		return v
	case <-time.After(patience):
		require.FailNow(t, "nothing came")
		panic("unreachable")
	}
}

// field returns the lines of a field in a raw head.
func field(head, name string) []string {
	var values []string
	for line := range strings.SplitSeq(head, "\r\n") {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.EqualFold(k, name) {
			values = append(values, strings.TrimSpace(v))
		}
	}
	return values
}

// targetOf returns the request target of a raw head.
func targetOf(t *testing.T, head string) string {
	t.Helper()
	line, _, _ := strings.Cut(head, "\r\n")
	parts := strings.Split(line, " ")
	require.Len(t, parts, 3, "request line %q", line)
	require.Equal(t, "HTTP/1.1", parts[2])
	return parts[1]
}
