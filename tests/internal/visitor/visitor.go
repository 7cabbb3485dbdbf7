// Package visitor is the clients in front of the gate: each with an address of
// its own, which it tells in a header as a trusted proxy would.
package visitor

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/tests/internal/await"
	"github.com/ccnq/ccnq/tests/internal/origin"
)

// AddressField is the header that carries a visitor's address.
const AddressField = "X-Client-Ip"

// Request is what a visitor asks for.
type Request struct {
	// Edge is the address of the edge, such as http://127.0.0.1:3000.
	Edge string
	// Host is asked for; empty means the edge's address.
	Host string
	// IP is the visitor's address; empty leaves the header out.
	IP string
	// Do says how the origin is to behave, see package origin.
	Do string
	// Mark names the request for [origin.Origin.Order].
	Mark string
	// Method defaults to GET.
	Method string
	// Path defaults to /.
	Path string
	// Header is sent as well. May be nil.
	Header http.Header
	// Body may be nil.
	Body io.Reader
}

// Answer is what came back.
type Answer struct {
	// Err is set when the answer did not come, or not whole.
	Err error
	// Status, Header and Body are what came before that.
	Status int
	Header http.Header
	Body   string
}

// Visitors share a pool of connections. They are safe for concurrent use.
type Visitors struct {
	transport *http.Transport
}

// New returns visitors who leave when the test ends.
func New(t testing.TB) *Visitors {
	t.Helper()
	v := &Visitors{transport: &http.Transport{MaxIdleConnsPerHost: 1024, DisableCompression: true}}
	t.Cleanup(v.transport.CloseIdleConnections)
	return v
}

// Group is the name under which the origin counts a visitor: its /24 or /64.
func Group(ip string) string {
	addr, err := netip.ParseAddr(ip)
	if err != nil {
		return ip
	}
	bits := 24
	if addr.Is6() {
		bits = 64
	}
	return netip.PrefixFrom(addr, bits).Masked().String()
}

// Open sends a request and returns the response with its body unread.
func (v *Visitors) Open(ctx context.Context, r Request) (*http.Response, error) {
	method, path := r.Method, r.Path
	if method == "" {
		method = http.MethodGet
	}
	if path == "" {
		path = "/"
	}
	req, err := http.NewRequestWithContext(ctx, method, r.Edge+path, r.Body)
	if err != nil {
		return nil, fmt.Errorf("make a request: %w", err)
	}
	req.Host = r.Host
	if r.Header != nil {
		req.Header = r.Header.Clone()
	}
	set := func(name, value string) {
		if value != "" && req.Header.Get(name) == "" {
			req.Header.Set(name, value)
		}
	}
	set(AddressField, r.IP)
	set(origin.Group, Group(r.IP))
	set(origin.Do, r.Do)
	set(origin.Mark, r.Mark)
	return v.transport.RoundTrip(req)
}

// Ask sends a request and reads the whole answer.
func (v *Visitors) Ask(ctx context.Context, r Request) Answer {
	resp, err := v.Open(ctx, r)
	if err != nil {
		return Answer{Err: err}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return Answer{Err: err, Status: resp.StatusCode, Header: resp.Header, Body: string(body)}
}

// Get asks and requires an answer.
func (v *Visitors) Get(t testing.TB, r Request) Answer {
	t.Helper()
	a := v.Ask(t.Context(), r)
	require.NoError(t, a.Err)
	return a
}

// Pending is a request under way.
type Pending struct {
	hangUp context.CancelFunc
	answer chan Answer
}

// Send sends a request in the background.
func (v *Visitors) Send(ctx context.Context, r Request) *Pending {
	ctx, cancel := context.WithCancel(ctx)
	p := &Pending{hangUp: cancel, answer: make(chan Answer, 1)}
	go func() {
		defer cancel()
		p.answer <- v.Ask(ctx, r)
	}()
	return p
}

// HangUp ends the request from the visitor's side.
func (p *Pending) HangUp() { p.hangUp() }

// Answer waits for the answer. It may be called once.
func (p *Pending) Answer(t testing.TB) Answer {
	t.Helper()
	return await.Value(t, "an answer", p.answer)
}

// Answered reports whether the answer is there.
func (p *Pending) Answered() bool { return len(p.answer) > 0 }
