package qos

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// once lets one request of each host through, and no more.
func once(o Options) Options {
	o.MinHostRate, o.MaxHostRate, o.MaxAge = new(0.0001), new(0.0001), new(time.Hour)
	return o
}

var hello = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hello")) })

// get asks a server for a page, and says whether the connection had been used.
func get(t *testing.T, client *http.Client, url string) (response *http.Response, reused bool) {
	t.Helper()
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) { reused = info.Reused },
	})
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	require.NoError(t, err)
	response, err = client.Do(r)
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, response.Body) // else the connection is not used again
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	return response, reused
}

func TestRefusalClosesConnection(t *testing.T) {
	t.Parallel()
	for _, proto := range []int{1, 2} {
		for _, destroy := range []bool{true, false} {
			l, _ := newLimiter(t, once(Options{DestroySocket: &destroy, ErrorStatusCode: new(http.StatusTooManyRequests)}))
			server := httptest.NewUnstartedServer(l.Middleware(hello))
			server.EnableHTTP2 = proto == 2
			server.StartTLS()
			t.Cleanup(server.Close)

			response, _ := get(t, server.Client(), server.URL)
			require.Equal(t, http.StatusOK, response.StatusCode)
			require.Equal(t, proto, response.ProtoMajor)

			response, reused := get(t, server.Client(), server.URL)
			require.True(t, reused)
			require.Equal(t, http.StatusTooManyRequests, response.StatusCode)
			require.Zero(t, response.ContentLength)
			if proto == 1 {
				require.Equal(t, destroy, response.Close)
			}
			if !destroy {
				_, reused = get(t, server.Client(), server.URL)
				require.True(t, reused, "HTTP/%d", proto)
			}
		}
	}
}

// TestRefusalEndsHTTP2Connection waits until the server has closed it.
func TestRefusalEndsHTTP2Connection(t *testing.T) {
	t.Parallel()
	l, _ := newLimiter(t, once(Options{}))
	closed := make(chan struct{})
	server := httptest.NewUnstartedServer(l.Middleware(hello))
	server.EnableHTTP2 = true
	var closeOnce sync.Once
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			closeOnce.Do(func() { close(closed) })
		}
	}
	server.StartTLS()
	t.Cleanup(server.Close)
	for range 2 {
		_, _ = get(t, server.Client(), server.URL)
	}
	select {
	case <-closed:
	case <-t.Context().Done():
		require.Fail(t, "the connection stays open")
	}
}

func TestDelay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLimiter(t, once(Options{ErrorResponseDelay: 3 * time.Second}))
		handler := l.Middleware(hello)
		serve := func(ctx context.Context) (code int, took time.Duration) {
			begin := time.Now()
			rec := httptest.NewRecorder()
			handler.ServeHTTP(rec, request{Host: "a"}.http().WithContext(ctx))
			return rec.Code, time.Since(begin)
		}
		code, took := serve(t.Context())
		require.Equal(t, http.StatusOK, code)
		require.Zero(t, took)

		code, took = serve(t.Context())
		require.Equal(t, http.StatusServiceUnavailable, code)
		require.Equal(t, 3*time.Second, took)

		gone, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		code, took = serve(gone)
		require.Equal(t, http.StatusServiceUnavailable, code)
		require.Equal(t, time.Second, took, "the client is gone")
	})
}

func TestDelayIsCapped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLimiter(t, once(Options{ErrorResponseDelay: time.Hour}))
		handler := l.Middleware(hello)
		serve := func() int {
			rec := httptest.NewRecorder()
			handler.ServeHTTP(rec, request{Host: "a"}.http())
			return rec.Code
		}
		require.Equal(t, http.StatusOK, serve())
		var wg sync.WaitGroup
		for range MaxDelayedResponses {
			wg.Go(func() { serve() })
		}
		synctest.Wait()
		require.EqualValues(t, MaxDelayedResponses, l.delayed.Load())
		begin := time.Now()
		require.Equal(t, http.StatusServiceUnavailable, serve())
		require.Zero(t, time.Since(begin), "one too many is answered at once")

		require.NoError(t, l.Close())
		wg.Wait()
		require.Zero(t, time.Since(begin), "Close answers those that wait")
		require.Zero(t, l.delayed.Load())
	})
}

func TestStatusThatCannotBeSent(t *testing.T) {
	t.Parallel()
	for _, status := range []int{-1, 0, 99, 101, 1000} {
		l, _ := newLimiter(t, once(Options{ErrorStatusCode: &status, Compat: true}))
		handler := l.Middleware(hello)
		for _, want := range []int{http.StatusOK, http.StatusServiceUnavailable} {
			rec := httptest.NewRecorder()
			handler.ServeHTTP(rec, request{Host: "a"}.http())
			require.Equal(t, want, rec.Code)
		}
	}
}
