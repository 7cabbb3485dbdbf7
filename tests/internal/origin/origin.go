// Package origin is the web server behind the gate. It counts how many
// requests of each group it has at once, and behaves towards each request as
// the request's own header asks, so a test stands at both ends of the gate.
package origin

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/ccnq/ccnq/tests/internal/await"
)

// Fields of a request that the origin obeys.
const (
	// Group names what the request is counted under.
	Group = "Test-Group"
	// Mark names the request in [Origin.Order].
	Mark = "Test-Mark"
	// Do says how to answer: one of the Do constants, or nothing for a short
	// answer at once.
	Do = "Test-Do"
)

// maxHeld bounds the arrivals that no test has asked for yet.
const maxHeld = 4096

// Origin is a running server. Its methods are safe for concurrent use.
type Origin struct {
	// URL is the address of the server.
	URL string

	server *httptest.Server
	held   chan *Arrival

	mu     sync.Mutex
	gates  map[string]chan struct{}
	groups map[string]*group
	order  []string
	total  int
}

type group struct {
	now map[net.Conn]struct{}
	max int
}

// New starts an origin and ends it with the test.
func New(t testing.TB) *Origin {
	t.Helper()
	o := &Origin{held: make(chan *Arrival, maxHeld), gates: map[string]chan struct{}{}, groups: map[string]*group{}}
	o.server = httptest.NewUnstartedServer(http.HandlerFunc(o.serve))
	o.server.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		return context.WithValue(ctx, connKey{}, c)
	}
	o.server.Start()
	o.URL = o.server.URL
	t.Cleanup(func() {
		o.server.CloseClientConnections() // ends what is held
		o.server.Close()
	})
	return o
}

type connKey struct{}

// Next returns the next request that is held, in order of arrival.
func (o *Origin) Next(t testing.TB) *Arrival {
	t.Helper()
	return await.Value(t, "a request at the origin", o.held)
}

// OpenGate lets the requests of a group through that ask for [DoGate], those to
// come as well. It may be called once for each group.
func (o *Origin) OpenGate(name string) { close(o.gate(name)) }

func (o *Origin) gate(name string) chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.gates[name] == nil {
		o.gates[name] = make(chan struct{})
	}
	return o.gates[name]
}

// Idle reports whether no request is under way.
func (o *Origin) Idle() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, g := range o.groups {
		if len(g.now) > 0 {
			return false
		}
	}
	return true
}

// Now returns how many requests of a group are under way.
func (o *Origin) Now(name string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	if g := o.groups[name]; g != nil {
		return len(g.now)
	}
	return 0
}

// Max returns the most requests of a group that were ever under way at once.
func (o *Origin) Max(name string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	if g := o.groups[name]; g != nil {
		return g.max
	}
	return 0
}

// ForgetMax begins to look for the most requests at once anew, in all groups.
func (o *Origin) ForgetMax() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, g := range o.groups {
		g.max = len(g.now)
	}
}

// MaxOfAll returns the greatest [Origin.Max] of all groups.
func (o *Origin) MaxOfAll() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	most := 0
	for _, g := range o.groups {
		most = max(most, g.max)
	}
	return most
}

// Total returns how many requests have come.
func (o *Origin) Total() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.total
}

// Order returns the marks of the requests that had one, in order of arrival.
func (o *Origin) Order() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]string(nil), o.order...)
}

// enter counts a request, which is under way until its connection is closed or
// its handler returns, whichever the kernel says first: the gate may give a
// place away as soon as it has closed the connection, even if this server's
// goroutine has not noticed yet.
func (o *Origin) enter(r *http.Request, c net.Conn) (leave func()) {
	name, mark := r.Header.Get(Group), r.Header.Get(Mark)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.total++
	if mark != "" {
		o.order = append(o.order, mark)
	}
	g := o.groups[name]
	if g == nil {
		g = &group{now: map[net.Conn]struct{}{}}
		o.groups[name] = g
	}
	g.now[c] = struct{}{}
	if len(g.now) > g.max {
		for other := range g.now {
			if closedByPeer(other) {
				delete(g.now, other)
			}
		}
		g.max = max(g.max, len(g.now))
	}
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(g.now, c)
	}
}
