//go:build unix

package proxy_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/services/edge/internal/listen"
	"github.com/ccnq/ccnq/services/edge/internal/proxy"
)

// BenchmarkPassThrough compares the proxy with a bare ReverseProxy over an equal transport, each with the in-process
// client and origin that both need: the difference of two lines is the proxy's own. "cpu-ns/op" is user and system
// time of the process for each request.
func BenchmarkPassThrough(b *testing.B) {
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		_, _ = w.Write(page)
	}))
	defer origin.Close()
	upstream, err := url.Parse(origin.URL)
	require.NoError(b, err)

	b.Run("Bare", func(b *testing.B) { benchmarkHandler(b, bare(b, upstream), false) })
	b.Run("Proxy", func(b *testing.B) { benchmarkHandler(b, own(b, upstream), false) })
	b.Run("ProxyAndListener", func(b *testing.B) { benchmarkHandler(b, own(b, upstream), true) })
}

// BenchmarkServe leaves out client and server: what is left is the proxy's own work and the round trip to the origin.
func BenchmarkServe(b *testing.B) {
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(page) }))
	defer origin.Close()
	upstream, err := url.Parse(origin.URL)
	require.NoError(b, err)
	for name, handler := range map[string]http.Handler{"Bare": bare(b, upstream), "Proxy": own(b, upstream)} {
		b.Run(name, func(b *testing.B) {
			r := httptest.NewRequest(http.MethodGet, "/a/path?q=1", nil)
			r.Header.Set("User-Agent", "Mozilla/5.0")
			r.Header.Set("Accept", "text/html")
			b.ReportAllocs()
			for b.Loop() {
				handler.ServeHTTP(&discard{header: http.Header{}}, r)
			}
		})
	}
}

var page = []byte(strings.Repeat("x", 1024))

type discard struct{ header http.Header }

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(p []byte) (int, error) { return len(p), nil }
func (d *discard) WriteHeader(int)             {}

func own(b *testing.B, upstream *url.URL) http.Handler {
	b.Helper()
	p, err := proxy.New(proxy.Options{Upstream: upstream, Trusted: func(*http.Request) bool { return false }, OnEventStream: listen.EventStream})
	require.NoError(b, err)
	b.Cleanup(p.Close)
	return p
}

type buffers struct{ pool sync.Pool }

func (b *buffers) Get() []byte {
	if buf, ok := b.pool.Get().(*[32 << 10]byte); ok {
		return buf[:]
	}
	return new([32 << 10]byte)[:]
}

func (b *buffers) Put(buf []byte) { b.pool.Put((*[32 << 10]byte)(buf)) }

func bare(b *testing.B, upstream *url.URL) http.Handler {
	b.Helper()
	tr := &http.Transport{
		DialContext:         (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		DisableCompression:  true,
		IdleConnTimeout:     90 * time.Second,
		MaxIdleConnsPerHost: 256,
	}
	b.Cleanup(tr.CloseIdleConnections)
	return &httputil.ReverseProxy{
		BufferPool: &buffers{},
		Rewrite: func(pr *httputil.ProxyRequest) {
			pr.SetURL(upstream)
			pr.Out.Host = pr.In.Host
			pr.SetXForwarded()
		},
		Transport: tr,
	}
}

// benchmarkHandler serves the handler on a socket to 64 connections, through the edge's listener or a plain
// http.Server.
func benchmarkHandler(b *testing.B, handler http.Handler, edgeListener bool) {
	b.Helper()
	var addr string
	if edgeListener {
		s, err := listen.New(listen.Options{Addr: "127.0.0.1:0", Handler: handler, Logger: slog.New(slog.DiscardHandler)})
		require.NoError(b, err)
		a, err := s.Start()
		require.NoError(b, err)
		addr = "http://" + a.String()
		defer func() { _, _ = s.Cut(context.Background()) }()
	} else {
		s := httptest.NewServer(handler)
		addr = s.URL
		defer s.Close()
	}
	tr := &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true}
	defer tr.CloseIdleConnections()
	client := &http.Client{Transport: tr}
	b.ReportAllocs()
	b.SetParallelism(32)
	before := cpuTime()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			res, err := client.Get(addr + "/a/path?q=1")
			if err != nil {
				b.Error(err)
				return
			}
			_, _ = io.Copy(io.Discard, res.Body)
			_ = res.Body.Close()
		}
	})
	b.StopTimer()
	b.ReportMetric(float64(cpuTime()-before)/float64(b.N), "cpu-ns/op")
}

// cpuTime is the user and system time that this process has used.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
