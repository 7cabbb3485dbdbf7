package proxy_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/services/edge/internal/proxy"
)

// An answer reaches the client piece by piece, while the origin waits for the client's sign that the last piece came.
func TestServe_FlushesAsItArrives(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		fields      http.Header
		eventStream bool
	}{
		"EventStream":   {http.Header{"Content-Type": {"text/event-stream; charset=utf-8"}}, true},
		"UnknownLength": {http.Header{"Content-Type": {"text/html"}}, false},
		"KnownLength":   {http.Header{"Content-Type": {"text/html"}, "Content-Length": {"24"}}, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			arrived := make(chan struct{})
			origin := startOrigin(t, func(w http.ResponseWriter, r *http.Request) {
				for k, v := range test.fields {
					w.Header()[k] = v
				}
				for i := range 3 {
					_, _ = fmt.Fprintf(w, "data: %d\n", i)
					_ = http.NewResponseController(w).Flush()
					select {
					case <-arrived:
					case <-r.Context().Done():
						return
					}
				}
			})
			e := startEdge(t, origin.URL, nil)
			res, err := newClient(t).Get(e.url("/"))
			require.NoError(t, err)
			defer func() { _ = res.Body.Close() }()
			br := bufio.NewReader(res.Body)
			for i := range 3 {
				line, err := br.ReadString('\n')
				require.NoError(t, err)
				require.Equal(t, fmt.Sprintf("data: %d\n", i), line)
				if test.eventStream {
					require.Equal(t, 1, e.server.Active().EventStreams)
				}
				arrived <- struct{}{}
				if test.fields["Content-Length"] != nil && i == 2 {
					break
				}
			}
			_, err = br.ReadByte()
			require.ErrorIs(t, err, io.EOF)
			o := e.outcome(t)
			require.Equal(t, proxy.OK, o.Class)
			require.Equal(t, test.eventStream, o.EventStream)
			require.Positive(t, o.FirstByte)
			require.True(t, o.Reached)
		})
	}
}

// The head of an answer without known length is passed on before the first byte of its body is there.
func TestServe_HeadBeforeBody(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	origin := startOrigin(t, func(w http.ResponseWriter, _ *http.Request) {
		_ = http.NewResponseController(w).Flush()
		<-release
	})
	e := startEdge(t, origin.URL, nil)
	res, err := newClient(t).Get(e.url("/"))
	require.NoError(t, err)
	close(release)
	require.NoError(t, res.Body.Close())
}

func TestServe_Trailers(t *testing.T) {
	t.Parallel()
	got := make(chan http.Header, 1)
	origin := startOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		got <- r.Trailer
		w.Header().Set("Trailer", "X-Announced")
		_, _ = io.WriteString(w, "body")
		w.Header().Set("X-Announced", "one")
		w.Header().Set(http.TrailerPrefix+"X-Late", "two")
	})
	e := startEdge(t, origin.URL, nil)
	req, err := http.NewRequest(http.MethodPost, e.url("/"), io.NopCloser(strings.NewReader("hello")))
	require.NoError(t, err)
	req.Trailer = http.Header{"X-Checksum": {"abc"}}
	res, err := newClient(t).Do(req)
	require.NoError(t, err)
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Equal(t, "body", string(body))
	require.Equal(t, http.Header{"X-Checksum": {"abc"}}, receive(t, got))
	require.Equal(t, http.Header{"X-Announced": {"one"}, "X-Late": {"two"}}, res.Trailer)
}

func TestServe_EarlyHints(t *testing.T) {
	t.Parallel()
	seen := make(chan struct{})
	origin := startOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "</a.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		if r.ProtoAtLeast(1, 1) && r.URL.Path == "/wait" {
			<-seen
		}
		w.Header().Del("Link")
		w.WriteHeader(http.StatusNoContent)
	})
	e := startEdge(t, origin.URL, nil, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Gate", "own")
			next.ServeHTTP(w, r)
		})
	})
	hints := make(chan textproto.MIMEHeader, 1)
	ctx := httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{
		Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
			if code == http.StatusEarlyHints {
				hints <- h
				close(seen) // only now does the origin go on
			}
			return nil
		},
	})
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.url("/wait"), nil)
	require.NoError(t, err)
	res, err := newClient(t).Do(req)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Equal(t, http.StatusNoContent, res.StatusCode)
	require.Equal(t, "own", res.Header.Get("X-Gate"), "the gate's field outlives a 1xx answer")
	require.Empty(t, res.Header.Get("Link"))
	require.Equal(t, textproto.MIMEHeader{"Link": {"</a.css>; rel=preload"}}, receive(t, hints))

	t.Run("NotToHTTP10", func(t *testing.T) {
		res, _ := e.send(t, "GET /now HTTP/1.0\r\nHost: site.example\r\n\r\n")
		require.Equal(t, http.StatusNoContent, res.StatusCode, "the first answer is the final one")
	})
}

// The origin decides whether a body is wanted: the client sends it only after the origin's 100.
func TestServe_Continue(t *testing.T) {
	t.Parallel()
	origin := startRawOrigin(t, func(c net.Conn, br *bufio.Reader) {
		head, err := readHead(br)
		if err != nil {
			return
		}
		if strings.HasPrefix(head, "POST /no") {
			_, _ = io.WriteString(c, "HTTP/1.1 417 Expectation Failed\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
			return
		}
		_, _ = io.WriteString(c, "HTTP/1.1 100 Continue\r\n\r\n")
		body := make([]byte, 5)
		if _, err := io.ReadFull(br, body); err == nil {
			_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n%s", body)
		}
	})
	e := startEdge(t, origin.url, nil)
	c, br := e.dial(t)
	write(t, c, "POST /yes HTTP/1.1\r\nHost: site.example\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n")
	head, err := readHead(br)
	require.NoError(t, err)
	require.Equal(t, "HTTP/1.1 100 Continue\r\n\r\n", head)
	write(t, c, "hello")
	res, body := readResponse(t, br, http.MethodPost)
	require.Equal(t, http.StatusOK, res.StatusCode)
	require.Equal(t, "hello", body)

	c, br = e.dial(t)
	write(t, c, "POST /no HTTP/1.1\r\nHost: site.example\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n")
	res, _ = readResponse(t, br, http.MethodPost)
	require.Equal(t, http.StatusExpectationFailed, res.StatusCode)
}

// A request body and its answer flow at the same time: every piece of the answer waits for the piece of the body
// before it.
func TestServe_BothWaysAtOnce(t *testing.T) {
	t.Parallel()
	origin := startOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		_ = rc.EnableFullDuplex()
		_ = rc.Flush()
		buf := make([]byte, 64)
		for {
			n, err := r.Body.Read(buf)
			if n > 0 {
				_, _ = w.Write(bytes.ToUpper(buf[:n]))
				_ = rc.Flush()
			}
			if err != nil {
				return
			}
		}
	})
	e := startEdge(t, origin.URL, nil)
	pr, pw := io.Pipe()
	req, err := http.NewRequest(http.MethodPost, e.url("/"), pr)
	require.NoError(t, err)
	res, err := newClient(t).Do(req)
	require.NoError(t, err)
	br := bufio.NewReader(res.Body)
	for _, piece := range []string{"one\n", "two\n", "three\n"} {
		write(t, pw, piece)
		line, err := br.ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, strings.ToUpper(piece), line)
	}
	require.NoError(t, pw.Close())
	_, err = br.ReadByte()
	require.ErrorIs(t, err, io.EOF)
	require.NoError(t, res.Body.Close())
}

// startEcho starts an origin that switches to the protocol asked for and echoes until the client's side ends.
func startEcho(t *testing.T) (*rawOrigin, <-chan string) {
	t.Helper()
	heads := make(chan string, 8)
	return startRawOrigin(t, func(c net.Conn, br *bufio.Reader) {
		head, err := readMessage(br)
		if err != nil {
			return
		}
		heads <- head
		upgrade := field(head, "Upgrade")
		if len(upgrade) != 1 {
			_, _ = io.WriteString(c, "HTTP/1.1 426 Upgrade Required\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
			return
		}
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+upgrade[0]+"\r\nX-Origin: 1\r\n\r\nhello ")
		_, _ = io.Copy(c, br)
	}), heads
}

func TestServe_Upgrade(t *testing.T) {
	t.Parallel()
	origin, heads := startEcho(t)
	e := startEdge(t, origin.url, nil)
	for asked, got := range map[string]string{"websocket": "websocket", "h2c, websocket": "websocket", "foo/2": "foo/2"} {
		c, br := e.dial(t)
		write(t, c, "GET /chat HTTP/1.1\r\nHost: site.example\r\nConnection: keep-alive, Upgrade\r\nUpgrade: "+asked+"\r\nSec-WebSocket-Key: x\r\n\r\n")
		head, err := readHead(br)
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(head, "HTTP/1.1 101 "), head)
		require.Equal(t, []string{got}, field(head, "Upgrade"))
		require.Equal(t, []string{"Upgrade"}, field(head, "Connection"))
		require.Equal(t, []string{"1"}, field(head, "X-Origin"))
		forwarded := receive(t, heads)
		require.Equal(t, []string{got}, field(forwarded, "Upgrade"))
		require.Equal(t, []string{"Upgrade"}, field(forwarded, "Connection"))
		require.Equal(t, []string{"x"}, field(forwarded, "Sec-WebSocket-Key"))

		echoed := make([]byte, 9)
		write(t, c, "one")
		_, err = io.ReadFull(br, echoed)
		require.NoError(t, err)
		require.Equal(t, "hello one", string(echoed))
		write(t, c, "two")
		_, err = io.ReadFull(br, echoed[:3])
		require.NoError(t, err)
		require.Equal(t, "two", string(echoed[:3]))
		require.Equal(t, 1, e.server.Active().Upgrades)
		require.NoError(t, c.(*net.TCPConn).CloseWrite())
		_, err = br.ReadByte()
		require.ErrorIs(t, err, io.EOF, "the origin's end is passed on")
		o := e.outcome(t)
		require.Equal(t, proxy.OK, o.Class)
		require.True(t, o.Upgraded)
		require.Equal(t, http.StatusSwitchingProtocols, o.Status)
	}
}

// Nothing is lost of what a client sends right behind its request for an upgrade.
func TestServe_UpgradeWithEarlyData(t *testing.T) {
	t.Parallel()
	origin, _ := startEcho(t)
	e := startEdge(t, origin.url, nil)
	c, br := e.dial(t)
	write(t, c, "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\nearly, ")
	_, err := readHead(br)
	require.NoError(t, err)
	write(t, c, "late")
	require.NoError(t, c.(*net.TCPConn).CloseWrite())
	echoed, err := io.ReadAll(br)
	require.NoError(t, err)
	require.Equal(t, "hello early, late", string(echoed))
}

// An upgrade that the protocol does not allow is passed on as a plain request.
func TestServe_UpgradeIgnored(t *testing.T) {
	t.Parallel()
	origin, heads := startEcho(t)
	e := startEdge(t, origin.url, nil)
	for name, request := range map[string]string{
		"HTTP10":  "GET / HTTP/1.0\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
		"Body":    "POST / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 1\r\n\r\nx",
		"Chunked": "POST / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n",
	} {
		res, _ := e.send(t, request)
		require.Equal(t, http.StatusUpgradeRequired, res.StatusCode, name)
		require.Empty(t, field(receive(t, heads), "Upgrade"), name)
	}
}

func TestServe_UpgradeUnasked(t *testing.T) {
	t.Parallel()
	closed := make(chan error, 2)
	origin := startRawOrigin(t, func(c net.Conn, br *bufio.Reader) {
		head, err := readHead(br)
		if err != nil {
			return
		}
		if strings.HasPrefix(head, "GET /named") {
			_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\n")
		} else {
			_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\n\r\n")
		}
		_, err = br.ReadByte()
		closed <- err
	})
	e := startEdge(t, origin.url, nil)
	for _, request := range []string{
		"GET /plain HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET /named HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
	} {
		res, _ := e.send(t, request)
		require.Equal(t, http.StatusBadGateway, res.StatusCode)
		o := e.outcome(t)
		require.Equal(t, proxy.Reset, o.Class)
		require.False(t, o.Upgraded)
		require.Error(t, receive(t, closed), "the connection to the origin is closed")
	}
}

// A server in front that speaks HTTP/2 passes the same things: several requests at once on one connection, trailers,
// streams.
func TestServe_HTTP2Client(t *testing.T) {
	t.Parallel()
	both := make(chan struct{}, 2)
	release := make(chan struct{})
	origin := startOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		both <- struct{}{}
		<-release
		w.Header().Set("Trailer", "X-Sum")
		_, _ = fmt.Fprintf(w, "%s %s %s %s", r.Proto, r.RequestURI, r.Host, body)
		w.Header().Set("X-Sum", r.Trailer.Get("X-Sum"))
	})
	e := startEdge(t, origin.URL, nil)
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	tr := &http.Transport{Protocols: protocols}
	t.Cleanup(tr.CloseIdleConnections)
	type answer struct {
		res  *http.Response
		body string
		err  error
	}
	answers := make(chan answer, 2)
	for range 2 {
		go func() {
			req, _ := http.NewRequest(http.MethodPost, e.url("/a%2Fb?x=;"), io.NopCloser(strings.NewReader("in")))
			req.Trailer = http.Header{"X-Sum": {"7"}}
			res, err := tr.RoundTrip(req)
			if err != nil {
				answers <- answer{err: err}
				return
			}
			body, err := io.ReadAll(res.Body)
			_ = res.Body.Close()
			answers <- answer{res, string(body), err}
		}()
	}
	receive(t, both)
	receive(t, both)
	close(release)
	for range 2 {
		a := receive(t, answers)
		require.NoError(t, a.err)
		require.Equal(t, 2, a.res.ProtoMajor)
		require.Equal(t, "HTTP/1.1 /a%2Fb?x=; "+e.addr+" in", a.body)
		require.Equal(t, http.Header{"X-Sum": {"7"}}, a.res.Trailer)
		require.Equal(t, proxy.OK, e.outcome(t).Class)
	}
}

// Not parallel: it reads the memory statistics of the whole process.
func TestServe_LargeBodiesInBoundedMemory(t *testing.T) {
	const size = 128 << 20
	origin := startOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		piece := make([]byte, 64<<10)
		for range n / int64(len(piece)) {
			if _, err := w.Write(piece); err != nil {
				return
			}
		}
	})
	e := startEdge(t, origin.URL, nil)
	client := newClient(t)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	res, err := client.Post(e.url("/"), "application/octet-stream", io.LimitReader(zeros{}, size))
	require.NoError(t, err)
	n, err := io.Copy(io.Discard, res.Body)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.EqualValues(t, size, n)
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(size/8), "bytes allocated for %d bytes each way", size)
	require.Equal(t, proxy.OK, e.outcome(t).Class)
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// A head of several lines at once is bounded.
func TestServe_HugeResponseHead(t *testing.T) {
	t.Parallel()
	origin := startRawOrigin(t, func(c net.Conn, br *bufio.Reader) {
		if _, err := readHead(br); err != nil {
			return
		}
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n")
		line := "X-Fill: " + strings.Repeat("x", 1000) + "\r\n"
		for range 1000 {
			if _, err := io.WriteString(c, line); err != nil {
				return
			}
		}
		_, _ = io.WriteString(c, "\r\n")
	})
	e := startEdge(t, origin.url, nil)
	res, _ := e.send(t, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	require.Equal(t, http.StatusBadGateway, res.StatusCode)
	require.Equal(t, proxy.Reset, e.outcome(t).Class)
}
