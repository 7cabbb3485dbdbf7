package listen

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// feed passes one head through a guard in pieces of the given size and returns how many bytes it let through.
func feed(g *headGuard, stream []byte, piece int) int {
	passed := 0
	for passed < len(stream) {
		offered := stream[passed:min(len(stream), passed+piece)]
		n := g.pass(offered)
		passed += n
		if n < len(offered) || (!g.inLine && !g.later) {
			break
		}
	}
	return passed
}

// headOf returns the first head of a stream, and whether it breaks a rule, by splitting it into lines.
func headOf(stream []byte) (length int, bad bool) {
	for i, line := range bytes.SplitAfter(stream, []byte("\n")) {
		if i > 0 && len(line) > 0 && (line[0] == ' ' || line[0] == '\t') {
			bad = true
		}
		if !bytes.HasSuffix(line, []byte("\n")) {
			return len(stream), bad
		}
		length += len(line)
		if !bytes.HasSuffix(line, []byte("\r\n")) {
			bad = true
		}
		if string(line) == "\n" || string(line) == "\r\n" {
			break
		}
	}
	return length, bad
}

func TestHeadGuard(t *testing.T) {
	t.Parallel()
	for head, bad := range map[string]bool{
		"GET / HTTP/1.1\r\nHost: a\r\n\r\n":             false,
		"GET / HTTP/1.1\r\nHost:\r\nX: \t\r\n\r\n":      false,
		" GET / HTTP/1.1\r\n\r\n":                       false, // no field line; net/http refuses it
		"\r\n":                                          false,
		"GET / HTTP/1.1\nHost: a\r\n\r\n":               true,
		"GET / HTTP/1.1\r\nHost: a\r\n\n":               true,
		"GET / HTTP/1.1\r\nHost: a\r\n b\r\n\r\n":       true,
		"GET / HTTP/1.1\r\nHost: a\r\n\tb\r\n\r\n":      true,
		"GET / HTTP/1.1\r\n \r\n\r\n":                   true,
		"\n":                                            true,
		"GET / HTTP/1.1\r\nHost: a\r\nX: \r\r\n\r\n":    false, // a CR in a value; net/http refuses it
		"GET / HTTP/1.1\r\nHost: a\r\n\rX: b\r\n\r\r\n": false,
	} {
		for piece := 1; piece <= len(head); piece++ {
			g := &headGuard{}
			feed(g, []byte(head), piece)
			require.Equal(t, bad, g.bad, "%q in pieces of %d", head, piece)
		}
	}
}

func TestHeadGuard_Body(t *testing.T) {
	t.Parallel()
	const head, body, next = "POST / HTTP/1.1\r\n\r\n", "a\n b\n\n", "GET / HTTP/1.1\r\n\r\n"
	for piece := 1; piece <= 40; piece++ {
		g := &headGuard{}
		stream := []byte(head + body + next)
		require.Equal(t, len(head), feed(g, stream, piece))
		g.body = int64(len(body))
		rest := stream[len(head):]
		for len(rest) > 0 {
			n := g.pass(rest[:min(piece, len(rest))])
			require.Positive(t, n)
			rest = rest[n:]
		}
		require.False(t, g.bad)
		require.Zero(t, g.body)
		require.False(t, g.later, "a new head")
	}
}

func FuzzHeadGuard(f *testing.F) {
	f.Add("GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\n\r\n", 3)
	f.Add("GET / HTTP/1.1\nHost: a\n b\r\n\r\n", 100)
	f.Add("\r\r\n\r\n\n", 1)
	f.Add("\r\r\n\r\n\n", 2)
	f.Add(strings.Repeat("x", 100)+"\r", 7)
	f.Fuzz(func(t *testing.T, stream string, piece int) {
		if len(stream) == 0 || piece < 1 {
			return
		}
		g := &headGuard{}
		wantLength, wantBad := headOf([]byte(stream))
		require.Equal(t, wantLength, feed(g, []byte(stream), piece))
		require.Equal(t, wantBad, g.bad)
	})
}

func BenchmarkHeadGuard(b *testing.B) {
	head := []byte("GET /a/path HTTP/1.1\r\nHost: site.example\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0\r\n" +
		"Accept: text/html,application/xhtml+xml\r\nAccept-Language: en-US,en;q=0.5\r\nAccept-Encoding: gzip, deflate, br\r\nCookie: session=0123456789abcdef\r\n\r\n")
	b.ReportAllocs()
	var g headGuard
	for b.Loop() {
		g.pass(head)
	}
	require.False(b, g.bad)
}
