package qos

import (
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// unlimitedHosts is what tests of other limits begin with.
func unlimitedHosts(o Options) Options {
	o.MinHostRate, o.MaxHostRate = new(0.0), new(0.0)
	return o
}

func TestAddressesOfOneClient(t *testing.T) {
	t.Parallel()
	l, _ := newLimiter(t, unlimitedHosts(Options{MinIPRate: 0.3, MaxIPRate: 0.3, HTTPBehindProxy: true}))
	for _, text := range []string{"192.0.2.1", "::ffff:192.0.2.1", "192.0.2.1:4711"} {
		require.Equal(t, Pass, l.Decide(l.Actor(request{RemoteAddr: "10.0.0.1", XFF: textList{text}}.http())))
	}
	require.Equal(t, []string{"192.0.2.1"}, l.ips.keys())
	require.Equal(t, BadIP, l.Decide(l.NewActor("a", netip.MustParseAddr("192.0.2.1"))))
	require.Equal(t, Pass, l.Decide(l.Actor(request{RemoteAddr: "10.0.0.1", XFF: textList{"no address"}}.http())))
	require.Equal(t, []string{"10.0.0.1", "192.0.2.1"}, l.ips.keys(), "the peer stands in")
	require.Equal(t, Pass, l.Decide(l.Actor(request{}.http())))
	require.Equal(t, []string{"unknown", "10.0.0.1", "192.0.2.1"}, l.ips.keys())
}

// TestHostThatIsMissing: it has one key, whoever asks.
func TestHostThatIsMissing(t *testing.T) {
	t.Parallel()
	l, _ := newLimiter(t, Options{MinHostRate: new(0.1), MaxHostRate: new(0.1)})
	require.Equal(t, Pass, l.Decide(l.Actor(request{}.http())))
	require.True(t, l.IsBadHost("", true))
	require.True(t, l.IsBadHost("unknown", true))
	require.Equal(t, BadHost, l.Decide(l.NewActor("", netip.Addr{})))
	require.Equal(t, []string{"unknown"}, l.hosts.keys())
}

// TestClientsAreReadForWhatNeedsThem: an address counts as soon as anything concerns
// addresses or subnets, and only then.
func TestClientsAreReadForWhatNeedsThem(t *testing.T) {
	t.Parallel()
	r := request{Host: "a.example", RemoteAddr: "192.0.2.1"}.http()
	for name, o := range map[string]Options{
		"rate of addresses": {MinIPRate: 1, MaxIPRate: 1},
		"rate of subnets":   {MinSubnetRate: 1, MaxSubnetRate: 1},
		"listed addresses":  {IPWhitelist: []string{"192.0.2.1"}},
		"listed subnets":    {SubnetWhitelist: []string{"192.0.2.0/24"}},
		"a cluster":         {Cluster: &ClusterOptions{Store: &board{}}},
	} {
		l, _ := newLimiter(t, o)
		for _, a := range []Actor{l.Actor(r), actor(l, "a.example", "::ffff:192.0.2.1")} {
			require.Equal(t, "192.0.2.1", a.ip.String(), name)
			require.Equal(t, "192.0.2.0", a.subnet.String(), name)
			require.Equal(t, 1, a.place(), name)
		}
	}
	l, _ := newLimiter(t, Options{MaxIPRateHostViolation: 1, MaxSubnetRateHostViolation: 1})
	require.Equal(t, Actor{host: textKey("a.example")}, l.Actor(r))
	require.Equal(t, Actor{host: textKey("a.example")}, actor(l, "a.example", "192.0.2.1"))
	require.False(t, l.IsBad(IP, l.Actor(r), true))
	require.Zero(t, l.Tracked(IP))
}

func TestTrustedHops(t *testing.T) {
	t.Parallel()
	tests := []struct {
		hops int
		xff  textList
		want string
	}{
		{0, textList{"192.0.2.1, 192.0.2.2"}, "192.0.2.1"},
		{1, textList{"192.0.2.1, 192.0.2.2"}, "192.0.2.2"},
		{1, textList{"192.0.2.1", "192.0.2.2"}, "192.0.2.2"},
		{2, textList{"192.0.2.1", "192.0.2.2 , 192.0.2.3"}, "192.0.2.2"},
		{3, textList{"192.0.2.1", "192.0.2.2,192.0.2.3"}, "192.0.2.1"},
		{4, textList{"192.0.2.1", "192.0.2.2,192.0.2.3"}, "10.0.0.1"},
		{1, nil, "10.0.0.1"},
	}
	for _, test := range tests {
		for _, compat := range []bool{false, true} {
			l, _ := newLimiter(t, Options{MaxIPRate: 1, MinIPRate: 1, HTTPSBehindProxy: true, TrustedHops: test.hops, Compat: compat})
			a := l.Actor(request{RemoteAddr: "10.0.0.1", XFF: test.xff, HTTPS: true}.http())
			require.Equal(t, test.want, a.ip.String(), "%+v", test)
			a = l.Actor(request{RemoteAddr: "10.0.0.1", XFF: test.xff}.http())
			require.Equal(t, "10.0.0.1", a.ip.String(), "plain requests come through no proxy")
		}
	}
}

func TestIPv6SubnetIsSlash64(t *testing.T) {
	t.Parallel()
	l, _ := newLimiter(t, unlimitedHosts(Options{MinSubnetRate: 0.3, MaxSubnetRate: 0.3}))
	for i := range 3 {
		require.Equal(t, Pass, l.Decide(l.NewActor("a", netip.MustParseAddr(fmt.Sprintf("2001:db8::%d:1", i)))))
	}
	require.Equal(t, BadSubnet, l.Decide(l.NewActor("a", netip.MustParseAddr("2001:db8::ffff"))), "the gate is for IPv4")
	require.Equal(t, Pass, l.Decide(l.NewActor("a", netip.MustParseAddr("2001:db8:0:1::1"))))
	require.True(t, l.IsBadSubnet("2001:db8::/64", false))
}

func TestUniqueIPGate(t *testing.T) {
	t.Parallel()
	l, w := newLimiter(t, unlimitedHosts(Options{
		MinSubnetRate: 1, MaxSubnetRate: 1, MaxAge: new(time.Second), MinSubnetUniqueIPs: new(3.0),
	}))
	address := func(last byte) Actor { return l.NewActor("a", netip.AddrFrom4([4]byte{192, 0, 2, last})) }
	for range 50 {
		require.Equal(t, Pass, l.Decide(address(1)), "one address is no reason to refuse its subnet")
	}
	require.True(t, l.IsBadSubnet("192.0.2.0", false), "without an address the rate decides")
	require.False(t, l.IsBad(Subnet, address(1), false))
	w.ms.Store(500)
	require.Equal(t, Pass, l.Decide(address(2)))
	require.Equal(t, Pass, l.Decide(address(2)))
	require.Equal(t, Pass, l.Decide(address(3)), "those tracked before count")
	require.Equal(t, BadSubnet, l.Decide(address(4)))
	w.ms.Store(1000)
	require.Equal(t, BadSubnet, l.Decide(address(4)))
	w.ms.Store(1001)
	require.Equal(t, Pass, l.Decide(address(2)), "address 1 is too long ago")
}

func TestViolationEnds(t *testing.T) {
	t.Parallel()
	for _, compat := range []bool{false, true} {
		l, w := newLimiter(t, unlimitedHosts(Options{MaxHostRatio: 0.01, Compat: compat}))
		a := l.NewActor("a.example", netip.MustParseAddr("192.0.2.1"))
		for range 10 {
			require.Equal(t, Pass, l.Decide(a))
		}
		require.Equal(t, HostViolation, l.Decide(a))
		w.ms.Store(ratioWindow)
		require.Equal(t, HostViolation, l.Decide(a))
		w.ms.Store(ratioWindow + 1)
		if compat {
			require.Equal(t, HostViolation, l.Decide(a), "it has no end in connect-qos")
		} else {
			require.Equal(t, Pass, l.Decide(a))
		}
	}
}

func TestRatioMemoryIsBounded(t *testing.T) {
	t.Parallel()
	for _, compat := range []bool{false, true} {
		r := newRatio(0.01, compat)
		for i := range 2 * maxOldHosts {
			// Nine a minute are never enough for a judgement.
			r.track(fmt.Sprintf("host%d.example", i), false, int64(i)*7000)
			require.LessOrEqual(t, len(r.names), 2*r.need)
		}
		if compat {
			require.Len(t, r.old, maxOldHosts)
		} else {
			require.Empty(t, r.old)
		}
		require.Nil(t, r.violations.Load())
	}
}

func TestLongKeysAreReplaced(t *testing.T) {
	t.Parallel()
	l, _ := newLimiter(t, Options{MinHostRate: new(0.1), MaxHostRate: new(0.1)})
	long, other := strings.Repeat("a", 1<<20), strings.Repeat("a", 1<<20-1)+"b"
	require.False(t, l.IsBadHost(long, true))
	require.True(t, l.IsBadHost(long, true))
	require.False(t, l.IsBadHost(other, true), "it has a key of its own")
	for _, k := range l.hosts.keys() {
		require.LessOrEqual(t, len(k), maxText)
	}
}

func TestIsBadOfNoKind(t *testing.T) {
	t.Parallel()
	l, _ := newLimiter(t, Options{})
	require.False(t, l.IsBad(Kind(7), Actor{}, true))
	require.False(t, l.IsBadIP("no address", true))
	require.False(t, l.IsBadSubnet("no address", true))
}

// TestClockOfAnotherGoroutine: a decision may see an earlier time than one that
// came before it at the same key.
func TestClockOfAnotherGoroutine(t *testing.T) {
	t.Parallel()
	l, w := newLimiter(t, Options{MinHostRate: new(0.3), MaxHostRate: new(0.3)})
	for _, at := range []int64{20, 10, 15} {
		w.ms.Store(at)
		require.False(t, l.IsBadHost("a", true))
	}
	require.True(t, l.IsBadHost("a", true))
	h := l.hosts.historyOf(textKey("a"), 20)
	require.EqualValues(t, 20, h.newest)
	require.EqualValues(t, 3, h.count)
}

// TestDecisionsAreAtomic: of many requests at one moment exactly as many pass as
// would one after the other.
func TestDecisionsAreAtomic(t *testing.T) {
	t.Parallel()
	const goroutines, each, hosts = 64, 200, 8
	l, _ := newLimiter(t, Options{
		MinHostRate: new(50.0), MaxHostRate: new(50.0), MaxAge: new(time.Second),
		MinIPRate: 1000, MaxIPRate: 1000, MinSubnetRate: 10_000, MaxSubnetRate: 10_000, MaxHostRatio: 0.9,
		HistorySize: new(1000),
	})
	var passed [hosts]atomic.Int64
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			for i := range each {
				host := (g + i) % hosts
				addr := netip.AddrFrom4([4]byte{192, 0, 2, byte(g)})
				if l.Decide(l.NewActor(fmt.Sprintf("host%d", host), addr)) == Pass {
					passed[host].Add(1)
				}
			}
		})
	}
	wg.Wait()
	for host := range passed {
		require.EqualValues(t, 50, passed[host].Load(), "host %d", host)
	}
	require.Len(t, l.hosts.keys(), hosts)
}

// TestConcurrentUse has everything at once: evictions, queries, time that passes.
func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	for _, compat := range []bool{false, true} {
		l, w := newLimiter(t, Options{
			MinHostRate: new(1.0), MaxHostRate: new(5.0), MinIPRate: 1, MaxIPRate: 5, MinSubnetRate: 2, MaxSubnetRate: 10,
			MaxHostRatio: 0.02, MaxIPRateHostViolation: 2, MinSubnetUniqueIPs: new(2.0), SubnetMaskBits: new(28),
			MaxAge: new(time.Second), HistorySize: new(20), Compat: compat,
		})
		var wg sync.WaitGroup
		for g := range 64 {
			wg.Go(func() {
				for i := range 300 {
					w.ms.Add(int64(i % 3))
					addr := netip.AddrFrom4([4]byte{192, 0, byte(i), byte(g * i)})
					host := fmt.Sprintf("www.www.host%d", i%30)
					a := l.NewActor(host, addr)
					l.Decide(a)
					switch i % 4 {
					case 0:
						l.IsBadHost(host, true)
					case 1:
						l.IsBad(Subnet, a, true)
					case 2:
						l.IsBadIP(addr.String(), false)
					}
				}
			})
		}
		wg.Wait()
		requireBounded(t, l)
		for _, table := range []*table{l.hosts, l.ips, l.subnets} {
			require.Equal(t, table.size, table.count.Load())
			require.Len(t, table.keys(), int(table.size))
		}
	}
}

// TestCloseStopsTheMeter is proved by goleak too.
func TestCloseStopsTheMeter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, err := New(Options{MinHostRate: new(1.0), MaxHostRate: new(1.0)})
		require.NoError(t, err)
		for range 10 {
			require.False(t, l.IsBadHost("a", true))
		}
		require.True(t, l.IsBadHost("a", true))
		after(10*time.Second + ms)
		require.False(t, l.IsBadHost("a", true), "the default clock moves on")
		require.NoError(t, l.Close())
		require.NoError(t, l.Close())
	})
}
