package listen

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	frames "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// patience bounds every wait for a signal. It is reached only when a test fails.
const patience = 20 * time.Second

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start runs a server until the end of the test.
func start(t *testing.T, o Options) (*Server, string) {
	t.Helper()
	o.Addr = "127.0.0.1:0"
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s, err := New(o)
	require.NoError(t, err)
	addr, err := s.Start()
	require.NoError(t, err)
	t.Cleanup(func() { _, err := s.Cut(within(t)); require.NoError(t, err) })
	return s, addr.String()
}

// within returns a context that ends long after the test should have.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

func dial(t *testing.T, addr string) (*net.TCPConn, *bufio.Reader) {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
	return c.(*net.TCPConn), bufio.NewReader(c)
}

func write(t *testing.T, w io.Writer, s string) {
	t.Helper()
	_, err := io.WriteString(w, s)
	require.NoError(t, err)
}

func readResponse(t *testing.T, br *bufio.Reader) (*http.Response, string) {
	t.Helper()
	res, err := http.ReadResponse(br, nil)
	require.NoError(t, err)
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	return res, string(body)
}

func receive[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		require.FailNow(t, "nothing came")
		panic("unreachable")
	}
}

// newClient returns a client that speaks one protocol only.
func newClient(t *testing.T, protocol func(*http.Protocols), config *tls.Config) *http.Client {
	t.Helper()
	protocols := new(http.Protocols)
	protocol(protocols)
	tr := &http.Transport{Protocols: protocols, TLSClientConfig: config}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

func http1(p *http.Protocols) { p.SetHTTP1(true) }
func http2(p *http.Protocols) { p.SetHTTP2(true) }
func h2c(p *http.Protocols)   { p.SetUnencryptedHTTP2(true) }

var echoProto = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto) })

func get(t *testing.T, client *http.Client, url string) (*http.Response, string) {
	t.Helper()
	res, err := client.Get(url)
	require.NoError(t, err)
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	return res, string(body)
}

func TestServer_Protocols(t *testing.T) {
	t.Parallel()
	_, addr := start(t, Options{Handler: echoProto})
	for want, protocol := range map[string]func(*http.Protocols){"HTTP/1.1": http1, "HTTP/2.0": h2c} {
		client := newClient(t, protocol, nil)
		for range 2 {
			_, body := get(t, client, "http://"+addr+"/")
			require.Equal(t, want, body)
		}
	}
}

func TestServer_OptionsAsteriskReachesTheHandler(t *testing.T) {
	t.Parallel()
	_, addr := start(t, Options{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.RequestURI) })})
	c, br := dial(t, addr)
	write(t, c, "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n")
	_, body := readResponse(t, br)
	require.Equal(t, "*", body)
}

// A client that never finishes its head is cut off; one that finishes in time may take as long as it likes with the
// body.
func TestServer_SlowHead(t *testing.T) {
	t.Parallel()
	got := make(chan struct{}, 1)
	_, addr := start(t, Options{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got <- struct{}{}
		body, err := io.ReadAll(r.Body)
		if err == nil {
			_, _ = w.Write(body)
		}
	})})
	slowBody, slowBodyReader := dial(t, addr)
	write(t, slowBody, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhello")
	receive(t, got)

	var cutOff []*bufio.Reader
	for _, half := range []string{"GET / HTTP/1.1\r\nHost: a\r\nX-Slow: ", "GET", ""} {
		c, br := dial(t, addr)
		write(t, c, half)
		cutOff = append(cutOff, br)
	}
	for _, br := range cutOff {
		_, err := io.ReadAll(br)
		require.NoError(t, err, "the server closes the connection")
	}

	write(t, slowBody, "world") // later than ReadHeaderTimeout by now
	_, body := readResponse(t, slowBodyReader)
	require.Equal(t, "helloworld", body)
}

func TestServer_IdleTimeout(t *testing.T) {
	t.Parallel()
	_, addr := start(t, Options{IdleTimeout: 20 * time.Millisecond, Handler: echoProto})
	c, br := dial(t, addr)
	write(t, c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	readResponse(t, br)
	_, err := br.ReadByte()
	require.ErrorIs(t, err, io.EOF)
}

func TestServer_HeaderLimit(t *testing.T) {
	t.Parallel()
	_, addr := start(t, Options{Handler: echoProto, MaxHeaderBytes: 20 << 10})
	value := func(n int) string { return strings.Repeat("u", n) }
	for name, test := range map[string]struct {
		fields string
		status int
	}{
		"Fits":     {"User-Agent: " + value(16<<10) + "\r\n", http.StatusOK},
		"OneLine":  {"User-Agent: " + value(32<<10) + "\r\n", http.StatusRequestHeaderFieldsTooLarge},
		"AllLines": {strings.Repeat("X-A: "+value(1000)+"\r\n", 32), http.StatusRequestHeaderFieldsTooLarge},
		"Endless":  {"X-A: " + value(1<<20), http.StatusRequestHeaderFieldsTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, br := dial(t, addr)
			go func() { _, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n"+test.fields+"\r\n") }() // the server may stop reading
			res, err := http.ReadResponse(br, nil)
			require.NoError(t, err)
			require.Equal(t, test.status, res.StatusCode)
			require.Equal(t, test.status != http.StatusOK, res.Close)
		})
	}
	t.Run("HTTP2", func(t *testing.T) {
		t.Parallel()
		c, br := dial(t, addr)
		require.Equal(t, "431", statusOfFrames(t, c, br, func(e *hpack.Encoder) {
			for range 32 {
				require.NoError(t, e.WriteField(hpack.HeaderField{Name: "x-a", Value: value(1000)}))
			}
		}))
	})
}

// statusOfFrames sends one HTTP/2 request frame by frame, as a client may that ignores the limit the server
// announces, and returns the status of the answer.
func statusOfFrames(t *testing.T, c net.Conn, br *bufio.Reader, fields func(*hpack.Encoder)) string {
	t.Helper()
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for _, f := range [][2]string{{":method", "GET"}, {":scheme", "http"}, {":authority", "a"}, {":path", "/"}} {
		require.NoError(t, encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}))
	}
	fields(encoder)
	write(t, c, frames.ClientPreface)
	framer := frames.NewFramer(c, br)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	require.NoError(t, framer.WriteSettings())
	const piece = 16 << 10
	first := true
	for block.Len() > 0 {
		fragment := block.Next(piece)
		if first {
			require.NoError(t, framer.WriteHeaders(frames.HeadersFrameParam{StreamID: 1, BlockFragment: fragment, EndStream: true, EndHeaders: block.Len() == 0}))
		} else {
			require.NoError(t, framer.WriteContinuation(1, block.Len() == 0, fragment))
		}
		first = false
	}
	for {
		frame, err := framer.ReadFrame()
		require.NoError(t, err)
		if headers, ok := frame.(*frames.MetaHeadersFrame); ok {
			return headers.PseudoValue("status")
		}
	}
}

func TestServer_RefusesBadHeads(t *testing.T) {
	t.Parallel()
	served := make(chan string, 4)
	_, addr := start(t, Options{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { served <- r.URL.Path })})
	c, br := dial(t, addr)
	write(t, c, "GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\nX: y\r\n\r\nGET /3 HTTP/1.1\r\nHost: a\r\n\r\n")
	res, _ := readResponse(t, br)
	require.Equal(t, http.StatusOK, res.StatusCode)
	res, body := readResponse(t, br)
	require.Equal(t, http.StatusBadRequest, res.StatusCode)
	require.Equal(t, "no-store", res.Header.Get("Cache-Control"))
	require.Contains(t, body, "folded")
	require.True(t, res.Close)
	_, err := br.ReadByte()
	require.Error(t, err)
	require.Equal(t, "/1", receive(t, served))
	require.Empty(t, served)
}

func TestNew_BadOptions(t *testing.T) {
	t.Parallel()
	logger := slog.New(slog.DiscardHandler)
	for want, o := range map[string]Options{
		"Handler and Logger": {Logger: logger},
		"timeout":            {Handler: echoProto, Logger: logger, IdleTimeout: -1},
		"MaxHeaderBytes":     {Handler: echoProto, Logger: logger, MaxHeaderBytes: -1},
		"together":           {Handler: echoProto, Logger: logger, TLSCertFile: "x"},
		"no such file":       {Handler: echoProto, Logger: logger, TLSCertFile: "/nowhere/c", TLSKeyFile: "/nowhere/k"},
	} {
		_, err := New(o)
		require.ErrorContains(t, err, want)
	}
	s, err := New(Options{Addr: "256.0.0.1:0", Handler: echoProto, Logger: logger})
	require.NoError(t, err)
	_, err = s.Start()
	require.ErrorContains(t, err, "256.0.0.1")
}

func TestServer_StartTwice(t *testing.T) {
	t.Parallel()
	s, _ := start(t, Options{Handler: echoProto})
	_, err := s.Start()
	require.ErrorContains(t, err, "twice")
}

func TestErrorLog_BoundedRate(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	now := time.Unix(1000, 0)
	e := &errorLog{logger: slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})), now: func() time.Time { return now }}
	for range errorLines + 7 {
		_, _ = e.Write([]byte("http: TLS handshake error from 192.0.2.1:4: EOF\n"))
	}
	require.Equal(t, errorLines, strings.Count(out.String(), "level=DEBUG"))
	now = now.Add(time.Second)
	_, _ = e.Write([]byte("http: panic serving 192.0.2.1:4: boom\ngoroutine 1\n"))
	require.Equal(t, 1, strings.Count(out.String(), "level=WARN"))
	require.Contains(t, out.String(), "count=7")
	require.Equal(t, 1, strings.Count(out.String(), "level=ERROR"))
	require.Equal(t, 1, strings.Count(out.String(), "boom"))
}
