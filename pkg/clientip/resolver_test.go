package clientip

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestF01_SeveralForwardedForLines(t *testing.T) {
	t.Parallel()
	r := NewResolver(Options{Header: "X-Forwarded-For", Trusted: mustSet(t, "192.0.2.0/24")})
	for want, lines := range map[string][]string{
		"203.0.113.9":  {"X-Forwarded-For: 198.51.100.66", "X-Forwarded-For: 203.0.113.9"},
		"203.0.113.10": {"X-Forwarded-For: 198.51.100.66", "X-Forwarded-For: 203.0.113.10, 192.0.2.7", "X-Forwarded-For: 192.0.2.8"},
		"198.51.100.1": {"X-Forwarded-For: 198.51.100.66, 198.51.100.1", "X-Forwarded-For: 192.0.2.8"},
		"192.0.2.3":    {"X-Forwarded-For: 192.0.2.3", "X-Forwarded-For: 192.0.2.8"}, // all are trusted: the leftmost
	} {
		got, source := r.Resolve(request(t, "192.0.2.1:4000", lines...))
		require.Equal(t, addr(want), got)
		require.Equal(t, Header, source)
	}
	got, source := r.Resolve(request(t, "198.51.100.99:4000", "X-Forwarded-For: 203.0.113.9"))
	require.Equal(t, addr("198.51.100.99"), got, "a peer that is not trusted is not believed")
	require.Equal(t, Peer, source)
}

func TestF02_OddForwardedEntries(t *testing.T) {
	t.Parallel()
	const client = "203.0.113.9"
	long := strings.Repeat("198.51.100.66, ", 8<<10/15) + client
	for _, tt := range []struct {
		name, header, value, want string
		source                    Source
	}{
		{"port", "X-Forwarded-For", client + ":51234", client, Header},
		{"other port", "X-Forwarded-For", client + ":51235", client, Header},
		{"IPv6 with port", "X-Forwarded-For", "[2001:db8:5::9]:4711", "2001:db8:5::9", Header},
		{"IPv6 in brackets", "X-Forwarded-For", "[2001:db8:5::9]", "2001:db8:5::9", Header},
		{"IPv6 bare", "X-Forwarded-For", "2001:db8:5::9", "2001:db8:5::9", Header},
		{"empty entries", "X-Forwarded-For", ",," + client, client, Header},
		{"empty entries after", "X-Forwarded-For", client + ", ,\t,", client, Header},
		{"blanks and tab", "X-Forwarded-For", " " + client + " \t", client, Header},
		{"garbage before", "X-Forwarded-For", `garbage", ` + client, client, Header},
		{"unknown before", "X-Forwarded-For", "unknown, " + client, client, Header},
		{"empty", "X-Forwarded-For", "", "192.0.2.1", Fallback},
		{"garbage last", "X-Forwarded-For", client + ", garbage", "192.0.2.1", Fallback},
		{"garbage behind a proxy", "X-Forwarded-For", client + ", garbage, 192.0.2.8", "192.0.2.8", Header},
		{"8 KB", "X-Forwarded-For", long, client, Header},
		{"8 KB in one entry", "X-Forwarded-For", strings.Repeat("1", 8<<10), "192.0.2.1", Fallback},

		{"Forwarded IPv6", "Forwarded", `for="[2001:db8:5::9]:4711";proto=https`, "2001:db8:5::9", Header},
		{"Forwarded open quote", "Forwarded", `for=injected;by=", for=` + client, client, Header},
		{"Forwarded open quote last", "Forwarded", `for=` + client + `;by="`, "192.0.2.1", Fallback},
		{"Forwarded plain", "Forwarded", "for=" + client, client, Header},
		{"Forwarded case and order", "Forwarded", "proto=http;By=198.51.100.1;FOR=" + client, client, Header},
		{"Forwarded blanks", "Forwarded", "for=198.51.100.66 ,\tproto=http ; for=" + client + " ", client, Header},
		{"Forwarded through a proxy", "Forwarded", `for=198.51.100.66, for=` + client + `, for="192.0.2.8:80"`, client, Header},
		{"Forwarded quoted comma", "Forwarded", `for=` + client + `;by="a, for=198.51.100.1"`, client, Header},
		{"Forwarded escaped quote", "Forwarded", `for=` + client + `;by="a\", for=198.51.100.1"`, client, Header},
		{"Forwarded escaped backslash", "Forwarded", `for=198.51.100.66;by="a\\", for=` + client, client, Header},
		{"Forwarded hidden port", "Forwarded", `for="` + client + `:_port-1"`, client, Header},
		{"Forwarded unknown", "Forwarded", "for=" + client + ", for=unknown", "192.0.2.1", Fallback},
		{"Forwarded hidden", "Forwarded", "for=_gazonk", "192.0.2.1", Fallback},
		{"Forwarded without for", "Forwarded", "for=" + client + ", proto=https", "192.0.2.1", Fallback},
		{"Forwarded two fors", "Forwarded", "for=198.51.100.66;for=" + client, "192.0.2.1", Fallback},
		{"Forwarded escape in address", "Forwarded", `for="203.0.113\.9"`, "192.0.2.1", Fallback},
		{"Forwarded text after quote", "Forwarded", `for="` + client + `"x`, "192.0.2.1", Fallback},
		{"Forwarded no pair", "Forwarded", client, "192.0.2.1", Fallback},
		{"Forwarded empty", "Forwarded", " , ", "192.0.2.1", Fallback},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := NewResolver(Options{Header: tt.header, Trusted: mustSet(t, "192.0.2.0/24")})
			got, source := r.Resolve(request(t, "192.0.2.1:4000", tt.header+": "+tt.value))
			require.Equal(t, addr(tt.want), got)
			require.Equal(t, tt.source, source)
		})
	}
}

func TestF03_MappedAddresses(t *testing.T) {
	t.Parallel()
	r := NewResolver(Options{Header: "cf-connecting-ip"})
	allowed, blocked := mustSet(t, "198.51.100.0/24"), mustSet(t, "203.0.113.7")
	group := Grouper{V4: 24, V6: 64}
	check := func(req *http.Request) {
		got, _ := r.Resolve(req)
		require.Equal(t, "203.0.113.7", got.String())
		require.True(t, blocked.Contains(got))
		require.False(t, allowed.Contains(got))
		require.Equal(t, netip.MustParsePrefix("203.0.113.0/24"), group.Group(got))
	}
	check(request(t, "203.0.113.7:1"))
	check(request(t, "192.0.2.1:1", "CF-Connecting-IP: 203.0.113.7"))
	for _, text := range []string{"::ffff:203.0.113.7", "::ffff:cb00:7107", "0:0:0:0:0:ffff:203.0.113.7"} {
		check(request(t, "["+text+"]:1"))
		check(request(t, "192.0.2.1:1", "CF-Connecting-IP: "+text))
		check(request(t, "192.0.2.1:1", "CF-Connecting-IP: ["+text+"]:80"))
	}
	got, _ := r.Resolve(request(t, "192.0.2.1:1", "CF-Connecting-IP: ::ffff:198.51.100.20"))
	require.True(t, allowed.Contains(got))
	require.True(t, allowed.Contains(addr("::ffff:198.51.100.20")), "also if not yet unmapped")
	require.Equal(t, netip.MustParsePrefix("203.0.113.0/24"), group.Group(addr("::ffff:203.0.113.7")))
}

func TestResolvePeer(t *testing.T) {
	t.Parallel()
	r := NewResolver(Options{})
	for remote, want := range map[string]netip.Addr{
		"192.0.2.1:5":              addr("192.0.2.1"),
		"[2001:db8::1]:5":          addr("2001:db8::1"),
		"[fe80::1%eth0]:5":         addr("fe80::1"),
		"[::ffff:192.0.2.1]:5":     addr("192.0.2.1"),
		"@":                        {},
		"":                         {},
		"/run/x.sock":              {},
		"192.0.2.1:http":           {},
		"[2001:db8::1":             {},
		"[2001:db8::1]5":           {},
		"300.0.2.1:5":              {},
		"192.000.002.001:5":        {},
		strings.Repeat("1.", 1000): {},
	} {
		got, source := r.Resolve(request(t, remote, "X-Forwarded-For: 203.0.113.9"))
		require.Equal(t, want, got, remote)
		require.Equal(t, Peer, source)
	}
}

func TestResolveSingleValue(t *testing.T) {
	t.Parallel()
	trusted := mustSet(t, "192.0.2.0/24")
	for _, tt := range []struct {
		name   string
		lines  []string
		want   string
		source Source
	}{
		{"absent", nil, "192.0.2.1", Peer},
		{"one", []string{"X-Real-IP: 203.0.113.9"}, "203.0.113.9", Header},
		{"last line", []string{"X-Real-IP: 198.51.100.66", "X-Real-IP: 203.0.113.9"}, "203.0.113.9", Header},
		{"last of a list", []string{"X-Real-IP: 198.51.100.66, 203.0.113.9"}, "203.0.113.9", Header},
		{"last line empty", []string{"X-Real-IP: 203.0.113.9,", "X-Real-IP:"}, "203.0.113.9", Header},
		{"a proxy as client is not skipped", []string{"X-Real-IP: 198.51.100.66", "X-Real-IP: 192.0.2.5"}, "192.0.2.5", Header},
		{"bad last line", []string{"X-Real-IP: 198.51.100.66", "X-Real-IP: x"}, "192.0.2.1", Fallback},
		{"empty", []string{"X-Real-IP:"}, "192.0.2.1", Fallback},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := NewResolver(Options{Header: "x-real-ip", Trusted: trusted})
			got, source := r.Resolve(request(t, "192.0.2.1:1", tt.lines...))
			require.Equal(t, addr(tt.want), got)
			require.Equal(t, tt.source, source)
		})
	}
}

// Without a list of trusted proxies the header is believed from anyone, and
// its rightmost address is the client.
func TestResolveWithoutTrusted(t *testing.T) {
	t.Parallel()
	for _, trusted := range []*Set{nil, mustSet(t, "")} {
		r := NewResolver(Options{Header: "x-forwarded-for", Trusted: trusted})
		for _, peer := range []string{"198.51.100.99:1", "@"} {
			req := request(t, peer, "X-Forwarded-For: 198.51.100.66, 203.0.113.9")
			got, source := r.Resolve(req)
			require.Equal(t, addr("203.0.113.9"), got)
			require.Equal(t, Header, source)
			require.False(t, r.PeerTrusted(req))
		}
	}
}

func TestPeerTrusted(t *testing.T) {
	t.Parallel()
	r := NewResolver(Options{Trusted: mustSet(t, "192.0.2.0/24")})
	require.True(t, r.PeerTrusted(request(t, "192.0.2.1:1")))
	require.True(t, r.PeerTrusted(request(t, "[::ffff:192.0.2.1]:1")))
	require.False(t, r.PeerTrusted(request(t, "198.51.100.1:1")))
	require.False(t, r.PeerTrusted(request(t, "@")))
}

// However long the list, no more than MaxEntries are read.
func TestResolveIsBounded(t *testing.T) {
	t.Parallel()
	trusted := mustSet(t, "192.0.2.0/24")
	for _, tt := range []struct{ header, first, entry string }{
		{"X-Forwarded-For", "203.0.113.9", ", 192.0.2.8"},
		{"Forwarded", "for=203.0.113.9", ", for=192.0.2.8"},
	} {
		r := NewResolver(Options{Header: tt.header, Trusted: trusted})
		got, _ := r.Resolve(request(t, "192.0.2.1:1", tt.header+": "+tt.first+strings.Repeat(tt.entry, MaxEntries-1)))
		require.Equal(t, addr("203.0.113.9"), got)
		got, _ = r.Resolve(request(t, "192.0.2.1:1", tt.header+": "+tt.first+strings.Repeat(tt.entry, MaxEntries)))
		require.Equal(t, addr("192.0.2.8"), got)
	}
	for _, header := range []string{"X-Forwarded-For", "Forwarded", "X-Real-Ip"} {
		r := NewResolver(Options{Header: header, Trusted: trusted})
		for value, want := range map[string]Source{
			"203.0.113.9" + strings.Repeat(",", MaxEntries): Fallback,
			strings.Repeat(",", MaxEntries):                 Fallback,
		} {
			_, got := r.Resolve(request(t, "192.0.2.1:1", header+": "+value))
			require.Equal(t, want, got, "%s: %s", header, value)
		}
	}
}

func TestSourceString(t *testing.T) {
	t.Parallel()
	require.Equal(t, "peer header fallback", Peer.String()+" "+Header.String()+" "+Fallback.String())
}

func TestGroup(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		v4, v6     int
		addr, want string
	}{
		{24, 64, "203.0.113.7", "203.0.113.0/24"},
		{32, 64, "203.0.113.7", "203.0.113.7/32"},
		{1, 64, "203.0.113.7", "128.0.0.0/1"},
		{19, 64, "203.0.113.7", "203.0.96.0/19"},
		{24, 64, "2001:db8:1:2:3::4", "2001:db8:1:2::/64"},
		{24, 128, "2001:db8::4", "2001:db8::4/128"},
		{24, 57, "2001:db8:0:00ff::4", "2001:db8:0:80::/57"},
		{24, 64, "fe80::1%eth0", "fe80::/64"},
		{24, 64, "::ffff:203.0.113.7", "203.0.113.0/24"},
	} {
		require.Equal(t, tt.want, Grouper{tt.v4, tt.v6}.Group(addr(tt.addr)).String())
	}
	require.Zero(t, Grouper{24, 64}.Group(netip.Addr{}))
	require.Zero(t, Grouper{}.Group(addr("203.0.113.7")))
	require.Zero(t, Grouper{33, 129}.Group(addr("203.0.113.7")))
	require.Zero(t, Grouper{33, 129}.Group(addr("::1")))
}
