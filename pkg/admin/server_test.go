package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/ccnq/ccnq/pkg/config"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T, options Options) string {
	t.Helper()
	options.Addr = "127.0.0.1:0"
	options.Log = slog.New(slog.DiscardHandler)
	if options.Registry == nil {
		options.Registry = NewRegistry()
	}
	s := New(options)
	require.NoError(t, s.Start(t.Context()))
	t.Cleanup(func() {
		require.NoError(t, s.Stop(context.Background()))
		require.NoError(t, s.Stop(context.Background()), "twice is fine")
	})
	return "http://" + s.Addr().String()
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	resp, err := client.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(body)
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	registry := NewRegistry()
	counter := prometheus.NewCounter(prometheus.CounterOpts{Name: "ccnq_sample_total", Help: "A sample."})
	registry.MustRegister(counter)
	counter.Inc()
	code, body := get(t, start(t, Options{Registry: registry})+"/metrics")
	require.Equal(t, http.StatusOK, code)
	for _, want := range []string{"\nccnq_sample_total 1\n", "\ngo_goroutines ", "\nprocess_open_fds ", "\ngo_build_info{"} {
		require.Contains(t, body, want)
	}
}

func TestHealthz(t *testing.T) {
	t.Parallel()
	code, body := get(t, start(t, Options{Checks: Checks{"a": func() Status { return NotReady("x") }}})+"/healthz")
	require.Equal(t, http.StatusOK, code, "a service that is not ready is alive")
	require.Equal(t, "ok\n", body)
}

func TestReadyz(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		status Status
		code   int
		body   string
	}{
		{"OK", OK, 200, `{"ready":true,"parts":{"nats":"ok","queue":"ok"}}`},
		{"Degraded", Degraded(`Postgres "gone"`), 200, `{"ready":true,"parts":{"nats":"ok","queue":"degraded: Postgres \"gone\""}}`},
		{"NotReady", NotReady("draining"), 503, `{"ready":false,"parts":{"nats":"ok","queue":"not ready: draining"}}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			base := start(t, Options{Checks: Checks{
				"nats":  func() Status { return OK },
				"queue": func() Status { return test.status },
			}})
			code, body := get(t, base+"/readyz")
			require.Equal(t, test.code, code)
			require.Equal(t, test.body+"\n", body)
		})
	}
}

func TestReadyzWithoutParts(t *testing.T) {
	t.Parallel()
	code, body := get(t, start(t, Options{})+"/readyz")
	require.Equal(t, http.StatusOK, code)
	require.Equal(t, `{"ready":true,"parts":{}}`+"\n", body)
}

func TestPprofIsAnOption(t *testing.T) {
	t.Parallel()
	code, _ := get(t, start(t, Options{})+"/debug/pprof/")
	require.Equal(t, http.StatusNotFound, code)
	base := start(t, Options{Pprof: true})
	code, body := get(t, base+"/debug/pprof/")
	require.Equal(t, http.StatusOK, code)
	require.Contains(t, body, "goroutine")
	code, _ = get(t, base+"/debug/pprof/goroutine?debug=1")
	require.Equal(t, http.StatusOK, code)
}

func TestOnlyGet(t *testing.T) {
	t.Parallel()
	base := start(t, Options{})
	for _, path := range []string{"/metrics", "/healthz", "/readyz"} {
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, base+path, nil)
		require.NoError(t, err)
		resp, err := client.Do(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, http.StatusMethodNotAllowed, resp.StatusCode)
	}
}

func TestStartSaysWhyItCannotListen(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	s := New(Options{Addr: config.Addr(taken.Addr().String()), Log: slog.New(slog.DiscardHandler), Registry: NewRegistry()})
	require.ErrorContains(t, s.Start(t.Context()), "address already in use")
	require.Nil(t, s.Addr())
	require.NoError(t, s.Stop(t.Context()))
}

func TestOff(t *testing.T) {
	t.Parallel()
	s := New(Options{Addr: "off", Log: slog.New(slog.DiscardHandler), Registry: NewRegistry()})
	require.NoError(t, s.Start(t.Context()))
	require.Nil(t, s.Addr())
	require.NoError(t, s.Stop(t.Context()))
}

func TestFailIsToldWhenTheListenerBreaks(t *testing.T) {
	t.Parallel()
	failed := make(chan error, 1)
	s := New(Options{
		Addr: "127.0.0.1:0", Log: slog.New(slog.DiscardHandler), Registry: NewRegistry(),
		Fail: func(err error) { failed <- err },
	})
	require.NoError(t, s.Start(t.Context()))
	require.NoError(t, s.listener.Close())
	require.ErrorContains(t, <-failed, "admin listener: ")
	require.NoError(t, s.Stop(t.Context()))
}

func TestLoggerNamesAllLevels(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log := NewLogger(&out, config.LevelTrace)
	names := []string{"trace", "debug", "info", "warn", "error", "fatal"}
	for _, name := range names {
		var level config.Level
		require.NoError(t, level.UnmarshalText([]byte(name)))
		log.Log(t.Context(), level.Level(), "message", "part", name)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Len(t, lines, len(names))
	for i, line := range lines {
		var entry map[string]string
		require.NoError(t, json.Unmarshal([]byte(line), &entry))
		require.Equal(t, strings.ToUpper(names[i]), entry["level"])
		require.Equal(t, names[i], entry["part"])
		require.Equal(t, "message", entry["msg"])
		require.NotEmpty(t, entry["time"])
	}
}

func TestLoggerKeepsToItsLevel(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log := NewLogger(&out, config.LevelFatal)
	log.Error("not shown")
	require.Zero(t, out.Len())
	log.Log(t.Context(), config.LevelFatal.Level(), "shown", "level", "an attribute of that name")
	require.Contains(t, out.String(), `"level":"FATAL"`)
}

func BenchmarkLogger(b *testing.B) {
	log := NewLogger(io.Discard, slog.LevelInfo)
	b.ReportAllocs()
	for b.Loop() {
		log.LogAttrs(b.Context(), slog.LevelInfo, "request",
			slog.String("method", "GET"), slog.String("path", "/index.html"),
			slog.Int("status", 200), slog.Int64("bytes", 1024))
	}
}

func TestDispensable(t *testing.T) {
	t.Parallel()
	checks := Checks{
		"a": func() Status { return NotReady("starting") },
		"b": func() Status { return Degraded("slow") },
		"c": func() Status { return OK },
	}.Dispensable()
	require.Equal(t, Degraded("starting"), checks["a"]())
	require.Equal(t, Degraded("slow"), checks["b"]())
	require.Equal(t, OK, checks["c"]())
}

func TestRoutes(t *testing.T) {
	t.Parallel()
	s := New(Options{
		Addr: "127.0.0.1:0", Registry: NewRegistry(), Log: slog.New(slog.DiscardHandler),
		Routes: map[string]http.Handler{"POST /thing": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusAccepted)
		})},
	})
	for method, want := range map[string]int{http.MethodPost: http.StatusAccepted, http.MethodGet: http.StatusMethodNotAllowed} {
		w := httptest.NewRecorder()
		s.http.Handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, "/thing", nil))
		require.Equal(t, want, w.Code)
	}
}
