package traffic

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func serve(t *testing.T, handler http.HandlerFunc) (addr string) {
	t.Helper()
	s := httptest.NewServer(handler)
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

func TestFlood(t *testing.T) {
	t.Parallel()
	var count atomic.Int64
	addr := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/a" && r.Header.Get("X-Forwarded-For") == "203.0.113.7" {
			count.Add(1)
		}
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = w.Write([]byte("no\r\n\r\nno"))
	})
	request := Request("/a", "203.0.113.7")
	crowd, err := Gather(addr, 3)
	require.NoError(t, err)
	defer crowd.Close()
	require.NoError(t, crowd.Flood(t.Context(), request, 100, http.StatusTooManyRequests))
	require.EqualValues(t, 100, count.Load())
	require.ErrorContains(t, crowd.Flood(t.Context(), request, 100, http.StatusOK), "status 429, want 200")
}

func TestBadResponses(t *testing.T) {
	t.Parallel()
	for response, want := range map[string]string{
		"":                        "EOF",
		"HTTP/2 200 OK\r\n\r\n":   "no status line",
		"HTTP/1.1 abc OK\r\n\r\n": "no status line",
		"HTTP/1.1 200 OK\r\n\r\n": "no Content-Length",
		"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n":    "no length",
		"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc": "ended early",
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		done := make(chan error, 1)
		go func() {
			conn, err := l.Accept()
			if err == nil {
				_, err = conn.Read(make([]byte, 1024))
				_, _ = conn.Write([]byte(response)) // a close would follow anyway
				_ = conn.Close()
			}
			done <- err
		}()
		conn, err := Dial(l.Addr().String())
		require.NoError(t, err)
		_, err = conn.Do(Request("/", "203.0.113.7"))
		require.ErrorContains(t, err, want, response)
		conn.Close()
		require.NoError(t, <-done)
		require.NoError(t, l.Close())
	}
}
