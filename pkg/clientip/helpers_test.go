package clientip

import (
	"bufio"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// request reads a request as a server does, from a peer, with header lines.
func request(t testing.TB, peer string, lines ...string) *http.Request {
	t.Helper()
	raw := "GET / HTTP/1.1\r\nHost: site.example\r\n"
	for _, line := range lines {
		raw += line + "\r\n"
	}
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(raw + "\r\n")))
	require.NoError(t, err)
	r.RemoteAddr = peer
	return r
}

func mustSet(t testing.TB, s string) *Set {
	t.Helper()
	set, err := ParseSet(s)
	require.NoError(t, err)
	return set
}

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }
