package proxy

import (
	"bufio"
	"net"
	"net/http"
	"strings"
)

// limitUpgrade leaves an upgrade in the request only if it names a protocol other than h2c, which would carry
// requests past every gate, and if the request is HTTP/1.1 without a body. The answer may ignore an Upgrade field
// (RFC 9110 section 7.8). Of a list, the first such protocol is asked for.
func (x *exchange) limitUpgrade(in *http.Request, out http.Header) {
	delete(out, "Http2-Settings")
	asked, ok := out["Upgrade"]
	if !ok {
		return
	}
	if in.ProtoAtLeast(1, 1) && in.ContentLength == 0 {
		for protocol := range strings.SplitSeq(asked[0], ",") {
			protocol = strings.TrimSpace(protocol)
			if protocol != "" && !strings.EqualFold(protocol, "h2c") {
				out["Upgrade"] = []string{protocol}
				x.upgrade = true
				return
			}
		}
	}
	delete(out, "Upgrade")
	delete(out, "Connection")
}

// upgradeWriter gives ReverseProxy a connection on which nothing is missing that the client sent ahead of the 101 answer:
// the server has read it already, and ReverseProxy does not look into the server's buffer.
type upgradeWriter struct{ http.ResponseWriter }

// Unwrap lets http.ResponseController find the other abilities of the writer.
func (u upgradeWriter) Unwrap() http.ResponseWriter { return u.ResponseWriter }

// Hijack takes over the connection.
func (u upgradeWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, buffered, err := http.NewResponseController(u.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	if n := buffered.Reader.Buffered(); n > 0 {
		early, _ := buffered.Peek(n) // cannot fail: so much is there
		c = &earlyConn{Conn: c, early: append([]byte(nil), early...)}
	}
	return c, buffered, nil
}

// earlyConn is a connection of which some bytes have been read already.
type earlyConn struct {
	net.Conn
	early []byte
}

// Read reads the early bytes first.
func (c *earlyConn) Read(p []byte) (int, error) {
	if len(c.early) == 0 {
		return c.Conn.Read(p)
	}
	n := copy(p, c.early)
	c.early = c.early[n:]
	return n, nil
}

// CloseWrite closes the sending half, where the connection has such a half.
func (c *earlyConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}
