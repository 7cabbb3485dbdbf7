package ccnq

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/pkg/config"
)

// settings for a program that takes free ports and queues PDF files.
func settings(t *testing.T, upstream string) map[string]string {
	t.Helper()
	rules := filepath.Join(t.TempDir(), "rules.json")
	require.NoError(t, os.WriteFile(rules, []byte(`[[{"target":"path","matchType":"endsWith","value":".pdf"}]]`), 0o600))
	return map[string]string{
		"CCNQ_UPSTREAM_URL":                upstream,
		"CCNQ_PORT":                        "0",
		"CCNQ_ADMIN_ADDR":                  "127.0.0.1:0",
		"CCNQ_NATS_LISTEN":                 "off",
		"CCNQ_DATA_DIR":                    t.TempDir(),
		"CCNQ_SHUTDOWN_DELAY_MS":           "0",
		"CCNQ_QUEUE_ENABLED":               "true",
		"CCNQ_QUEUE_RULES_FILE":            rules,
		"CCNQ_QUEUE_MAX_PENDING_PER_GROUP": "0",
	}
}

func load(t *testing.T, vars map[string]string) Config {
	t.Helper()
	var environ []string
	for name, value := range vars {
		environ = append(environ, name+"="+value)
	}
	var cfg Config
	require.NoError(t, cfg.Load(environ))
	return cfg
}

func start(t *testing.T, cfg Config) *Program {
	t.Helper()
	p, err := New(cfg, Deps{Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		require.NoError(t, p.Stop(ctx))
	})
	require.NoError(t, p.Start(t.Context()))
	return p
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(url)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(body)
}

// One place in the group and no line: while one report is being served the
// next is refused, other pages pass, and afterwards there is room again.
func TestTheGateWorksInOneProcess(t *testing.T) {
	t.Parallel()
	entered, finish := make(chan struct{}), make(chan struct{})
	origin := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow.pdf" {
			entered <- struct{}{}
			<-finish
		}
	}))
	defer origin.Close()
	p := start(t, load(t, settings(t, origin.URL)))
	base := "http://" + p.Addr().String()

	first := make(chan int)
	go func() {
		status := 0
		if resp, err := http.Get(base + "/slow.pdf"); err == nil {
			status = resp.StatusCode
			_ = resp.Body.Close()
		}
		first <- status
	}()
	<-entered
	status, body := get(t, base+"/other.pdf")
	require.Equal(t, http.StatusTooManyRequests, status, body)
	status, _ = get(t, base+"/page")
	require.Equal(t, http.StatusOK, status, "out of scope")
	close(finish)
	require.Equal(t, http.StatusOK, <-first)
	require.Eventually(t, func() bool {
		status, _ := get(t, base+"/other.pdf")
		return status == http.StatusOK
	}, 10*time.Second, 10*time.Millisecond)
	http.DefaultClient.CloseIdleConnections()

	require.Eventually(t, func() bool {
		status, _ := get(t, fmt.Sprintf("http://%s/readyz", p.AdminAddr()))
		return status == http.StatusOK
	}, 20*time.Second, 10*time.Millisecond)
	_, body = get(t, fmt.Sprintf("http://%s/metrics", p.AdminAddr()))
	require.Contains(t, body, `ccnq_requests_total{status="4xx",verdict="queue-full"}`)
	require.Contains(t, body, "ccnq_coordinator_requests_total")
}

// What is stored is served without a place in the queue; the first request for it
// takes one.
func TestTheCacheWorksInOneProcess(t *testing.T) {
	t.Parallel()
	asked := make(chan string, 10)
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.URL.Path
		w.Header().Set("Cache-Control", "max-age=60")
		_, _ = io.WriteString(w, "report")
	}))
	defer origin.Close()
	vars := settings(t, origin.URL)
	vars["CCNQ_CACHE_ENABLED"] = "true"
	vars["CCNQ_CACHE_RULES_FILE"] = vars["CCNQ_QUEUE_RULES_FILE"]
	vars["CCNQ_CACHE_DIR"] = t.TempDir()
	p := start(t, load(t, vars))
	for range 3 {
		status, body := get(t, "http://"+p.Addr().String()+"/a.pdf")
		require.Equal(t, http.StatusOK, status, body)
		require.Equal(t, "report", body)
	}
	require.Len(t, asked, 1)
	require.Eventually(t, func() bool {
		_, body := get(t, fmt.Sprintf("http://%s/metrics", p.AdminAddr()))
		return strings.Contains(body, `ccnq_cache_requests_total{result="hit"} 2`) &&
			strings.Contains(body, `ccnq_requests_total{status="2xx",verdict="admitted"} 1`)
	}, 20*time.Second, 10*time.Millisecond)
}

func TestTheTokenIsMadeOnceAndPrivate(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), tokenFile)
	token, err := ensureToken(file)
	require.NoError(t, err)
	require.Len(t, token, 32)
	info, err := os.Stat(file)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	again, err := ensureToken(file)
	require.NoError(t, err)
	require.Equal(t, token, again)

	require.NoError(t, os.WriteFile(file, []byte("short"), 0o600))
	_, err = ensureToken(file)
	require.ErrorContains(t, err, "holds no token")
}

func TestListenOn(t *testing.T) {
	t.Parallel()
	for addr, want := range map[config.Addr]int{"off": 0, "127.0.0.1:4222": 4222, "127.0.0.1:0": -1} {
		_, port, err := listenOn(addr)
		require.NoError(t, err)
		require.Equal(t, want, port, addr)
	}
}

func TestNothingIsLeftOfAProgramThatCannotStart(t *testing.T) {
	t.Parallel()
	vars := settings(t, "http://127.0.0.1:1")
	vars["CCNQ_QUEUE_RULES_FILE"] = filepath.Join(t.TempDir(), "missing.json")
	_, err := New(load(t, vars), Deps{Logger: slog.New(slog.DiscardHandler)})
	require.ErrorContains(t, err, "CCNQ_QUEUE_RULES_FILE")
}

func TestAllConfigsAreDocumented(t *testing.T) {
	t.Parallel()
	_, err := config.Fields(AllConfigs()...)
	require.NoError(t, err)
}

// TestEdgesCountTogether has the only edge meet itself by way of NATS, without a
// queue.
func TestEdgesCountTogether(t *testing.T) {
	t.Parallel()
	origin := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(origin.Close)
	vars := settings(t, origin.URL)
	vars["CCNQ_QUEUE_ENABLED"] = "false"
	vars["CCNQ_QOS_ENABLED"] = "true"
	vars["CCNQ_QOS_MIN_HOST_RATE"] = "0"
	vars["CCNQ_QOS_MAX_AGE_MS"] = "600000"
	vars["CCNQ_QOS_CLUSTER"] = "nats"
	vars["CCNQ_QOS_CLUSTER_MAX_IP_RATE"] = "0.01" // six requests in ten minutes
	vars["CCNQ_QOS_CLUSTER_SYNC_INTERVAL_MS"] = "100"
	p := start(t, load(t, vars))
	require.Eventually(t, func() bool {
		resp, err := http.Get("http://" + p.Addr().String() + "/page")
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		return resp.StatusCode == http.StatusServiceUnavailable
	}, 30*time.Second, 20*time.Millisecond)
}
