package listen

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"sync/atomic"
)

// conn is one connection of a client. It is the TCP connection itself with a note of its server, so that nothing has
// to be looked up, and the shortcuts that net/http takes with a TCP connection stay open.
type conn struct {
	*net.TCPConn
	server   *Server
	hijacked atomic.Bool

	// opaque says that what comes is no sequence of HTTP/1 requests, or not any more: TLS, HTTP/2, another protocol,
	// the last request. The guard is off then.
	opaque  atomic.Bool
	badHead atomic.Bool // a copy of guard.bad for the handler's goroutine
	guard   headGuard   // like rest, belongs to whoever reads; net/http has one reader at a time
	rest    []byte      // read from the socket but not handed out
}

// Read reads from the client.
func (c *conn) Read(p []byte) (int, error) {
	if c.opaque.Load() {
		if len(c.rest) == 0 {
			return c.TCPConn.Read(p)
		}
		n := copy(p, c.rest)
		c.rest = c.rest[n:]
		return n, nil
	}
	if len(c.rest) > 0 {
		n := c.check(p[:copy(p, c.rest)])
		c.rest = c.rest[n:]
		return n, nil
	}
	n, err := c.TCPConn.Read(p)
	if n == 0 {
		return n, err
	}
	out := c.check(p[:n])
	if out < n {
		c.rest = append([]byte(nil), p[out:n]...)
		return out, nil // an error comes again with the next read
	}
	return n, err
}

func (c *conn) check(p []byte) int {
	n := c.guard.pass(p)
	if c.guard.bad {
		c.badHead.Store(true)
	}
	return n
}

// WriteTo copies what the client sends, after a hijack, to w.
func (c *conn) WriteTo(w io.Writer) (int64, error) {
	var before int64
	if len(c.rest) > 0 {
		n, err := w.Write(c.rest)
		c.rest = nil
		before = int64(n)
		if err != nil {
			return before, err
		}
	}
	n, err := c.TCPConn.WriteTo(w)
	return before + n, err
}

// Close closes the connection and forgets it.
func (c *conn) Close() error {
	c.server.mu.Lock()
	delete(c.server.conns, c)
	c.server.mu.Unlock()
	return c.TCPConn.Close()
}

// listener gives out tracked connections.
type listener struct {
	net.Listener
	server *Server
}

// Accept waits for the next connection.
func (l *listener) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &conn{TCPConn: nc.(*net.TCPConn), server: l.server}
	c.opaque.Store(l.server.cert != nil)
	l.server.mu.Lock()
	l.server.conns[c] = struct{}{}
	l.server.mu.Unlock()
	return c, nil
}

// unwrap returns the tracked connection below TLS.
func unwrap(nc net.Conn) *conn {
	if t, ok := nc.(*tls.Conn); ok {
		nc = t.NetConn()
	}
	c, _ := nc.(*conn)
	return c
}

type connKey struct{}

func withConn(ctx context.Context, nc net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, unwrap(nc))
}

// connOf returns the connection on which r came, or nil if no Server served it.
func connOf(r *http.Request) *conn {
	c, _ := r.Context().Value(connKey{}).(*conn)
	return c
}

// connState notes the connections that a handler has taken over. net/http calls it in the handler's goroutine then.
func (s *Server) connState(nc net.Conn, state http.ConnState) {
	if state != http.StateHijacked {
		return
	}
	if c := unwrap(nc); c != nil {
		c.hijacked.Store(true)
		c.opaque.Store(true)
		s.upgrades.Add(1)
		s.notify()
	}
}
