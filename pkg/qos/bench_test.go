package qos

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// benchAddresses is how many client addresses the benchmarks have.
const benchAddresses = 10_000

// benchLimiter has all limits on and room for all keys. The addresses are those of
// so many subnets, and ask for so many hosts, all at random. Its clock is the real
// one, but slower, so that an address has some 10 to 80 requests a second, which
// pass, when the actors take turns.
func benchLimiter(b *testing.B, hosts, subnets int, compat bool, cluster *ClusterOptions) (*Limiter, []Actor) {
	b.Helper()
	const perAddress, slower = 150, 16
	var filled atomic.Int64
	start := time.Now()
	ratio := 0.9
	if hosts == 1 {
		ratio = 0 // one host has all requests
	}
	perHost, perSubnet := float64(perAddress*benchAddresses/hosts), float64(perAddress*benchAddresses/subnets)
	l, err := New(Options{
		MinIPRate: perAddress, MaxIPRate: 2 * perAddress,
		MinHostRate: &perHost, MaxHostRate: new(2 * perHost),
		MinSubnetRate: perSubnet, MaxSubnetRate: 2 * perSubnet,
		MaxHostRatio: ratio, HistorySize: new(benchAddresses), Compat: compat, Cluster: cluster,
	})
	if err != nil {
		b.Fatal(err)
	}
	l.elapsed = func() time.Duration { return time.Duration(filled.Load()) + time.Since(start)/slower }
	b.Cleanup(func() { _ = l.Close() })
	actors := make([]Actor, benchAddresses)
	for i, n := range rand.New(rand.NewPCG(1, 2)).Perm(benchAddresses) {
		addr := nthAddress(n % subnets).As4()
		addr[3] = byte(n / subnets)
		actors[i] = l.NewActor(fmt.Sprintf("host%d.example", n%hosts), netip.AddrFrom4(addr))
	}
	for range 200 { // 20 requests a second for 10 s
		for _, a := range actors {
			filled.Add(int64(50*time.Millisecond) / benchAddresses)
			if reason := l.Decide(a); reason != Pass {
				b.Fatal(reason)
			}
		}
	}
	return l, actors
}

// BenchmarkDecide is one decision with all limits on and 10,000 addresses, whose
// requests all pass and are tracked.
func BenchmarkDecide(b *testing.B) {
	for _, mode := range []struct {
		hosts, subnets int
		compat         bool
		cluster        *ClusterOptions
	}{
		{1, 2500, false, nil},
		{100, 2500, false, nil},
		{100, 2500, true, nil},
		{10_000, 10_000, false, nil},
		{100, 2500, false, &ClusterOptions{Store: &board{}, SyncInterval: time.Hour, MaxSubnetRate: 1e9}},
	} {
		name := fmt.Sprintf("hosts=%d/subnets=%d/compat=%v/cluster=%v", mode.hosts, mode.subnets, mode.compat, mode.cluster != nil)
		b.Run(name, func(b *testing.B) {
			l, actors := benchLimiter(b, mode.hosts, mode.subnets, mode.compat, mode.cluster)
			b.ReportAllocs()
			i, before := 0, cpuTime(b)
			for b.Loop() {
				l.Decide(actors[i%benchAddresses])
				i++
			}
			// The same where the machine is shared with others.
			b.ReportMetric(float64(cpuTime(b)-before)/float64(i), "cpu-ns/op")
		})
	}
}

// BenchmarkDecideParallel is to be run with -cpu 1,2: ns/op of one core over that
// of two is the scaling. One host is the worst case, as all share its lock.
func BenchmarkDecideParallel(b *testing.B) {
	for _, hosts := range []int{1, 100, 10_000} {
		l, actors := benchLimiter(b, hosts, max(hosts, 2500), false, nil)
		b.Run(fmt.Sprintf("hosts=%d", hosts), func(b *testing.B) {
			var start atomic.Int64
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				i := int(start.Add(benchAddresses / 2))
				for pb.Next() {
					l.Decide(actors[i%benchAddresses])
					i++
				}
			})
		})
	}
}

// BenchmarkDecideRefused is a decision against the request, as in a flood.
func BenchmarkDecideRefused(b *testing.B) {
	l, _ := newLimiter(b, Options{MinIPRate: 1, MaxIPRate: 1, MinSubnetRate: 10, MaxSubnetRate: 10})
	a := l.NewActor("a.example", nthAddress(1))
	for l.Decide(a) == Pass {
	}
	b.ReportAllocs()
	for b.Loop() {
		if l.Decide(a) == Pass {
			b.Fatal("passed")
		}
	}
}

// BenchmarkDecideRotation is a client that never uses an address twice: every
// decision evicts three keys.
func BenchmarkDecideRotation(b *testing.B) {
	l, _ := newLimiter(b, Options{
		MinIPRate: 1, MaxIPRate: 1, MinSubnetRate: 1, MaxSubnetRate: 1, HistorySize: new(benchAddresses),
	})
	host := make([]string, 1<<16)
	for i := range host {
		host[i] = fmt.Sprintf("host%d.example", i)
	}
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		l.Decide(l.NewActor(host[n%len(host)], nthAddress(n)))
		n++
	}
}

// BenchmarkActor reads host and address of a request.
func BenchmarkActor(b *testing.B) {
	for _, compat := range []bool{false, true} {
		b.Run(fmt.Sprintf("compat=%v", compat), func(b *testing.B) {
			l, _ := newLimiter(b, Options{MinIPRate: 1, MaxIPRate: 1, MinSubnetRate: 1, MaxSubnetRate: 1, Compat: compat})
			r := request{Host: "www.example.com:443", RemoteAddr: "192.0.2.123"}.http()
			b.ReportAllocs()
			for b.Loop() {
				l.Actor(r)
			}
		})
	}
}

// cpuTime is what the process has used so far.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// rawClient keeps connections to a server and spends little on them.
type rawClient struct {
	conns []net.Conn
	size  int // of an answer
}

const rawRequest = "GET / HTTP/1.1\r\nHost: www.example.com\r\nUser-Agent: benchmark\r\nAccept: */*\r\n\r\n"

func newRawClient(b *testing.B, handler http.Handler, status int, conns int) *rawClient {
	b.Helper()
	server := httptest.NewServer(handler)
	b.Cleanup(server.Close)
	c := &rawClient{}
	for range conns {
		conn, err := net.Dial("tcp", strings.TrimPrefix(server.URL, "http://"))
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = conn.Close() })
		c.conns = append(c.conns, conn)
	}
	if _, err := io.WriteString(c.conns[0], rawRequest); err != nil {
		b.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(io.TeeReader(c.conns[0], countBytes(&c.size))), nil)
	if err != nil {
		b.Fatal(err)
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil || response.StatusCode != status {
		b.Fatal(response.Status, err)
	}
	return c
}

type byteCounter struct{ n *int }

func countBytes(n *int) byteCounter { return byteCounter{n} }

func (c byteCounter) Write(p []byte) (int, error) {
	*c.n += len(p)
	return len(p), nil
}

// round sends n requests on each connection, one after the other, and returns the
// processor time of all.
func (c *rawClient) round(b *testing.B, n int) time.Duration {
	b.Helper()
	before := cpuTime(b)
	var wg sync.WaitGroup
	for _, conn := range c.conns {
		wg.Go(func() {
			answer := make([]byte, c.size)
			for range n {
				if _, err := io.WriteString(conn, rawRequest); err != nil {
					b.Error(err)
					return
				}
				if _, err := io.ReadFull(conn, answer); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	return cpuTime(b) - before
}

// BenchmarkMiddleware compares the processor time of a server with that of the bare
// handler, in turns within one run: x is the ratio. It includes the client's, which is small.
func BenchmarkMiddleware(b *testing.B) {
	const conns, perRound = 16, 200
	pass := func(o *Options) { o.MinHostRate, o.MaxHostRate = new(1e6), new(1e6) }
	refuse := func(o *Options) { o.MinHostRate, o.MaxHostRate, o.DestroySocket = new(0.1), new(0.1), new(false) }
	for _, mode := range []struct {
		name   string
		change func(*Options)
		status int
	}{
		{"passed", pass, http.StatusOK},
		{"refused", refuse, http.StatusServiceUnavailable},
	} {
		b.Run(mode.name, func(b *testing.B) {
			options := Options{MinIPRate: 1e6, MaxIPRate: 1e6, MinSubnetRate: 1e6, MaxSubnetRate: 1e6}
			mode.change(&options)
			l, err := New(options)
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = l.Close() })
			l.IsBadHost("example.com", true)
			bare := newRawClient(b, hello, http.StatusOK, conns)
			limited := newRawClient(b, l.Middleware(hello), mode.status, conns)
			bare.round(b, perRound)
			limited.round(b, perRound)
			runtime.GC()

			var without, with time.Duration
			rounds := 0
			for b.Loop() {
				without += bare.round(b, perRound)
				with += limited.round(b, perRound)
				rounds++
			}
			requests := float64(rounds * conns * perRound)
			b.ReportMetric(float64(without)/requests, "bare-cpu-ns/req")
			b.ReportMetric(float64(with)/requests, "cpu-ns/req")
			b.ReportMetric(float64(with)/float64(without), "x")
		})
	}
}

// nothing is a response that nobody reads.
type nothing struct{ header http.Header }

func (n nothing) Header() http.Header         { return n.header }
func (n nothing) Write(p []byte) (int, error) { return len(p), nil }
func (n nothing) WriteHeader(int)             {}

// BenchmarkHandler is what the middleware costs by itself: one client of one host, whose
// requests pass, or are refused.
func BenchmarkHandler(b *testing.B) {
	const never = 1e9
	limits := Options{
		MinHostRate: new(float64(never)), MaxHostRate: new(float64(never)),
		MinIPRate: never, MaxIPRate: never, MinSubnetRate: never, MaxSubnetRate: never,
		DestroySocket: new(false),
	}
	refusing := limits
	refusing.MinHostRate, refusing.MaxHostRate, refusing.MaxAge = new(1e-9), new(1e-9), new(time.Hour)
	for _, mode := range []struct {
		name    string
		options *Options
	}{
		{"bare", nil},
		{"passed", &limits},
		{"passed/hosts_alone", &Options{MinHostRate: new(float64(never)), MaxHostRate: new(float64(never))}},
		{"refused", &refusing},
	} {
		b.Run(mode.name, func(b *testing.B) {
			handler := http.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			if mode.options != nil {
				l, err := New(*mode.options)
				if err != nil {
					b.Fatal(err)
				}
				b.Cleanup(func() { _ = l.Close() })
				handler = l.Middleware(handler)
			}
			w := nothing{http.Header{}}
			r := request{Host: "203.0.113.7:8080", RemoteAddr: "192.0.2.123"}.http()
			handler.ServeHTTP(w, r)
			b.ReportAllocs()
			for b.Loop() {
				handler.ServeHTTP(w, r)
			}
		})
	}
}
