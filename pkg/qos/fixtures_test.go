package qos

import (
	"cmp"
	"crypto/tls"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// epoch is where the clocks of tests begin.
var epoch = time.UnixMilli(1_700_000_000_000)

// world is a clock and a lag that a test sets. It may be used concurrently.
type world struct{ ms, lag atomic.Int64 }

func (w *world) Now() time.Time           { return epoch.Add(time.Duration(w.ms.Load()) * time.Millisecond) }
func (w *world) Lag() time.Duration       { return time.Duration(w.lag.Load()) }
func (w *world) setLagMillis(lag float64) { w.lag.Store(int64(duration(lag))) }

// newLimiter makes a limiter in a world that starts at 0.
func newLimiter(t testing.TB, options Options) (*Limiter, *world) {
	t.Helper()
	w := &world{}
	options.Lag, options.Now = w, w.Now
	l, err := New(options)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	return l, w
}

// request is a request as a server has it after reading.
type request struct {
	Host       string   `json:"host"`
	Authority  string   `json:"authority"`
	RemoteAddr string   `json:"remote_addr"`
	XFF        textList `json:"xff"`
	HTTPS      bool     `json:"https"`
	HTTP2      bool     `json:"http2"`
}

func (q request) http() *http.Request {
	r := &http.Request{Method: http.MethodGet, Host: q.Host, Header: http.Header{}, ProtoMajor: 1, ProtoMinor: 1}
	if q.RemoteAddr != "" {
		r.RemoteAddr = net.JoinHostPort(q.RemoteAddr, "49152")
	}
	if q.HTTP2 {
		r.ProtoMajor, r.ProtoMinor = 2, 0
	}
	if q.Authority != "" {
		r.Host = q.Authority // what net/http does with it
	}
	if len(q.XFF) > 0 {
		r.Header["X-Forwarded-For"] = q.XFF
	}
	if q.HTTPS {
		r.TLS = &tls.ConnectionState{}
	}
	return r
}

// keys lists a table, most recently used first.
func (t *table) keys() []string {
	var entries []*entry
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		for _, queued := range s.queue {
			entries = append(entries, queued.entry)
		}
		s.mu.Unlock()
	}
	slices.SortFunc(entries, func(a, b *entry) int { return cmp.Compare(b.stamp, a.stamp) })
	keys := make([]string, len(entries))
	for i, e := range entries {
		keys[i] = e.key.String()
	}
	return keys
}

// inViolation lists the hosts in violation.
func (l *Limiter) inViolation() []string {
	hosts := []string{}
	if l.ratio == nil {
		return hosts
	}
	if v := l.ratio.violations.Load(); v != nil && l.moment().now <= v.until {
		for host := range v.hosts {
			hosts = append(hosts, host)
		}
	}
	slices.Sort(hosts)
	return hosts
}

// historyOf is a copy of the history of a key, pruned; empty if there is none.
func (t *table) historyOf(k key, now int64) history {
	c := t.open(&k)
	defer c.close()
	c.find(&k)
	if c.entry == nil {
		return history{}
	}
	h := c.entry.history
	h.prune(now, t.maxAge)
	return h
}
