package qos

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

type goldenMiddleware struct {
	Name       string
	Options    goldenOptions
	Middleware map[string]any // destroy_socket, veto
	Steps      []struct {
		request
		At     int64   `json:"at_ms"`
		N      *int    // repetitions, each of which gives the same
		Every  int64   `json:"every_ms"`
		Lag    float64 `json:"lag_ms"`
		Proto  string
		Socket string
		Expect struct {
			Next           bool
			Status         int
			BeforeThrottle string   `json:"before_throttle"`
			SessionClosed  bool     `json:"session_closed"`
			SocketClosed   bool     `json:"socket_closed"`
			DelayedMS      *float64 `json:"delayed_ms"`
			AfterDelay     *struct {
				Status        int
				Ended         bool
				SessionClosed bool `json:"session_closed"`
				SocketClosed  bool `json:"socket_closed"`
			} `json:"after_delay"`
		}
	}
	Tracked int `json:"tracked_requests_of_host_a"`
}

func TestGoldenMiddleware(t *testing.T) {
	t.Parallel()
	eachGolden(t, middlewareFiles, func(t *testing.T, v goldenMiddleware) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) { runGoldenMiddleware(t, v) })
	})
}

func runGoldenMiddleware(t *testing.T, v goldenMiddleware) {
	t.Helper()
	options := v.Options.options()
	if destroy, ok := v.Middleware["destroy_socket"].(bool); ok {
		options.DestroySocket = &destroy
	}
	var asked Reason
	if veto, hook := v.Middleware["veto"]; hook {
		options.BeforeThrottle = func(_ *Limiter, _ *http.Request, reason Reason) bool {
			asked = reason
			return veto != false // only the boolean false lets a request through
		}
	}
	l, w := newLimiter(t, options)
	passed := false
	handler := l.Middleware(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { passed = true }))

	for i, step := range v.Steps {
		for n := range or(step.N, 1) {
			w.ms.Store(step.At + int64(n)*step.Every)
			w.setLagMillis(step.Lag)
			step.HTTP2 = step.HTTP2 || step.Proto == "h2"
			asked, passed = "", false
			rec := httptest.NewRecorder()
			begin := time.Now()
			handler.ServeHTTP(rec, step.http())

			expect := step.Expect
			status, closes := expect.Status, expect.SessionClosed || expect.SocketClosed
			var delay time.Duration
			if expect.AfterDelay != nil {
				require.True(t, expect.AfterDelay.Ended)
				delay = max(0, duration(*expect.DelayedMS))
				status = expect.AfterDelay.Status
				closes = expect.AfterDelay.SessionClosed || expect.AfterDelay.SocketClosed
			}
			require.Equal(t, expect.Next, passed, "%s: step %d", v.Name, i)
			require.Equal(t, expect.BeforeThrottle, string(asked), "%s: step %d", v.Name, i)
			require.Equal(t, delay, time.Since(begin), "%s: step %d: delay", v.Name, i)
			if passed {
				continue
			}
			require.Equal(t, status, rec.Code, "%s: step %d", v.Name, i)
			require.Empty(t, rec.Body.Bytes())
			if step.Socket == "" { // else there is no connection that could be closed
				require.Equal(t, closes, rec.Header().Get("Connection") == "close", "%s: step %d", v.Name, i)
			}
		}
	}

	require.EqualValues(t, v.Tracked, l.hosts.historyOf(textKey("a"), l.moment().now).count, v.Name)
}
