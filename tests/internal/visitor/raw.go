package visitor

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/tests/internal/await"
)

// Conn is a connection on which a test writes the very bytes.
type Conn struct {
	net.Conn
	r *bufio.Reader
}

// Dial connects to an edge and hangs up when the test ends.
func Dial(t testing.TB, edge string) *Conn {
	t.Helper()
	var dialer net.Dialer
	c, err := dialer.DialContext(t.Context(), "tcp", strings.TrimPrefix(edge, "http://"))
	require.NoError(t, err)
	require.NoError(t, c.SetDeadline(time.Now().Add(await.Limit)))
	t.Cleanup(func() { _ = c.Close() })
	return &Conn{Conn: c, r: bufio.NewReader(c)}
}

// Lines sends the lines, each with CRLF at its end.
func (c *Conn) Lines(t testing.TB, lines ...string) {
	t.Helper()
	_, err := io.WriteString(c, strings.Join(lines, "\r\n")+"\r\n")
	require.NoError(t, err)
}

// Head reads the head of a response. Its body is read with [Conn.ReadLine].
func (c *Conn) Head(t testing.TB) *http.Response {
	t.Helper()
	resp, err := http.ReadResponse(c.r, nil)
	require.NoError(t, err)
	return resp
}

// Answer reads a whole response.
func (c *Conn) Answer(t testing.TB) Answer {
	t.Helper()
	resp := c.Head(t)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return Answer{Status: resp.StatusCode, Header: resp.Header, Body: string(body)}
}

// ReadLine reads up to the next line feed.
func (c *Conn) ReadLine() (string, error) { return c.r.ReadString('\n') }

// Ended reports whether the other side closes the connection now, or has
// closed it, without another byte. It waits.
func (c *Conn) Ended(t testing.TB) bool {
	t.Helper()
	_, err := c.r.ReadByte()
	return err != nil && !isTimeout(err)
}

func isTimeout(err error) bool {
	netErr, ok := errors.AsType[net.Error](err)
	return ok && netErr.Timeout()
}

// Ask sends lines as one request on a connection of its own, with the empty
// line added, and returns the answer.
func Ask(t testing.TB, edge string, lines ...string) Answer {
	t.Helper()
	c := Dial(t, edge)
	c.Lines(t, append(lines, "")...)
	return c.Answer(t)
}

// CloseWrite says that nothing more will be sent, as a client that leaves
// does; what comes back can still be read.
func (c *Conn) CloseWrite(t testing.TB) {
	t.Helper()
	tcp, ok := c.Conn.(*net.TCPConn)
	require.True(t, ok)
	require.NoError(t, tcp.CloseWrite())
}
