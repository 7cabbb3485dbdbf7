// Package link is a network link that a test can make slow.
package link

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Link passes the bytes of connections to another address on.
type Link struct {
	// Host and Port are where to connect.
	Host, Port string

	target   string
	listener net.Listener
	delay    atomic.Int64
	closed   chan struct{}
	running  sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]struct{}
}

// New opens a link to target and closes it with the test.
func New(t testing.TB, target string) *Link {
	t.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	host, port, err := net.SplitHostPort(listener.Addr().String())
	require.NoError(t, err)
	l := &Link{
		Host: host, Port: port, target: target, listener: listener,
		closed: make(chan struct{}), conns: map[net.Conn]struct{}{},
	}
	l.running.Go(l.accept)
	t.Cleanup(l.close)
	return l
}

// Delay makes every piece of data towards the client come so much later.
func (l *Link) Delay(d time.Duration) { l.delay.Store(int64(d)) }

func (l *Link) accept() {
	for {
		client, err := l.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", l.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		if !l.keep(client) || !l.keep(server) {
			_ = client.Close()
			_ = server.Close()
			return
		}
		l.running.Go(func() { l.pass(client, server, false) })
		l.running.Go(func() { l.pass(server, client, true) })
	}
}

// keep remembers a connection, unless the link is closed.
func (l *Link) keep(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.closed:
		return false
	default:
		l.conns[c] = struct{}{}
		return true
	}
}

func (l *Link) pass(from, to net.Conn, delayed bool) {
	defer func() {
		_ = from.Close()
		_ = to.Close()
		l.mu.Lock()
		delete(l.conns, from)
		l.mu.Unlock()
	}()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if d := time.Duration(l.delay.Load()); delayed && d > 0 {
			select {
			case <-time.After(d):
			case <-l.closed:
				return
			}
		}
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (l *Link) close() {
	_ = l.listener.Close()
	l.mu.Lock()
	close(l.closed)
	for c := range l.conns {
		_ = c.Close()
	}
	l.mu.Unlock()
	l.running.Wait()
}
