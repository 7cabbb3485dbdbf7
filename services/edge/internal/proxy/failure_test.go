package proxy_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/services/edge/internal/proxy"
)

// requireError checks an answer of the proxy's own.
func requireError(t *testing.T, res *http.Response, body string, status int) {
	t.Helper()
	require.Equal(t, status, res.StatusCode)
	require.Equal(t, "no-store", res.Header.Get("Cache-Control"))
	require.Equal(t, "text/plain; charset=utf-8", res.Header.Get("Content-Type"))
	require.Contains(t, body, http.StatusText(status))
	require.Less(t, len(body), 200)
}

func TestServe_Unreachable(t *testing.T) {
	t.Parallel()
	untrusted := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(untrusted.Close)
	untrusted.Config.ErrorLog = silentLog
	plain := startOrigin(t, func(http.ResponseWriter, *http.Request) {})
	for name, upstream := range map[string]string{
		"PortClosed":           "http://127.0.0.1:1", // which nobody is given
		"NoSuchHost":           "http://origin.invalid",
		"UntrustedCertificate": untrusted.URL,
		"NoTLS":                strings.Replace(plain.URL, "http", "https", 1),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := startEdge(t, upstream, nil, func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("X-Cache", "MISS")
					next.ServeHTTP(w, r)
				})
			})
			res, body := e.send(t, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
			requireError(t, res, body, http.StatusBadGateway)
			require.Equal(t, "MISS", res.Header.Get("X-Cache"), "the gate's fields are on every answer")
			o := e.outcome(t)
			require.Equal(t, proxy.Unreachable, o.Class)
			require.False(t, o.Reached)
			require.Error(t, o.Err)
			require.Equal(t, http.StatusBadGateway, o.Status)
		})
	}
}

func TestServe_Timeout(t *testing.T) {
	t.Parallel()
	cancelled := make(chan struct{}, 1)
	origin := startOrigin(t, func(_ http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		cancelled <- struct{}{}
	})
	e := startEdge(t, origin.URL, func(o *proxy.Options) { o.ResponseHeaderTimeout = 20 * time.Millisecond })
	res, body := e.send(t, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	requireError(t, res, body, http.StatusGatewayTimeout)
	o := e.outcome(t)
	require.Equal(t, proxy.Timeout, o.Class)
	require.True(t, o.Reached)
	receive(t, cancelled)
}

// An origin that accepts but never speaks TLS.
func TestServe_ConnectTimeout(t *testing.T) {
	t.Parallel()
	origin := startRawOrigin(t, func(_ net.Conn, br *bufio.Reader) { _, _ = io.Copy(io.Discard, br) })
	e := startEdge(t, "https://"+origin.addr, func(o *proxy.Options) { o.ConnectTimeout = 20 * time.Millisecond })
	res, body := e.send(t, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	requireError(t, res, body, http.StatusGatewayTimeout)
	o := e.outcome(t)
	require.Equal(t, proxy.Timeout, o.Class)
	require.False(t, o.Reached)
}

func TestServe_NoValidAnswer(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]string{
		"Nothing":               "",
		"Noise":                 "SSH-2.0-OpenSSH_9.2\r\n\r\n",
		"TwoLengths":            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
		"HalfAHead":             "HTTP/1.1 200 OK\r\nContent-",
		"StatusBelowHundred":    "HTTP/1.1 099 Odd\r\nContent-Length: 0\r\n\r\n",
		"StatusZero":            "HTTP/1.1 000 Odd\r\nContent-Length: 0\r\n\r\n",
		"UnknownCoding":         "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
		"StatusOutOfThreeDigit": "HTTP/1.1 1000 Odd\r\nContent-Length: 0\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			origin := startRawOrigin(t, func(c net.Conn, br *bufio.Reader) {
				if _, err := readHead(br); err == nil {
					_, _ = io.WriteString(c, answer)
				}
			})
			e := startEdge(t, origin.url, nil)
			res, body := e.send(t, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
			requireError(t, res, body, http.StatusBadGateway)
			o := e.outcome(t)
			require.Equal(t, proxy.Reset, o.Class)
			require.True(t, o.Reached)
		})
	}
}

// In every case of F16 the exchange ends by itself, once, says why, and the origin's request is cancelled.
func TestF16_ClientHangsUpBeforeTheHead(t *testing.T) {
	t.Parallel()
	asked, cancelled := make(chan struct{}, 1), make(chan struct{}, 1)
	origin := startOrigin(t, func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-r.Context().Done()
		cancelled <- struct{}{}
	})
	e := startEdge(t, origin.URL, nil)
	c, _ := e.dial(t)
	write(t, c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	receive(t, asked)
	require.NoError(t, c.Close())
	o := e.outcome(t)
	require.Equal(t, proxy.ClientGone, o.Class)
	require.Zero(t, o.Status)
	receive(t, cancelled)
}

func TestF16_ClientHangsUpInTheBody(t *testing.T) {
	t.Parallel()
	cancelled := make(chan struct{}, 1)
	origin := startOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		piece := make([]byte, 32<<10)
		for {
			if _, err := w.Write(piece); err != nil {
				cancelled <- struct{}{}
				return
			}
		}
	})
	e := startEdge(t, origin.URL, nil)
	for _, linger := range []int{0, -1} { // a reset, a close
		c, br := e.dial(t)
		write(t, c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		_, err := readHead(br)
		require.NoError(t, err)
		require.NoError(t, c.(*net.TCPConn).SetLinger(linger))
		require.NoError(t, c.Close())
		o := e.outcome(t)
		require.Equal(t, proxy.ClientGone, o.Class)
		require.Equal(t, http.StatusOK, o.Status)
		receive(t, cancelled)
	}
}

func TestF16_ClientHangsUpInTheUpload(t *testing.T) {
	t.Parallel()
	for name, request := range map[string]string{
		"Length":  "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc",
		"Chunked": "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := make(chan error, 1)
			asked := make(chan struct{}, 1)
			origin := startOrigin(t, func(_ http.ResponseWriter, r *http.Request) {
				asked <- struct{}{}
				_, err := io.Copy(io.Discard, r.Body)
				got <- err
			})
			e := startEdge(t, origin.URL, nil)
			c, _ := e.dial(t)
			write(t, c, request)
			if name == "Length" { // of a chunked body nothing is sent before a whole piece is there
				receive(t, asked)
			}
			require.NoError(t, c.Close())
			require.Equal(t, proxy.ClientGone, e.outcome(t).Class)
			if name == "Length" {
				require.Error(t, receive(t, got), "the origin never takes half a body for a whole one")
			}
		})
	}
}

func TestF16_OriginBreaksOff(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		answer, more string
		reset        bool
	}{
		"ResetInTheBody":   {"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc", "", true},
		"ClosedInTheBody":  {"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc", "", false},
		"ResetInAChunk":    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", "64\r\nde", true},
		"ClosedInAChunk":   {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", "64\r\nde", false},
		"ClosedAfterChunk": {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", "", false},
		"BadChunk":         {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", "xyz\r\n", false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			delivered := make(chan struct{})
			origin := startRawOrigin(t, func(c net.Conn, br *bufio.Reader) {
				if _, err := readHead(br); err != nil {
					return
				}
				_, _ = io.WriteString(c, test.answer)
				<-delivered
				_, _ = io.WriteString(c, test.more)
				if test.reset {
					_ = c.(*net.TCPConn).SetLinger(0)
				}
			})
			e := startEdge(t, origin.url, nil)
			c, br := e.dial(t)
			write(t, c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
			res, err := http.ReadResponse(br, nil)
			require.NoError(t, err)
			require.Equal(t, http.StatusOK, res.StatusCode)
			first := make([]byte, 3)
			_, err = io.ReadFull(res.Body, first)
			require.NoError(t, err)
			close(delivered)
			_, err = io.Copy(io.Discard, res.Body)
			require.Error(t, err, "the client sees a broken response, not a clean end")
			o := e.outcome(t)
			require.Equal(t, proxy.Reset, o.Class)
			require.Equal(t, http.StatusOK, o.Status)
			require.Error(t, o.Err)
			_ = res.Body.Close()
		})
	}
}

func TestF16_OriginResetsBeforeTheHead(t *testing.T) {
	t.Parallel()
	origin := startRawOrigin(t, func(c net.Conn, br *bufio.Reader) {
		_, _ = readHead(br)
		_ = c.(*net.TCPConn).SetLinger(0)
	})
	e := startEdge(t, origin.url, nil)
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		res, body := e.send(t, method+" / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
		requireError(t, res, body, http.StatusBadGateway)
		require.Equal(t, proxy.Reset, e.outcome(t).Class)
	}
}

// A body that turns out malformed while the answer is already on its way is the client's fault, not the origin's.
func TestServe_MalformedUploadDuringTheAnswer(t *testing.T) {
	t.Parallel()
	origin := startRawOrigin(t, func(c net.Conn, br *bufio.Reader) {
		if _, err := readHead(br); err != nil {
			return
		}
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc")
		_, _ = io.Copy(io.Discard, br)
	})
	e := startEdge(t, origin.url, nil)
	c, br := e.dial(t)
	write(t, c, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n")
	_, err := readHead(br)
	require.NoError(t, err)
	write(t, c, "zzz\r\n")
	_, _ = io.Copy(io.Discard, br)
	o := e.outcome(t)
	require.Equal(t, proxy.BadRequest, o.Class)
	require.Equal(t, http.StatusOK, o.Status)
}

// limit is a gate that ends its requests with a cause as soon as it is told.
func limit(cause error, now <-chan struct{}) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ctx, cancel := context.WithCancelCause(r.Context())
			stopped := make(chan struct{})
			go func() {
				defer close(stopped)
				select {
				case <-now:
					cancel(cause)
				case <-ctx.Done():
				}
			}()
			defer func() { cancel(nil); <-stopped }()
			next.ServeHTTP(w, r.WithContext(ctx))
		})
	}
}

func TestF16_TimeLimitEndsTheRequest(t *testing.T) {
	t.Parallel()
	shutdown := errors.New("shutdown")
	for name, test := range map[string]struct {
		cause error
		class proxy.Class
	}{
		"DurationLimit": {proxy.ErrDurationLimit, proxy.DurationLimit},
		"Other":         {shutdown, proxy.Cut},
	} {
		for _, stage := range []string{"/head", "/body", "/upgrade"} {
			t.Run(name+stage, func(t *testing.T) {
				t.Parallel()
				ended := make(chan struct{}, 1)
				now := make(chan struct{})
				origin := startRawOrigin(t, func(c net.Conn, br *bufio.Reader) {
					head, err := readHead(br)
					if err != nil {
						return
					}
					switch targetOf(t, head) {
					case "/head":
						close(now)
					case "/body":
						_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n:\n\n")
					case "/upgrade":
						_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
					}
					_, _ = br.ReadByte()
					ended <- struct{}{}
				})
				e := startEdge(t, origin.url, nil, limit(test.cause, now))
				c, br := e.dial(t)
				write(t, c, "GET "+stage+" HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
				if stage != "/head" {
					_, err := readHead(br)
					require.NoError(t, err)
					close(now)
				}
				rest, _ := io.ReadAll(br)
				require.NotContains(t, string(rest), "HTTP/1.1", "no answer is made up")
				require.NotContains(t, string(rest), "\r\n0\r\n\r\n", "the stream is not ended cleanly")
				o := e.outcome(t)
				require.Equal(t, test.class, o.Class)
				require.Equal(t, test.cause, o.Err)
				receive(t, ended)
			})
		}
	}
}

// Deferred functions of the callers run, and the outcome is complete, although Serve panics.
func TestServe_AbortRunsDefers(t *testing.T) {
	t.Parallel()
	origin := startRawOrigin(t, func(c net.Conn, br *bufio.Reader) {
		if _, err := readHead(br); err == nil {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc")
		}
	})
	panics := make(chan any, 1)
	e := startEdge(t, origin.url, nil, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer func() {
				p := recover()
				panics <- p
				panic(p)
			}()
			next.ServeHTTP(w, r)
		})
	})
	c, br := e.dial(t)
	write(t, c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	_, _ = io.ReadAll(br)
	require.Equal(t, http.ErrAbortHandler, receive(t, panics))
	require.Equal(t, proxy.Reset, e.outcome(t).Class)
}

// An origin that closes an idle connection while the next request is on its way does not cost a bodyless request its
// answer.
func TestServe_StaleConnection(t *testing.T) {
	t.Parallel()
	heads := make(chan string, 8)
	origin := startRawOrigin(t, func(c net.Conn, br *bufio.Reader) {
		for i := 0; ; i++ {
			head, err := readHead(br)
			if err != nil {
				return
			}
			heads <- targetOf(t, head)
			if i == 1 {
				return // the second request on a connection is dropped unanswered
			}
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		}
	})
	e := startEdge(t, origin.url, nil)
	for _, target := range []string{"/1", "/2"} {
		res, _ := e.send(t, "GET "+target+" HTTP/1.1\r\nHost: a\r\n\r\n")
		require.Equal(t, http.StatusOK, res.StatusCode)
	}
	require.Equal(t, []string{"/1", "/2", "/2"}, []string{<-heads, <-heads, <-heads})
	res, _ := e.send(t, "POST /3 HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx")
	require.Equal(t, http.StatusBadGateway, res.StatusCode)
	require.Equal(t, "/3", <-heads)
	require.Empty(t, heads, "a POST is sent once")
}

func TestNew_BadOptions(t *testing.T) {
	t.Parallel()
	for upstream, want := range map[string]string{
		"":                    "scheme",
		"ftp://a":             "scheme",
		"http:///x":           "host",
		"http://:80/":         "host",
		"http:a":              "host",
		"http://me:secret@a/": "user information",
		"http://a/?q":         "query",
		"http://a/?":          "query",
		"http://a/#f":         "query or fragment",
	} {
		u, err := url.Parse(upstream)
		require.NoError(t, err)
		_, err = proxy.New(proxy.Options{Upstream: u})
		require.ErrorContains(t, err, want, upstream)
		require.NotContains(t, err.Error(), "secret")
	}
	_, err := proxy.New(proxy.Options{})
	require.ErrorContains(t, err, "no upstream URL")
	_, err = proxy.New(proxy.Options{Upstream: &url.URL{Scheme: "http", Host: "a"}, ConnectTimeout: -1})
	require.ErrorContains(t, err, "negative")
}

func TestClass_String(t *testing.T) {
	t.Parallel()
	names := map[proxy.Class]string{
		proxy.OK: "ok", proxy.Unreachable: "unreachable", proxy.Timeout: "timeout", proxy.Reset: "reset", proxy.ClientGone: "client-gone",
		proxy.DurationLimit: "duration-limit", proxy.Cut: "cut", proxy.BadRequest: "bad-request", 255: "unknown",
	}
	for class, name := range names {
		require.Equal(t, name, class.String())
	}
}
