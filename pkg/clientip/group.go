package clientip

import "net/netip"

// Grouper makes the key of the network that a client is counted with: the
// prefix of its address, with the rest masked.
type Grouper struct {
	V4 int // length of the prefix of an IPv4 address, 1-32
	V6 int // length of the prefix of an IPv6 address, 1-128
}

// Group returns the network of addr: an IPv4-mapped address is in an IPv4
// network, and a zone does not matter. It is the zero Prefix for the zero Addr
// and for a length that is out of range.
func (g Grouper) Group(addr netip.Addr) netip.Prefix {
	addr = normal(addr)
	bits := g.V6
	if addr.Is4() {
		bits = g.V4
	}
	prefix, err := addr.Prefix(bits)
	if err != nil || bits == 0 {
		return netip.Prefix{}
	}
	return prefix
}
