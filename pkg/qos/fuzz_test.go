package qos

import (
	"net/netip"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	portSuffix = regexp.MustCompile(`(?s)^(.*[^:]):[0-9]+$`)
	dottedQuad = regexp.MustCompile(`^(?i:::ffff:)?([0-9]{1,3})\.([0-9]{1,3})\.([0-9]{1,3})\.([0-9]{1,3})$`)
)

// asciiLower is lower by another way.
func asciiLower(s string) string {
	for c := 'A'; c <= 'Z'; c++ {
		s = strings.ReplaceAll(s, string(c), string(c+'a'-'A'))
	}
	return s
}

func FuzzHostKey(f *testing.F) {
	for _, host := range []string{
		"", "example.com", "WWW.Example.COM:8080", "www.", "www.www.a", "[2001:DB8::1]:443", "[::1]", "::1", ":80", "a:",
		"a:b", "a:80:90", "[", "[:80", "]:80", "a\n:80", "É:1", strings.Repeat("x", maxText+1), "x.example.", "www.:80",
	} {
		f.Add(host)
	}
	f.Fuzz(func(t *testing.T, host string) {
		name := hostKey(host)
		if host == "" {
			require.Equal(t, unknown, name)
			return
		}
		require.Equal(t, asciiLower(name), name, "upper case is left")
		require.Contains(t, asciiLower(host), name, "a key is a part of the host")
		if !strings.ContainsAny(host, ":[") {
			require.Equal(t, name, hostKey(host+":80"), "a port is dropped")
			require.Equal(t, name, hostKey(host+":"), "an empty port is dropped")
			require.Equal(t, asciiLower(host), hostKey("www."+host), "one www. is dropped")
		}
		if addr, err := netip.ParseAddr(host); err == nil && addr.Is6() {
			require.Equal(t, asciiLower(host), name)
			require.Equal(t, "["+asciiLower(host)+"]", hostKey("["+host+"]:443"))
		}
		require.LessOrEqual(t, len(textKey(name).text), maxText)
	})
}

// slowCompatHostKey is the rule as regular expressions.
func slowCompatHostKey(host string) string {
	text := asciiLower(host)
	if m := portSuffix.FindStringSubmatch(text); m != nil {
		text = m[1]
	}
	parts := strings.Split(text, ":")
	last := parts[len(parts)-1]
	switch {
	case last == "":
		return host
	case len(parts) > 1 || last == "www.":
		return last
	}
	return strings.TrimPrefix(last, "www.")
}

func FuzzCompatHostKey(f *testing.F) {
	for _, host := range []string{"", "WWW.a:80", "[::1]:80", "HOST:", "::80", ":80", "a:b:80", "www.", "www.:1", "x:www.a", "a\n:80"} {
		f.Add(host)
	}
	f.Fuzz(func(t *testing.T, host string) {
		require.Equal(t, slowCompatHostKey(host), compatHostKey(host))
	})
}

func FuzzClientAddress(f *testing.F) {
	for _, text := range []string{
		"192.0.2.1", "192.0.2.1:80", "[2001:db8::1]:80", "[2001:db8::1]", "2001:db8::1", "fe80::1%eth0", "::ffff:192.0.2.1",
		"", "unknown", "1.2.3", "01.2.3.4", "999.1.1.1", "[", "[]", "@",
	} {
		f.Add(text, 24)
	}
	f.Fuzz(func(t *testing.T, text string, bits int) {
		maskBits := 20 + int(uint(bits)%11)
		addr := parseAddr(text)
		k, number, numbered := subnetKey(addr, maskBits)
		if !addr.IsValid() {
			require.Equal(t, unknown, k.String())
			require.False(t, numbered)
			return
		}
		require.False(t, addr.Is4In6())
		require.Empty(t, addr.Zone())
		require.Equal(t, addr.String(), addrKey(addr).String(), "a key reads as its address")
		length := v6Bits
		if addr.Is4() {
			length = maskBits
		}
		subnet := netip.MustParseAddr(k.String())
		prefix, err := addr.Prefix(length)
		require.NoError(t, err)
		require.Equal(t, prefix.Addr(), subnet)
		require.Equal(t, addr.Is4(), numbered)
		require.Less(t, int(number), 1<<(32-maskBits))
	})
}

func FuzzCompatSubnetKey(f *testing.F) {
	for _, ip := range []string{"1.2.3.4", "::FFFF:999.1.1.1", "01.002.3.4", "1.2.3", "1.2.3.4.5", "::1", "", "::ffff:", "::ffff:1.2.3.1234", "1..2.3"} {
		f.Add(ip, 24)
	}
	f.Fuzz(func(t *testing.T, ip string, bits int) {
		maskBits := 20 + int(uint(bits)%11)
		subnet, number, numbered := compatSubnetKey(ip, maskBits)
		require.Equal(t, dottedQuad.MatchString(ip), numbered)
		if !numbered {
			require.Equal(t, ip, subnet)
			return
		}
		again, first, _ := compatSubnetKey(subnet, maskBits)
		require.Equal(t, subnet, again, "a subnet is its own subnet")
		require.Zero(t, first)
		if addr, err := netip.ParseAddr(ip); err == nil {
			want, n, _ := subnetKey(addr.Unmap(), maskBits)
			require.Equal(t, want.String(), subnet, "the same as without Compat")
			require.Equal(t, n, number)
		}
	})
}

func FuzzForwardedFor(f *testing.F) {
	f.Add("192.0.2.1, 192.0.2.2", "192.0.2.3", 1)
	f.Add(",", ",,", 3)
	f.Add("", "", 0)
	f.Fuzz(func(t *testing.T, first, second string, hops int) {
		hops = int(uint(hops) % (maxTrustedHops + 1))
		s := settings{httpProxied: true, trustedHops: hops}
		got := s.forwarded(request{XFF: textList{first, second}}.http())
		entries := strings.Split(first+","+second, ",")
		switch {
		case hops == 0:
			require.Equal(t, entries[0], got)
		case hops > len(entries):
			require.Empty(t, got)
		default:
			require.Equal(t, entries[len(entries)-hops], got)
		}
	})
}

// FuzzBlocklists: keys come from a store that others write to.
func FuzzBlocklists(f *testing.F) {
	for _, seed := range []string{"192.0.2.1", "::ffff:192.0.2.1", "2001:db8::1", "fe80::1%eth0", "unknown", "", "a.example", "\x00"} {
		f.Add(seed, false)
		f.Add(seed, true)
	}
	f.Fuzz(func(t *testing.T, text string, compat bool) {
		l, _, _ := newMember(t, unlimitedHosts(Options{Compat: compat, HostWhitelist: []string{}}), ClusterOptions{})
		l.SetBlocklists(nil)
		l.SetBlocklists(&Blocklists{IPs: []string{text}})
		addr, err := netip.ParseAddr(text)
		reason := l.Decide(l.NewActor("a.example", addr))
		// An address that is listed in canonical text is blocked, and so is the unknown one.
		if err == nil && addr.String() == text || err != nil && text == unknown {
			require.Equal(t, BadIP, reason)
		}
		l.SetBlocklists(&Blocklists{Hosts: []string{text}, Subnets: []string{text}})
		require.Contains(t, []Reason{Pass, HostViolation, BadSubnet}, l.Decide(l.NewActor(text, addr)))
		require.Equal(t, []string{text}, l.Blocklists().Hosts)
	})
}
