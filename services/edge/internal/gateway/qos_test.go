package gateway

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/pkg/clientip"
	"github.com/ccnq/ccnq/pkg/qos"
	"github.com/ccnq/ccnq/services/edge/internal/outbox"
	"github.com/ccnq/ccnq/services/edge/internal/proxy"
)

// idle is a lag of 0.
type idle struct{}

func (idle) Lag() time.Duration { return 0 }

// clock is a time that tests set.
type clock struct{ now atomic.Int64 }

func (c *clock) time() time.Time         { return time.Unix(0, c.now.Load()) }
func (c *clock) advance(d time.Duration) { c.now.Add(int64(d)) }

// withQoS makes a gateway with limits. Of what a limit is on, 5 requests always
// pass.
func withQoS(t *testing.T, limits qos.Options, change func(*Options)) (*bundle, *clock) {
	t.Helper()
	c := new(clock)
	limits.Lag, limits.Now = idle{}, c.time
	if limits.MinHostRate == nil {
		limits.MinHostRate = new(0.0)
	}
	limiter, err := qos.New(limits)
	require.NoError(t, err)
	t.Cleanup(func() { _ = limiter.Close() })
	return setup(t, func(o *Options) {
		o.QoS = &QoS{
			Limiter: limiter, Status: http.StatusServiceUnavailable, Close: true,
			RetryHost: 10 * time.Second, RetryClient: 10 * time.Second, RetryViolation: time.Minute,
		}
		if change != nil {
			change(o)
		}
	}), c
}

// exhaust asks until the client is refused, and returns the refusal.
func exhaust(t *testing.T, b *bundle, target, peer string) *httptest.ResponseRecorder {
	t.Helper()
	for range 10_000 {
		if w := b.get(target, peer); w.Code != http.StatusOK {
			return w
		}
	}
	require.FailNow(t, "never refused")
	return nil
}

// TestF14_RetryAfterOfLoadAwareLimits has a lone client obey each kind of refusal
// to the second.
func TestF14_RetryAfterOfLoadAwareLimits(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		limits  qos.Options
		reason  qos.Reason
		seconds int
	}{
		"host":   {qos.Options{MinHostRate: new(0.5), MaxHostRate: new(0.5)}, qos.BadHost, 10},
		"ip":     {qos.Options{MinIPRate: 0.5, MaxIPRate: 0.5}, qos.BadIP, 10},
		"subnet": {qos.Options{MinSubnetRate: 0.5, MaxSubnetRate: 0.5, MinSubnetUniqueIPs: new(1.0)}, qos.BadSubnet, 10},
		"share":  {qos.Options{MaxHostRatio: 0.1}, qos.HostViolation, 60},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, now := withQoS(t, test.limits, nil)
			w := exhaust(t, b, "http://site.example/x", "203.0.113.7:1234")
			require.Equal(t, http.StatusServiceUnavailable, w.Code)
			require.Equal(t, strconv.Itoa(test.seconds), w.Header().Get("Retry-After"))
			require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
			require.Equal(t, "BYPASS", w.Header().Get("X-Cache"))
			require.Equal(t, "close", w.Header().Get("Connection"))
			require.Contains(t, w.Body.String(), "busy")
			require.Equal(t, "qos", b.line(t)["verdict"])
			require.InDelta(t, 1, testutil.ToFloat64(b.gateway.limits.decisions[test.reason]), 0)
			require.InDelta(t, 1, testutil.ToFloat64(b.gateway.metrics.requests[Throttled][5]), 0)

			now.advance(time.Duration(test.seconds)*time.Second + time.Millisecond)
			require.Equal(t, http.StatusOK, b.get("http://site.example/x", "203.0.113.7:1234").Code)
		})
	}
}

func TestLimitsHaveExceptions(t *testing.T) {
	t.Parallel()
	trusted, err := clientip.ParseSet("192.0.2.0/24")
	require.NoError(t, err)
	b, _ := withQoS(t, qos.Options{MinIPRate: 0.5, MaxIPRate: 0.5}, func(o *Options) {
		o.Trusted = trusted
		o.Clients = clientip.NewResolver(clientip.Options{Header: "X-Forwarded-For", Trusted: trusted})
	})
	for range 20 {
		require.Equal(t, http.StatusOK, b.get("http://site.example/", "198.51.100.7:1").Code, "on the allowlist")
		require.Equal(t, http.StatusOK, b.get("http://site.example/", "192.0.2.1:1").Code, "a proxy's own request")
		require.Equal(t, http.StatusOK, b.get("http://site.example/", "@").Code, "no address")
		require.Equal(t, http.StatusOK, b.get("http://localhost/", "203.0.113.7:1").Code, "on the whitelist")
	}
	require.Zero(t, b.gateway.opts.QoS.Limiter.Tracked(qos.IP))
	require.InDelta(t, 20, testutil.ToFloat64(b.gateway.limits.decisions[qos.Pass]), 0)
}

// TestConnectionsOfOthersStayOpen: closing the connection of a proxy, trusted or
// not, would cut off its other clients.
func TestConnectionsOfOthersStayOpen(t *testing.T) {
	t.Parallel()
	trusted, err := clientip.ParseSet("192.0.2.0/24")
	require.NoError(t, err)
	for name, test := range map[string]struct {
		clients clientip.Options
		peer    string
		close   bool
	}{
		"client":                       {clientip.Options{}, "203.0.113.9:1", true},
		"trusted proxy":                {clientip.Options{Header: "X-Forwarded-For", Trusted: trusted}, "192.0.2.1:1", false},
		"trusted proxy without header": {clientip.Options{Header: "X-Real-Ip", Trusted: trusted}, "192.0.2.1:1", false},
		"any proxy":                    {clientip.Options{Header: "X-Forwarded-For"}, "203.0.113.9:1", false},
		"not a trusted proxy":          {clientip.Options{Header: "X-Forwarded-For", Trusted: trusted}, "203.0.113.9:1", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, _ := withQoS(t, qos.Options{MinIPRate: 0.5, MaxIPRate: 0.5}, func(o *Options) {
				o.Clients = clientip.NewResolver(test.clients)
			})
			var w *httptest.ResponseRecorder
			for range 6 {
				r := httptest.NewRequest(http.MethodGet, "http://site.example/", nil)
				r.RemoteAddr = test.peer
				r.Header.Set("X-Forwarded-For", "203.0.113.7")
				w = httptest.NewRecorder()
				b.gateway.ServeHTTP(w, r)
			}
			require.Equal(t, http.StatusServiceUnavailable, w.Code)
			require.Equal(t, test.close, w.Header().Get("Connection") == "close")
		})
	}
}

func TestMonitorModeOfTheLimits(t *testing.T) {
	t.Parallel()
	b, _ := withQoS(t, qos.Options{MinIPRate: 0.5, MaxIPRate: 0.5}, func(o *Options) {
		o.QoS.Monitor = true
		o.AccessLog = true
	})
	for range 5 {
		require.Equal(t, http.StatusOK, b.get("http://site.example/", "203.0.113.7:1").Code)
	}
	b.log.Reset()
	require.Equal(t, http.StatusOK, b.get("http://site.example/", "203.0.113.7:1").Code)
	require.Equal(t, "would-deny", b.line(t)["verdict"])
	require.Equal(t, "badIp", b.line(t)["qos"])
	require.InDelta(t, 1, testutil.ToFloat64(b.gateway.limits.decisions[qos.BadIP]), 0)
	require.InDelta(t, 1, testutil.ToFloat64(b.gateway.metrics.requests[WouldDeny][2]), 0)
}

func TestRefusalsAreHeldBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		limiter, err := qos.New(qos.Options{
			MinIPRate: 0.5, MaxIPRate: 0.5, MinHostRate: new(0.0), ErrorResponseDelay: 3 * time.Second, Lag: idle{},
		})
		require.NoError(t, err)
		defer limiter.Close()
		g := New(Options{
			Clients: clientip.NewResolver(clientip.Options{}), Groups: clientip.Grouper{V4: 24, V6: 64},
			QoS:        &QoS{Limiter: limiter, Status: http.StatusServiceUnavailable, RetryClient: time.Second},
			Registerer: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler),
		})
		g.stages = append(g.stages[:3:3], stage{"end", func(*exchange) Verdict { return refuse(Proxied, http.StatusOK, 0) }})
		ask := func(ctx context.Context) (status int, took time.Duration) {
			begun := time.Now()
			r := httptest.NewRequest(http.MethodGet, "/", nil).WithContext(ctx)
			w := httptest.NewRecorder()
			g.ServeHTTP(w, r)
			return w.Code, time.Since(begun)
		}
		for range 5 {
			status, took := ask(t.Context())
			require.Equal(t, http.StatusOK, status)
			require.Zero(t, took)
		}
		status, took := ask(t.Context())
		require.Equal(t, http.StatusServiceUnavailable, status)
		require.Equal(t, 3*time.Second, took)
		gone, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, took = ask(gone)
		require.Equal(t, time.Second, took, "until the client leaves")
	})
}

func TestKindsOfDenials(t *testing.T) {
	t.Parallel()
	b, _ := withQoS(t, qos.Options{}, nil)
	kind := func(x exchange) outbox.Kind {
		k, ok := b.gateway.denialOf(&x)
		require.True(t, ok)
		return k
	}
	require.Equal(t, outbox.QoS, kind(exchange{reason: Throttled, throttled: qos.BadHost}))
	require.Equal(t, outbox.WouldQoS, kind(exchange{reason: WouldDeny, throttled: qos.BadHost}))
	require.Equal(t, outbox.WouldDenylist, kind(exchange{reason: WouldDeny, throttled: qos.BadHost, wouldBlock: true}))
	b.gateway.opts.QoS.Counted = true
	require.Equal(t, outbox.QoSCounted, kind(exchange{reason: Throttled, throttled: qos.BadHost}))
}

// TestOriginLagIsFed: answers, and waits in vain, make the lag; requests that
// never reached the origin do not.
func TestOriginLagIsFed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lag := qos.NewOriginLag()
		defer lag.Close()
		g := &Gateway{opts: Options{QoS: &QoS{OriginLag: lag}}}
		half := 500 * time.Millisecond
		round := func(o proxy.Outcome, asked time.Time) time.Duration {
			for range 20 {
				g.observe(&o, asked)
			}
			<-time.After(half)
			synctest.Wait()
			return lag.Lag()
		}
		require.Zero(t, round(proxy.Outcome{FirstByte: 100 * time.Millisecond}, time.Now()), "the usual")
		require.Zero(t, round(proxy.Outcome{Class: proxy.Unreachable}, time.Now().Add(-time.Hour)))
		require.Zero(t, round(proxy.Outcome{}, time.Time{}), "never asked")
		slow := round(proxy.Outcome{Class: proxy.Timeout}, time.Now().Add(-time.Second))
		require.InDelta(t, 300, slow.Milliseconds(), 2, "a third of 900 ms")
	})
}

func TestHostSpread(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	s := NewHostSpread(slog.New(slog.NewJSONHandler(&out, nil)), 40)
	at := time.Unix(1000, 0)
	window := func(hosts ...string) {
		for i := range hostWindow {
			s.sample(hosts[i%len(hosts)], at)
		}
	}
	warnings := func() int { return strings.Count(out.String(), "\n") }
	window("a", "b", "c", "d")
	require.Zero(t, warnings())
	window("a", "www.a")
	require.Equal(t, 1, warnings())
	require.Contains(t, out.String(), "CCNQ_QOS_MAX_HOST_RATE")
	require.Contains(t, out.String(), `"requests_per_second":40`)
	window("a")
	require.Equal(t, 1, warnings(), "not again so soon")
	at = at.Add(hostWarnEvery)
	window("a")
	require.Equal(t, 2, warnings())
	var none *HostSpread
	none.see("a", at)
}

// TestHostSpreadCountsAsTheLimiterDoes: a site has several spellings.
func TestHostSpreadCountsAsTheLimiterDoes(t *testing.T) {
	t.Parallel()
	limiter, err := qos.New(qos.Options{MinHostRate: new(1e6), MaxHostRate: new(1e6), Lag: idle{}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, limiter.Close()) })
	var out bytes.Buffer
	bundle := setup(t, func(o *Options) {
		o.QoS = &QoS{Limiter: limiter, Hosts: NewHostSpread(slog.New(slog.NewJSONHandler(&out, nil)), 40)}
	})
	spellings := []string{"site.example", "Site.Example", "site.example:443", "www.site.example", "WWW.SITE.example:8080"}
	x := &exchange{r: httptest.NewRequest(http.MethodGet, "http://site.example/", nil), arrived: time.Now()}
	x.client, _ = bundle.gateway.opts.Clients.Resolve(x.r)
	for i := 0; out.Len() == 0 && i < 64*hostSample*hostWindow; i++ { // samples are taken at random
		x.r.Host = spellings[i%len(spellings)]
		require.Equal(t, goOn, bundle.gateway.throttle(x))
	}
	require.Contains(t, out.String(), `"host":"site.example","second_host":""`)
}

// BenchmarkThrottle is what the limits cost a request that they let through.
func BenchmarkThrottle(b *testing.B) {
	limiter, err := qos.New(qos.Options{
		MinHostRate: new(1e6), MaxHostRate: new(1e6), MinIPRate: 1e6, MaxIPRate: 1e6, MinSubnetRate: 1e6, MaxSubnetRate: 1e6,
		MaxAge: new(time.Millisecond), Lag: idle{},
	})
	require.NoError(b, err)
	bundle := setup(b, func(o *Options) {
		o.QoS = &QoS{Limiter: limiter, Hosts: NewHostSpread(o.Logger, 40)}
	})
	x := &exchange{r: httptest.NewRequest(http.MethodGet, "http://site.example/", nil), arrived: time.Now()}
	x.client, _ = bundle.gateway.opts.Clients.Resolve(x.r)
	b.ReportAllocs()
	for b.Loop() {
		if v := bundle.gateway.throttle(x); v != goOn {
			b.Fatal(v)
		}
	}
}
