package gateway

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/pkg/clientip"
	"github.com/ccnq/ccnq/services/edge/internal/admission"
	"github.com/ccnq/ccnq/services/edge/internal/proxy"
)

// bundle is a gateway without a queue in front of an origin that answers with
// a field of the edge's name.
type bundle struct {
	gateway *Gateway
	log     *bytes.Buffer
	metrics *prometheus.Registry
	origin  *httptest.Server
}

func setup(t testing.TB, change func(*Options)) *bundle {
	t.Helper()
	b := &bundle{log: new(bytes.Buffer), metrics: prometheus.NewRegistry()}
	b.origin = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Cache", "HIT from the origin")
		_, _ = io.WriteString(w, r.URL.Path)
	}))
	t.Cleanup(b.origin.Close)
	upstream, err := url.Parse(b.origin.URL)
	require.NoError(t, err)
	forward, err := proxy.New(proxy.Options{Upstream: upstream})
	require.NoError(t, err)
	t.Cleanup(forward.Close)
	allowlist, err := clientip.ParseSet("198.51.100.0/24")
	require.NoError(t, err)
	opts := Options{
		Clients:    clientip.NewResolver(clientip.Options{}),
		Groups:     clientip.Grouper{V4: 24, V6: 64},
		Allowlist:  allowlist,
		Proxy:      forward,
		Registerer: b.metrics,
		Logger:     slog.New(slog.NewJSONHandler(b.log, nil)),
	}
	if change != nil {
		change(&opts)
	}
	b.gateway = New(opts)
	return b
}

func (b *bundle) get(target, peer string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, target, nil)
	r.RemoteAddr = peer
	w := httptest.NewRecorder()
	b.gateway.ServeHTTP(w, r)
	return w
}

func (b *bundle) line(t *testing.T) map[string]any {
	t.Helper()
	var line map[string]any
	require.NoError(t, json.Unmarshal(b.log.Bytes(), &line), b.log.String())
	return line
}

func TestPipelineOrder(t *testing.T) {
	t.Parallel()
	var names []string
	for _, s := range setup(t, nil).gateway.stages {
		names = append(names, s.name)
	}
	require.Equal(t, []string{"identity", "denylist", "qos", "cache", "queue", "proxy"}, names)
}

func TestPassThrough(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	w := b.get("/a", "203.0.113.7:1234")
	require.Equal(t, http.StatusOK, w.Code)
	require.Equal(t, "/a", w.Body.String())
	require.Equal(t, []string{"BYPASS"}, w.Header()["X-Cache"], "the origin's field is overwritten")
	require.Equal(t, []string{"ccnq; fwd=bypass"}, w.Header()["Cache-Status"])
	require.InDelta(t, 1, testutil.ToFloat64(b.gateway.metrics.requests[Proxied][2]), 0)

	require.Equal(t, http.StatusOK, b.get("/b", "198.51.100.7:1").Code)
	require.InDelta(t, 1, testutil.ToFloat64(b.gateway.metrics.requests[Allowlisted][2]), 0)
	require.InDelta(t, 0, testutil.ToFloat64(b.gateway.metrics.inFlight), 0)
}

func TestOriginIsDown(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.origin.Close()
	w := b.get("/a", "203.0.113.7:1234")
	require.Equal(t, http.StatusBadGateway, w.Code)
	require.InDelta(t, 1, testutil.ToFloat64(b.gateway.metrics.requests[Proxied][5]), 0)
	require.InDelta(t, 1, testutil.ToFloat64(b.gateway.metrics.origin[proxy.Unreachable]), 0)
}

func TestConnectIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	r := httptest.NewRequest(http.MethodConnect, "http://evil.example:443", nil)
	w := httptest.NewRecorder()
	b.gateway.ServeHTTP(w, r)
	require.Equal(t, http.StatusBadRequest, w.Code)
	require.InDelta(t, 1, testutil.ToFloat64(b.gateway.metrics.requests[BadRequest][4]), 0)
}

func TestRefusal(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.gateway.stages = []stage{{"refuse", func(x *exchange) Verdict {
		x.client = netip.MustParseAddr("203.0.113.7")
		return refuse(Reason(admission.QueueFull), http.StatusTooManyRequests, 1200*time.Millisecond)
	}}}
	w := b.get("/x?secret=1", "203.0.113.7:1")
	require.Equal(t, http.StatusTooManyRequests, w.Code)
	require.Equal(t, "2", w.Header().Get("Retry-After"))
	require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
	require.Equal(t, "BYPASS", w.Header().Get("X-Cache"))
	require.Contains(t, w.Body.String(), "try again in 2 s")
	reference := w.Header().Get("Ccnq-Reference")
	require.Len(t, reference, 16)
	require.Contains(t, w.Body.String(), reference)

	line := b.line(t)
	require.Equal(t, reference, line["reference"])
	require.Equal(t, "queue-full", line["verdict"])
	require.Equal(t, "203.0.113.7", line["client"])
	require.NotContains(t, b.log.String(), "secret")
}

func TestRefusalAsJSON(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.gateway.stages = []stage{{"refuse", func(*exchange) Verdict {
		return refuse(Reason(admission.QueueTimeout), http.StatusTooManyRequests, 5*time.Second)
	}}}
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("Accept", "application/json")
	w := httptest.NewRecorder()
	b.gateway.ServeHTTP(w, r)
	var body struct {
		Status     int    `json:"status"`
		Error      string `json:"error"`
		RetryAfter int    `json:"retry_after"`
		Reference  string `json:"reference"`
	}
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &body), w.Body.String())
	require.Equal(t, 429, body.Status)
	require.Equal(t, "queue-timeout", body.Error)
	require.Equal(t, 5, body.RetryAfter)
	require.Equal(t, w.Header().Get("Ccnq-Reference"), body.Reference)
}

func TestRefusalOfHEADHasNoBody(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.gateway.stages = []stage{{"refuse", func(*exchange) Verdict {
		return refuse(BadRequest, http.StatusBadRequest, 0)
	}}}
	w := httptest.NewRecorder()
	b.gateway.ServeHTTP(w, httptest.NewRequest(http.MethodHead, "/", nil))
	require.Empty(t, w.Body.String())
	require.Empty(t, w.Header().Get("Retry-After"))
	require.NotEqual(t, "0", w.Header().Get("Content-Length"))
}

func TestRefusalsAreNotAllLogged(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log := newRefusalLog(slog.New(slog.NewJSONHandler(&out, nil)))
	at := time.Unix(1000, 0)
	request := func() *exchange {
		return &exchange{r: httptest.NewRequest(http.MethodGet, "/", nil), arrived: at, reference: "x"}
	}
	for range 10 * maxRefusalLines {
		log.log(request())
	}
	require.Equal(t, maxRefusalLines, strings.Count(out.String(), "\n"))
	at = at.Add(time.Second)
	log.log(request())
	require.Contains(t, out.String(), `"left_out":900`)
}

func TestRetrySeconds(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]int64{
		time.Nanosecond: 1, time.Second: 1, time.Second + 1: 2, 400 * time.Millisecond: 1, 30 * 24 * time.Hour: 2_592_000,
	} {
		require.Equal(t, want, retrySeconds(d), d)
	}
}

func TestWantsJSON(t *testing.T) {
	t.Parallel()
	for accept, want := range map[string]bool{
		"":                               false,
		"*/*":                            false,
		"text/html,application/json":     false,
		"application/json":               true,
		"application/ld+json, */*;q=0.1": true,
	} {
		require.Equal(t, want, wantsJSON(http.Header{"Accept": {accept}}), accept)
	}
}

func TestSpread(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	registry := prometheus.NewRegistry()
	s := newSpread(slog.New(slog.NewJSONHandler(&out, nil)), registry)
	window := func(share int, one, other string) {
		for i := range spreadWindow {
			if i%100 < share {
				s.sample(netip.MustParseAddr(one))
			} else {
				s.sample(netip.MustParseAddr(other))
			}
		}
	}
	window(100, "203.0.113.7", "203.0.113.8")
	require.Empty(t, out.String(), "a public address is a client")
	window(90, "10.0.0.1", "203.0.113.8")
	require.Contains(t, out.String(), "CCNQ_TRUSTED_PROXIES")
	require.InDelta(t, 1, testutil.ToFloat64(s.gauge), 0)
	window(90, "10.0.0.1", "203.0.113.8")
	require.Equal(t, 1, strings.Count(out.String(), "\n"), "one warning")
	window(30, "10.0.0.1", "203.0.113.8")
	require.InDelta(t, 0, testutil.ToFloat64(s.gauge), 0)
}
