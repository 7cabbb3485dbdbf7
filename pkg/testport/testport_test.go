package testport

import (
	"net"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReserve(t *testing.T) {
	t.Parallel()
	seen := map[int]bool{}
	for range 50 {
		port := Reserve(t)
		require.False(t, seen[port], "%d is reserved", port)
		seen[port] = true
		for range 2 { // a server comes, goes and comes back
			l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port))
			require.NoError(t, err)
			require.NoError(t, l.Close())
		}
	}
}
