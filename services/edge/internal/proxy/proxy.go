package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

const (
	// defaultConnectTimeout is used when Options.ConnectTimeout is 0.
	defaultConnectTimeout = 10 * time.Second
	// maxIdlePerHost is how many idle connections to the origin are kept. Connections in use are not limited: that is
	// the admission queue's work.
	maxIdlePerHost = 256
	// idleTimeout closes connections to the origin that nobody used for so long.
	idleTimeout = 90 * time.Second
	// continueTimeout is how long a body announced with "Expect: 100-continue" waits for the origin's word before it
	// is sent anyway.
	continueTimeout = time.Second
	// maxResponseHead bounds the head of an answer, all 1xx answers before it included, in bytes. A larger one is a
	// broken answer.
	maxResponseHead = 256 << 10
	// copyBufferSize is the size of the buffers that response bodies pass through.
	copyBufferSize = 32 << 10
)

// Options configures a [Proxy].
type Options struct {
	// Upstream is the origin: scheme http or https, a host, and optionally a base path, which is put before the bytes
	// of the client's path. The base path is no fence: the origin resolves "/../" as it likes. Required; user
	// information, query and fragment are refused.
	Upstream *url.URL
	// Host is sent to the origin as Host instead of the client's. Empty passes the client's on unchanged.
	Host string
	// ConnectTimeout bounds connecting to the origin, TLS included. 0 means 10 seconds.
	ConnectTimeout time.Duration
	// ResponseHeaderTimeout bounds the wait for the head of the answer after the request was sent completely. 0 means
	// no limit.
	ResponseHeaderTimeout time.Duration
	// Trusted says whether the socket peer of a request is a trusted proxy, whose forwarding fields are kept. It is
	// called once for each request, concurrently. Nil trusts nobody.
	Trusted func(*http.Request) bool
	// OnEventStream is called when the head of a text/event-stream answer has come, and the function that it returns
	// when that answer has ended. It lets a listener tell endless answers apart. Nil does nothing.
	OnEventStream func(*http.Request) (done func())
}

// Proxy passes requests on to one origin. It is safe for concurrent use.
type Proxy struct {
	address       string
	base          string // escaped, without the slash at its end
	buffers       bufferPool
	exchanges     sync.Pool
	host          string
	onEventStream func(*http.Request) func()
	scheme        string
	transport     *http.Transport
	trusted       func(*http.Request) bool
}

// New returns a Proxy for the origin. It contacts nobody. The error names the option that is wrong and does not show
// the upstream URL, which may hold a password.
func New(o Options) (*Proxy, error) {
	u := o.Upstream
	switch {
	case u == nil:
		return nil, errors.New("proxy: no upstream URL")
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, fmt.Errorf("proxy: the upstream URL has scheme %q, want http or https", u.Scheme)
	case u.Hostname() == "" || u.Opaque != "":
		return nil, errors.New("proxy: the upstream URL has no host")
	case u.User != nil:
		return nil, errors.New("proxy: the upstream URL must not hold user information")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return nil, errors.New("proxy: the upstream URL must not have a query or fragment")
	case o.ConnectTimeout < 0 || o.ResponseHeaderTimeout < 0:
		return nil, errors.New("proxy: a timeout is negative")
	}
	if o.ConnectTimeout == 0 {
		o.ConnectTimeout = defaultConnectTimeout
	}
	p := &Proxy{
		address:       u.Host,
		base:          strings.TrimRight(u.EscapedPath(), "/"),
		host:          o.Host,
		onEventStream: o.OnEventStream,
		scheme:        u.Scheme,
		transport:     newTransport(o),
		trusted:       o.Trusted,
	}
	p.exchanges.New = func() any { return newExchange(p) }
	return p, nil
}

// newTransport returns the connection pool: HTTP/1.1 only, since many requests of one HTTP/2 connection would share
// its fate and its window; certificates verified against the system's roots; no proxy from the environment.
func newTransport(o Options) *http.Transport {
	dialer := &net.Dialer{Timeout: o.ConnectTimeout}
	tlsDialer := &tls.Dialer{NetDialer: dialer, Config: &tls.Config{MinVersion: tls.VersionTLS12}}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Transport{
		DialContext:            marked(dialer.DialContext),
		DialTLSContext:         marked(tlsDialer.DialContext),
		DisableCompression:     true,
		ExpectContinueTimeout:  continueTimeout,
		IdleConnTimeout:        idleTimeout,
		MaxIdleConnsPerHost:    maxIdlePerHost,
		MaxResponseHeaderBytes: maxResponseHead,
		Protocols:              protocols,
		ResponseHeaderTimeout:  o.ResponseHeaderTimeout,
	}
}

type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// marked makes a dialer's errors recognizable as such.
func marked(dial dialFunc) dialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		if err != nil {
			return nil, &dialError{err}
		}
		return c, nil
	}
}

// Close closes the idle connections to the origin. Exchanges under way go on.
func (p *Proxy) Close() { p.transport.CloseIdleConnections() }

// ServeHTTP is [Proxy.Serve] for a caller that does not want the outcome.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.Serve(w, r, new(Outcome))
}

// Serve passes the request on to the origin and the answer back to w, and writes the whole error response itself
// where there is no answer: 400, 405, 502 or 504 with a short text body and Cache-Control: no-store.
//
// It panics with [net/http.ErrAbortHandler] when the response could not be completed: the client has gone, the
// request's context was cancelled, or the origin broke off in the middle of a body. o is filled in by then. It must
// not be nil.
func (p *Proxy) Serve(w http.ResponseWriter, r *http.Request, o *Outcome) {
	*o = Outcome{RequestID: o.RequestID}
	target, err := requestTarget(r)
	if err != nil {
		refuse(w, o, err)
		return
	}
	u, err := p.originURL(target)
	if err != nil {
		refuse(w, o, err)
		return
	}
	p.exchange(w, r, o, u)
}

// bufferPool lends the buffers for response bodies.
type bufferPool struct{ pool sync.Pool }

// Get returns a buffer of copyBufferSize bytes.
func (b *bufferPool) Get() []byte {
	if buf, ok := b.pool.Get().(*[copyBufferSize]byte); ok {
		return buf[:]
	}
	return new([copyBufferSize]byte)[:]
}

// Put takes back a buffer that Get returned.
func (b *bufferPool) Put(buf []byte) { b.pool.Put((*[copyBufferSize]byte)(buf)) }
