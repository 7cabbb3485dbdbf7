package gateway

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/pkg/rules"
	"github.com/ccnq/ccnq/services/edge/internal/cache"
)

// newCache opens a cache with everything in its scope.
func newCache(t testing.TB, change func(*cache.Options)) *cache.Cache {
	t.Helper()
	file := filepath.Join(t.TempDir(), "rules.json")
	require.NoError(t, os.WriteFile(file, []byte(`[[{"target":"path","matchType":"startsWith","value":"/"}]]`), 0o600))
	set, err := rules.OpenFile(file, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	t.Cleanup(func() { _ = set.Close() })
	opts := cache.Options{
		Methods: []string{http.MethodGet, http.MethodHead}, Rules: set,
		Dir: t.TempDir(), MaxBytes: 64 << 20, MaxItemBytes: 1 << 20, MemoryBytes: 16 << 20,
		SweepInterval: time.Minute,
		Registerer:    prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(&opts)
	}
	c, err := cache.New(opts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Stop(context.Background())) })
	return c
}

// cached is a bundle with a cache in front of an origin whose pages may be stored.
func cached(t testing.TB, size int) *bundle {
	t.Helper()
	b := setup(t, func(o *Options) { o.Cache = newCache(t, nil) })
	body := make([]byte, size)
	b.origin.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h.Set("Cache-Control", "max-age=600")
		h.Set("Content-Type", "text/html; charset=utf-8")
		h.Set("Etag", `"3f80f-1b6-3e1cb03b"`)
		h.Set("Last-Modified", "Mon, 02 Nov 2026 10:00:00 GMT")
		h.Set("Content-Length", strconv.Itoa(size))
		_, _ = w.Write(body)
	})
	return b
}

// BenchmarkHit is what the gateway costs for a hit, without the server.
func BenchmarkHit(b *testing.B) {
	bundle := cached(b, 1024)
	r := httptest.NewRequest(http.MethodGet, "http://site.example/page", nil)
	w := &discard{header: http.Header{}}
	bundle.gateway.ServeHTTP(w, r)
	b.ReportAllocs()
	for b.Loop() {
		clear(w.header)
		bundle.gateway.ServeHTTP(w, r)
	}
	require.Equal(b, []string{"HIT"}, w.header["X-Cache"])
}

// BenchmarkServe is a request of 1 KiB over loopback, 64 connections at once: a
// hit, a miss that is stored, the same without the cache, and a handler that writes
// the same bytes as the hit.
func BenchmarkServe(b *testing.B) {
	bundle := cached(b, 1024)
	without := setup(b, nil)
	without.origin.Config.Handler = bundle.origin.Config.Handler
	body := make([]byte, 1024)
	var warm *httptest.ResponseRecorder
	for range 2 {
		warm = httptest.NewRecorder()
		bundle.gateway.ServeHTTP(warm, httptest.NewRequest(http.MethodGet, "http://site.example/page", nil))
	}
	fields := warm.Header()
	require.Equal(b, "HIT", fields.Get("X-Cache"))
	for name, handler := range map[string]http.Handler{
		"hit": bundle.gateway, "miss": bundle.gateway, "proxy": without.gateway,
		"handler": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			h := w.Header()
			for name, values := range fields {
				h[name] = values
			}
			_, _ = w.Write(body)
		}),
	} {
		server := httptest.NewServer(handler)
		b.Cleanup(server.Close)
		client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
		b.Cleanup(client.CloseIdleConnections)
		get := func(path string) {
			resp, err := client.Get(server.URL + path)
			require.NoError(b, err)
			defer resp.Body.Close()
			_, err = io.Copy(io.Discard, resp.Body)
			require.NoError(b, err)
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetParallelism(32)
			n := make(chan int, 1)
			n <- 0
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					path := "/page"
					if name == "miss" {
						i := <-n
						n <- i + 1
						path = "/page?" + strconv.Itoa(i)
					}
					get(path)
				}
			})
		})
	}
}
