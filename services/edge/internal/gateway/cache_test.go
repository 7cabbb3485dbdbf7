package gateway

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/services/edge/internal/proxy"
)

func TestHit(t *testing.T) {
	t.Parallel()
	b := cached(t, 1000)
	first := b.get("/a", "203.0.113.7:1")
	require.Equal(t, []string{"MISS"}, first.Header()["X-Cache"])
	second := b.get("/a", "203.0.113.7:1")
	require.Equal(t, http.StatusOK, second.Code)
	require.Equal(t, []string{"HIT"}, second.Header()["X-Cache"])
	require.Equal(t, first.Body.Bytes(), second.Body.Bytes())
	m := b.gateway.metrics
	require.InDelta(t, 1, testutil.ToFloat64(m.requests[Proxied][2]), 0)
	require.InDelta(t, 1, testutil.ToFloat64(m.requests[Hit][2]), 0)
	require.InDelta(t, 1, testutil.ToFloat64(m.origin[proxy.OK]), 0, "the origin was asked once")
}

func TestAHitMakesFewAllocations(t *testing.T) {
	b := cached(t, 1000)
	r := httptest.NewRequest(http.MethodGet, "/a", nil)
	w := &discard{header: http.Header{}}
	b.gateway.ServeHTTP(w, r)
	allocations := testing.AllocsPerRun(100, func() {
		clear(w.header)
		b.gateway.ServeHTTP(w, r)
	})
	require.Equal(t, []string{"HIT"}, w.header["X-Cache"])
	require.Less(t, allocations, 1.0, "but for those of a new second")
}

func TestFailuresOfSharedFetches(t *testing.T) {
	t.Parallel()
	b := cached(t, 1000)
	b.origin.Close()
	w := b.get("/a", "203.0.113.7:1")
	require.Equal(t, http.StatusBadGateway, w.Code)
	require.Equal(t, []string{"MISS"}, w.Header()["X-Cache"])
	require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
	require.InDelta(t, 1, testutil.ToFloat64(b.gateway.metrics.requests[OriginUnreachable][5]), 0)
	require.InDelta(t, 1, testutil.ToFloat64(b.gateway.metrics.origin[proxy.Unreachable]), 0)

	r := httptest.NewRequest(http.MethodGet, "/a", nil)
	r.Header.Set("Cache-Control", "only-if-cached")
	recorder := httptest.NewRecorder()
	b.gateway.ServeHTTP(recorder, r)
	require.Equal(t, http.StatusGatewayTimeout, recorder.Code)
	require.Contains(t, recorder.Body.String(), "nothing is")
	require.InDelta(t, 1, testutil.ToFloat64(b.gateway.metrics.requests[NotCached][5]), 0)
}

// TestAPanicInAFetch cuts the clients' connections and not the process.
func TestAPanicInAFetch(t *testing.T) {
	t.Parallel()
	b := cached(t, 1000)
	last := len(b.gateway.stages) - 1
	require.Equal(t, "proxy", b.gateway.stages[last].name)
	b.gateway.opts.Proxy = nil // whoever uses it panics
	require.PanicsWithValue(t, http.ErrAbortHandler, func() { b.get("/a", "203.0.113.7:1") })
	require.Contains(t, b.log.String(), "panic in a fetch")
}

// TestABrokenSharedResponseIsCountedByItsStatus, which is what the client was sent.
func TestABrokenSharedResponseIsCountedByItsStatus(t *testing.T) {
	t.Parallel()
	b := cached(t, 1000)
	b.origin.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Cache-Control", "max-age=600")
		w.Header().Set("Content-Length", "10")
		_, _ = w.Write([]byte("half"))
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	require.PanicsWithValue(t, http.ErrAbortHandler, func() { b.get("/a", "203.0.113.7:1") })
	require.InDelta(t, 1, testutil.ToFloat64(b.gateway.metrics.requests[Proxied][2]), 0)
	require.InDelta(t, 1, testutil.ToFloat64(b.gateway.metrics.origin[proxy.Reset]), 0)
}
