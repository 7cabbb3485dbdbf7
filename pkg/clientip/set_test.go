package clientip

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestF04_MappedAndBadRanges(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		entry   string
		in, out []string
	}{
		{
			"::ffff:198.51.100.0/120",
			[]string{"198.51.100.0", "198.51.100.255", "::ffff:198.51.100.1"},
			[]string{"198.51.101.0", "198.51.99.255", "::1", "::198.51.100.1"},
		},
		{
			"::ffff:0:0/96",
			[]string{"0.0.0.0", "203.0.113.7", "255.255.255.255", "::ffff:203.0.113.7"},
			[]string{"::", "2001:db8::1", "::fffe:0:0", "::1:0:0:0"},
		},
		{
			"198.51.100.9/24", // host bits are masked
			[]string{"198.51.100.0", "198.51.100.255"},
			[]string{"198.51.99.255", "198.51.101.0"},
		},
		{
			"::/0",
			[]string{"::", "2001:db8::1"},
			[]string{"198.51.100.1", "::ffff:198.51.100.1"},
		},
	} {
		set := mustSet(t, tt.entry)
		for _, a := range tt.in {
			require.True(t, set.Contains(addr(a)), "%s in %s", a, tt.entry)
		}
		for _, a := range tt.out {
			require.False(t, set.Contains(addr(a)), "%s in %s", a, tt.entry)
		}
	}

	const noAddress = "not an IP address, CIDR range or start-end range"
	for entry, want := range map[string]string{
		"::ffff:10.0.0.0/64":          "an IPv4-mapped range must be /96 or longer",
		"::ffff:10.0.0.0/95":          "an IPv4-mapped range must be /96 or longer",
		"198.51.100.0/33":             "the prefix length is not a number within 0-32 (IPv4) or 0-128 (IPv6)",
		"198.51.100.0/":               "the prefix length is not a number within 0-32 (IPv4) or 0-128 (IPv6)",
		"2001:db8::/129":              "the prefix length is not a number within 0-32 (IPv4) or 0-128 (IPv6)",
		"198.51.100.30-198.51.100.10": "the range ends before it starts",
		"2001:db8::1-198.51.100.9":    "the ends of the range are of different address families",
		"2001:db8::/32-2001:db9::":    "the prefix length is not a number within 0-32 (IPv4) or 0-128 (IPv6)",
		"198.51.100.1-":               noAddress,
		"-":                           noAddress,
		"/24":                         noAddress,
		"198.51.100":                  noAddress,
		"198.51.100.01":               noAddress,
		"fe80::1%eth0/64":             noAddress,
		"site.example":                noAddress,
		"198.51.100.1 198.51.100.2":   noAddress,
	} {
		set, err := ParseSet("203.0.113.7," + entry)
		require.EqualError(t, err, `"`+entry+`": `+want)
		require.Nil(t, set, "a bad entry leaves nothing behind")
	}

	_, err := ParseSet("a, 198.51.100.1, b/8,198.51.100.0/33")
	require.EqualError(t, err, `"a": `+noAddress+"\n"+`"b/8": `+noAddress+"\n"+
		`"198.51.100.0/33": the prefix length is not a number within 0-32 (IPv4) or 0-128 (IPv6)`)
}

func TestParseSet(t *testing.T) {
	t.Parallel()
	set := mustSet(t, " 203.0.113.5 ,198.51.100.0/24,,192.0.2.10 - 192.0.2.20\n, 2001:db8::/32,fe80::1%eth0, 2001:db9::1-2001:db9::ffff,")
	for _, in := range []string{
		"203.0.113.5", "198.51.100.77", "192.0.2.10", "192.0.2.15", "192.0.2.20", "2001:db8:1::", "fe80::1", "fe80::1%eth1",
		"2001:db9::1", "2001:db9::8000", "2001:db9::ffff",
	} {
		require.True(t, set.Contains(addr(in)), in)
	}
	for _, out := range []string{"203.0.113.4", "192.0.2.9", "192.0.2.21", "2001:db9::", "2001:db9::1:0", "fe80::2"} {
		require.False(t, set.Contains(addr(out)), out)
	}
	require.False(t, set.Empty())

	all := mustSet(t, "0.0.0.0-255.255.255.255,::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")
	require.True(t, all.Contains(addr("255.255.255.255")))
	require.True(t, all.Contains(addr("::")))
	require.False(t, all.Contains(netip.Addr{}))
}

func TestEmptySet(t *testing.T) {
	t.Parallel()
	var none *Set
	for _, set := range []*Set{none, mustSet(t, ""), mustSet(t, " , ")} {
		require.True(t, set.Empty())
		require.False(t, set.Contains(addr("203.0.113.5")))
		require.False(t, set.Overlaps(netip.MustParsePrefix("0.0.0.0/0")))
	}
}

func TestOverlaps(t *testing.T) {
	t.Parallel()
	set := mustSet(t, "198.51.100.0/24,2001:db8::1")
	for prefix, want := range map[string]bool{
		"198.51.100.0/24":         true,
		"198.51.100.128/25":       true,
		"198.51.0.0/16":           true,
		"0.0.0.0/0":               true,
		"198.51.101.0/24":         false,
		"2001:db8::/64":           true,
		"2001:db8::2/128":         false,
		"::/0":                    true,
		"::ffff:198.51.100.0/120": true,
		"::ffff:0:0/64":           false,
	} {
		require.Equal(t, want, set.Overlaps(netip.MustParsePrefix(prefix)), prefix)
	}
	require.False(t, set.Overlaps(netip.Prefix{}))
}

func TestParseSetClipsLongEntries(t *testing.T) {
	t.Parallel()
	_, err := ParseSet(strings.Repeat("x", 10000))
	require.Error(t, err)
	require.Less(t, len(err.Error()), 200)
}
