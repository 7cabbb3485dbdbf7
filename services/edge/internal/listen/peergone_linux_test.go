package listen

import (
	"crypto/tls"
	"net"
	"net/http"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// A request whose body nobody reads: its context does not notice that the client has gone, PeerGone does.
func TestPeerGone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f := &files{cert: filepath.Join(dir, "cert.pem"), key: filepath.Join(dir, "key.pem")}
	pair := newKeyPair(t, 1)
	f.write(t, pair.cert, pair.key)
	for name, test := range map[string]struct {
		tls   bool
		leave func(*net.TCPConn) error
	}{
		"Reset":    {false, func(c *net.TCPConn) error { _ = c.SetLinger(0); return c.Close() }},
		"Close":    {false, func(c *net.TCPConn) error { return c.Close() }},
		"ResetTLS": {true, func(c *net.TCPConn) error { _ = c.SetLinger(0); return c.Close() }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			entered, left := make(chan bool), make(chan struct{})
			result := make(chan bool, 1)
			o := Options{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				entered <- PeerGone(r)
				<-left
				for !PeerGone(r) { // until the kernel has seen the packet; a test that fails runs into its time limit
					runtime.Gosched()
				}
				result <- r.Context().Err() == nil
			})}
			if test.tls {
				o.TLSCertFile, o.TLSKeyFile = f.cert, f.key
			}
			_, addr := start(t, o)
			tcp, _ := dial(t, addr)
			var c net.Conn = tcp
			if test.tls {
				c = tls.Client(tcp, &tls.Config{RootCAs: pair.roots, ServerName: "127.0.0.1"})
			}
			write(t, c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nhello")
			require.False(t, receive(t, entered), "still there")
			require.NoError(t, test.leave(tcp))
			close(left)
			require.True(t, receive(t, result), "the context has not noticed")
		})
	}
}

func TestPeerGone_HTTP2(t *testing.T) {
	t.Parallel()
	gone := make(chan bool, 1)
	_, addr := start(t, Options{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { gone <- PeerGone(r) })})
	get(t, newClient(t, h2c, nil), "http://"+addr+"/")
	require.False(t, receive(t, gone))
}
