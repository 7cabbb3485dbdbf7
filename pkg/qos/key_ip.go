package qos

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// v6Bits is the length of the prefix that makes a subnet of an IPv6 address: what
// one customer has at least (RFC 6177 §2).
const v6Bits = 64

// normal is an address in the one form that is counted: an IPv4-mapped one is
// the IPv4 address (RFC 4291 §2.5.5.2), and a zone is dropped.
func normal(addr netip.Addr) netip.Addr { return addr.Unmap().WithZone("") }

// subnetKey is the key of the subnet of a normal address. host is the number of
// an IPv4 address within it; numbered reports whether there is one.
func subnetKey(addr netip.Addr, maskBits int) (k key, host uint16, numbered bool) {
	k = addrKey(addr)
	switch {
	case !addr.IsValid():
	case addr.Is4():
		mask := uint64(1)<<(32-maskBits) - 1
		host, numbered = uint16(k.lo&mask), true
		k.lo &^= mask
	default:
		k.lo = 0 // v6Bits is half of an address
	}
	return k, host, numbered
}

// parseSubnet reads an address within a subnet, or the subnet in CIDR notation.
func parseSubnet(s string, maskBits int) (netip.Addr, error) {
	text, length, found := strings.Cut(s, "/")
	addr, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("%.64q is not an address", text)
	}
	addr = normal(addr)
	want := v6Bits
	if addr.Is4() {
		want = maskBits
	}
	if found && length != strconv.Itoa(want) {
		return netip.Addr{}, fmt.Errorf("%.64q is not a /%d", s, want)
	}
	return addr, nil
}

// compatSubnetKey is the subnet as connect-qos 5.7.0 derives it from the text of
// an address. Octets above 255 are masked as they are, and what is not dotted
// decimal is a subnet of its own.
func compatSubnetKey(ip string, maskBits int) (subnet string, host uint16, numbered bool) {
	const mapped = "::ffff:"
	dotted := ip
	if len(ip) > len(mapped) && strings.EqualFold(ip[:len(mapped)], mapped) {
		dotted = ip[len(mapped):]
	}
	octets, ok := splitOctets(dotted)
	if !ok {
		return ip, 0, false
	}
	text := make([]byte, 0, len("255.255.255.255"))
	number := 0
	for i, octet := range octets {
		if i > 0 {
			text = append(text, '.')
		}
		number = number<<8 | octet&0xff
		if keep := max(maskBits-8*i, 0); keep < 8 {
			octet &= 0xff << (8 - keep) & 0xff
		}
		text = strconv.AppendInt(text, int64(octet), 10)
	}
	return string(text), uint16(number & (1<<(32-maskBits) - 1)), true
}

// splitOctets reads four groups of one to three digits with dots between.
func splitOctets(s string) (octets [4]int, ok bool) {
	for i := range octets {
		group := s
		if i < 3 {
			if group, s, ok = strings.Cut(s, "."); !ok {
				return octets, false
			}
		}
		if len(group) < 1 || len(group) > 3 || !digits(group) {
			return octets, false
		}
		for _, c := range []byte(group) {
			octets[i] = 10*octets[i] + int(c-'0')
		}
	}
	return octets, true
}
