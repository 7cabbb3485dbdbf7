package clientip

import (
	"net/netip"
	"strings"
)

// maxAddress is the length of the longest text taken for an address: IPv6 with
// a zone, brackets and port fits well.
const maxAddress = 128

// normal gives an address its one form.
func normal(addr netip.Addr) netip.Addr { return addr.Unmap().WithZone("") }

// parseNode parses an address with or without a port: 192.0.2.1,
// 192.0.2.1:80, 2001:db8::1, [2001:db8::1], [2001:db8::1]:80. It is false for
// anything else, and allocates for a zone and for most texts that are no
// address.
func parseNode(s string) (netip.Addr, bool) {
	if len(s) == 0 || len(s) > maxAddress {
		return netip.Addr{}, false
	}
	if s[0] == '[' {
		text, port, ok := strings.Cut(s[1:], "]")
		if !ok || strings.IndexByte(text, ':') < 0 || port != "" && !isPort(port) {
			return netip.Addr{}, false
		}
		return parseAddr(text)
	}
	if i := strings.IndexByte(s, ':'); i >= 0 && i == strings.LastIndexByte(s, ':') { // one colon is no IPv6
		if !isPort(s[i:]) {
			return netip.Addr{}, false
		}
		s = s[:i]
	}
	return parseAddr(s)
}

func parseAddr(s string) (netip.Addr, bool) {
	if s == "" || !isHex(s[0]) && s[0] != ':' { // saves the error value for plain words
		return netip.Addr{}, false
	}
	addr, err := netip.ParseAddr(s)
	return normal(addr), err == nil
}

// isPort reports whether s is ":" and a port number, or a hidden port, which
// begins with "_" (RFC 7239 §6).
func isPort(s string) bool {
	port, ok := strings.CutPrefix(s, ":")
	if !ok || port == "" {
		return false
	}
	hidden := port[0] == '_'
	for i := range len(port) {
		c := port[i]
		digit := '0' <= c && c <= '9'
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '.' || c == '_' || c == '-'
		if !digit && (!hidden || !letter) {
			return false
		}
	}
	return hidden || len(port) <= len("65535")
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}
