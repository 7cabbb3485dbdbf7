package clientip

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// written lists every address that stands in a text, in its one form.
func written(text string) []netip.Addr {
	var found []netip.Addr
	for _, piece := range strings.FieldsFunc(text, func(r rune) bool {
		return !strings.ContainsRune("0123456789abcdefABCDEF:.", r)
	}) {
		for end := len(piece); end > 0; end = strings.LastIndexByte(piece[:end], ':') {
			if addr, err := netip.ParseAddr(piece[:end]); err == nil {
				found = append(found, addr.Unmap())
			}
		}
	}
	return found
}

// slowList is the rule for X-Forwarded-For in plain words.
func slowList(lines []string, trusted *Set) netip.Addr {
	entries := strings.Split(strings.Join(lines, ","), ",")
	slices.Reverse(entries)
	if len(entries) > MaxEntries {
		entries = entries[:MaxEntries]
	}
	var client netip.Addr
	for _, entry := range entries {
		if strings.Trim(entry, " \t") == "" {
			continue
		}
		addr, ok := parseNode(strings.Trim(entry, " \t"))
		if !ok {
			return client
		}
		client = addr
		if !trusted.Contains(addr) {
			return client
		}
	}
	return client
}

// FuzzResolve: whatever a client writes, the address is one that stands in the
// header or that of the peer, and what the last proxy appends decides.
func FuzzResolve(f *testing.F) {
	for _, value := range []string{
		"198.51.100.66", "203.0.113.9:51234, 192.0.2.8", "[2001:db8:5::9]:4711", ",,203.0.113.9", `garbage", 203.0.113.9`, "unknown", "",
		`for="[2001:db8:5::9]:4711";proto=https`, `for=injected;by=", for=203.0.113.9`, `for="\"", for=::ffff:203.0.113.9`, `by="a\\\"b";for=1.2.3.4:_x`,
		"fe80::1%eth0", "::ffff:cb00:7107",
	} {
		f.Add(value, "192.0.2.7", "192.0.2.1:80")
		f.Add("for=198.51.100.1", value, "[::ffff:192.0.2.1]:80")
	}
	trusted := mustSet(f, "192.0.2.0/24")
	f.Fuzz(func(t *testing.T, first, second, peer string) {
		for _, header := range []string{"X-Forwarded-For", "Forwarded", "X-Real-Ip", ""} {
			for _, set := range []*Set{nil, trusted} {
				r := NewResolver(Options{Header: header, Trusted: set})
				lines := []string{first, second}
				req := &http.Request{RemoteAddr: peer, Header: http.Header{header: lines}}
				got, source := r.Resolve(req)
				if got.IsValid() {
					from := peer
					if source == Header {
						from = first + "\n" + second
					}
					require.Contains(t, written(from), got)
				}
				require.Equal(t, normal(got), got)
				if set != nil && !r.PeerTrusted(req) {
					require.Equal(t, Peer, source)
				}
				if header == "X-Forwarded-For" && source != Peer {
					want := slowList(lines, set)
					require.Equal(t, want.IsValid(), source == Header)
					if source == Header {
						require.Equal(t, want, got)
					}
				}
				if header == "" {
					continue
				}
				// What the proxy appends, to the line or as a line, wins.
				own := "203.0.113.9"
				if header == "Forwarded" {
					own = `proto=https;for="203.0.113.9:1"`
				}
				for _, lines := range [][]string{{first, second + ", " + own}, {first, second, own}} {
					req := &http.Request{RemoteAddr: "192.0.2.1:80", Header: http.Header{header: lines}}
					got, source := r.Resolve(req)
					require.Equal(t, netip.MustParseAddr("203.0.113.9"), got)
					require.Equal(t, Header, source)
				}
			}
		}
	})
}

// slowSet keeps the first and last address of each entry.
type slowSet [][2]netip.Addr

func (s slowSet) contains(addr netip.Addr) bool {
	for _, r := range s {
		if addr.Is4() == r[0].Is4() && r[0].Compare(addr) <= 0 && addr.Compare(r[1]) <= 0 {
			return true
		}
	}
	return false
}

// slowParse reads a list entry by entry; it is false if ParseSet must refuse.
func slowParse(s string) (slowSet, bool) {
	var set slowSet
	for _, entry := range strings.Split(s, ",") {
		entry = strings.TrimSpace(entry)
		if entry == "" {
			continue
		}
		if strings.Contains(entry, "/") {
			prefix, err := netip.ParsePrefix(entry)
			if err != nil {
				return nil, false
			}
			low, high := prefix.Addr().As16(), prefix.Addr().As16()
			bits := prefix.Bits()
			if prefix.Addr().Is4() {
				bits += 96
			} else if prefix.Addr().Is4In6() && bits < 96 {
				return nil, false
			}
			for i := bits; i < 128; i++ {
				low[i/8] &^= 1 << (7 - i%8)
				high[i/8] |= 1 << (7 - i%8)
			}
			set = append(set, [2]netip.Addr{unmapIf(low, prefix), unmapIf(high, prefix)})
			continue
		}
		first, last, ok := strings.Cut(entry, "-")
		if !ok {
			last = first
		}
		low, err1 := netip.ParseAddr(strings.TrimSpace(first))
		high, err2 := netip.ParseAddr(strings.TrimSpace(last))
		low, high = low.Unmap().WithZone(""), high.Unmap().WithZone("")
		if err1 != nil || err2 != nil || low.Is4() != high.Is4() || low.Compare(high) > 0 {
			return nil, false
		}
		set = append(set, [2]netip.Addr{low, high})
	}
	return set, true
}

// unmapIf makes an address IPv4 if the prefix it comes from was IPv4 in either
// form.
func unmapIf(raw [16]byte, prefix netip.Prefix) netip.Addr {
	addr := netip.AddrFrom16(raw)
	if prefix.Addr().Is4() || prefix.Addr().Is4In6() {
		return addr.Unmap()
	}
	return addr
}

// FuzzParseSet compares a set with a list of ranges, most of all at their ends.
func FuzzParseSet(f *testing.F) {
	for _, list := range []string{
		"", "203.0.113.5,198.51.100.0/24,192.0.2.10-192.0.2.20", "::ffff:198.51.100.0/120", "::ffff:0:0/96", "::ffff:10.0.0.0/64",
		"198.51.100.0/33", "198.51.100.9/24", "198.51.100.30-198.51.100.10", "2001:db8::1-198.51.100.9", "::-ffff::1", "0.0.0.0-255.255.255.255",
		"fe80::1%a-fe80::2", "::/0", "::fffe:1:2-::1:0:0:5", "1.2.3.4 - 1.2.3.9 ,\n5.6.7.8",
	} {
		f.Add(list, []byte{198, 51, 100, 7})
	}
	f.Fuzz(func(t *testing.T, list string, probe []byte) {
		set, err := ParseSet(list)
		want, ok := slowParse(list)
		require.Equal(t, ok, err == nil, "%q: %v", list, err)
		if !ok {
			return
		}
		probes := []netip.Addr{}
		if addr, ok := netip.AddrFromSlice(probe); ok {
			probes = append(probes, addr.Unmap())
		}
		for _, r := range want {
			probes = append(probes, r[0], r[1], r[0].Prev(), r[1].Next())
		}
		for _, addr := range probes {
			if !addr.IsValid() || addr.Is4In6() {
				continue
			}
			require.Equal(t, want.contains(addr), set.Contains(addr), "%s in %q", addr, list)
			require.Equal(t, want.contains(addr), set.Overlaps(netip.PrefixFrom(addr, addr.BitLen())), "%s in %q", addr, list)
		}
	})
}
