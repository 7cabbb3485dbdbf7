package listen

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync/atomic"
)

// conn is one connection of a client. It is the TCP connection itself with a note of its server, so that nothing has to be
// looked up, and every shortcut that net/http takes with a TCP connection stays open.
type conn struct {
	*net.TCPConn
	hijacked atomic.Bool
	server   *Server
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
		s.upgrades.Add(1)
		s.notify()
	}
}
