// Package testport gives tests ports for servers that stop and come back.
package testport

import (
	"math/rand/v2"
	"net"
	"net/netip"
	"testing"
)

// The ports are below those that Linux gives to outgoing connections and to
// who asks for any port (net.ipv4.ip_local_port_range begins at 32768), so
// nobody takes one by chance while no server listens on it.
const (
	first, end = 20_000, 32_768
	attempts   = 200
)

// Reserve returns a port of 127.0.0.1 on which no TCP server listens. Until the
// test ends it is reserved among all who ask here, in whatever process: the UDP
// port of the same number stands for the reservation.
func Reserve(t testing.TB) int {
	t.Helper()
	for range attempts {
		at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(first+rand.IntN(end-first)))
		reservation, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(at))
		if err != nil {
			continue
		}
		listener, err := net.ListenTCP("tcp4", net.TCPAddrFromAddrPort(at))
		if err != nil {
			_ = reservation.Close()
			continue
		}
		_ = listener.Close()
		t.Cleanup(func() { _ = reservation.Close() })
		return int(at.Port())
	}
	t.Fatalf("no free port between %d and %d in %d attempts", first, end, attempts)
	return 0
}
