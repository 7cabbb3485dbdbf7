package clusterqos

import (
	"fmt"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ccnq/ccnq/pkg/qos"
	"github.com/ccnq/ccnq/pkg/wire"
)

// begin is the start of a window of ten seconds.
var begin = time.Unix(1_800_000_000, 0)

const second = time.Second

// limited has limits of 10 hits in a window for an address and 20 for a subnet with
// two addresses, and of half the hits for a host.
func limited() qos.ClusterLimits {
	return qos.ClusterLimits{
		Window: 10 * second, MaxTrackedActors: 100, MaxIPRate: 1, MaxSubnetRate: 2, MaxHostRatio: 0.5, RequiredIPs: 2, Compat: true,
	}
}

func hits(seq uint64, ip string, n int64) *wire.QoSHits {
	return &wire.QoSHits{Source: "s", Seq: seq, IPs: wire.QoSCounts{{Key: ip, N: n}}}
}

func TestCountsOfTwoEdgesMeet(t *testing.T) {
	t.Parallel()
	c := newCounts(limited())
	require.True(t, c.add("a", begin, hits(1, "203.0.113.7", 6)))
	require.Empty(t, c.lists(begin).IPs)
	require.True(t, c.add("b", begin.Add(second), hits(1, "203.0.113.7", 3)))
	require.Empty(t, c.lists(begin.Add(second)).IPs)
	require.True(t, c.add("b", begin.Add(second), hits(2, "203.0.113.7", 1)))
	require.Equal(t, []string{"203.0.113.7"}, c.lists(begin.Add(second)).IPs)
}

func TestCountsSkipWhatWasCounted(t *testing.T) {
	t.Parallel()
	c := newCounts(limited())
	require.True(t, c.add("a", begin, hits(1, "203.0.113.7", 6)))
	require.False(t, c.add("a", begin.Add(time.Minute), hits(1, "203.0.113.7", 6)), "however late")
	require.True(t, c.add("a", begin.Add(time.Minute), hits(2, "203.0.113.7", 6)))
	require.False(t, c.add("a", begin.Add(time.Minute), hits(1, "203.0.113.7", 6)))
	other := hits(1, "203.0.113.7", 1)
	other.Source = "after a restart"
	require.True(t, c.add("a", begin.Add(time.Minute), other))
	require.InDelta(t, 7, c.current.IPs["203.0.113.7"], 0)
}

func TestCountsSlide(t *testing.T) {
	t.Parallel()
	c := newCounts(limited())
	c.add("a", begin.Add(9*second), hits(1, "203.0.113.7", 20))
	for at, want := range map[time.Duration]bool{
		9 * second: true, 10 * second: true, 15 * second: true, 16 * second: false, 20 * second: false, time.Hour: false,
	} {
		require.Equal(t, want, len(c.lists(begin.Add(at)).IPs) == 1, at)
	}
	require.Len(t, c.lists(begin.Add(-time.Hour)).IPs, 1, "an estimate of the time that is behind")

	c.add("a", begin.Add(12*second), hits(2, "203.0.113.8", 1))
	require.InDelta(t, 20, c.previous.IPs["203.0.113.7"], 0)
	c.add("b", begin.Add(9500*time.Millisecond), hits(1, "203.0.113.9", 3))
	require.InDelta(t, 3, c.previous.IPs["203.0.113.9"], 0, "clocks of servers differ a little")
	c.add("a", begin.Add(45*second), hits(3, "203.0.113.8", 1))
	require.Empty(t, c.previous.IPs, "after a silence")
	c.add("a", begin.Add(-time.Hour), hits(4, "203.0.113.8", 12))
	require.Equal(t, []string{"203.0.113.8"}, c.lists(begin.Add(-time.Hour)).IPs, "the server's clock was set back")
}

func TestCountsOfSubnetsAndHosts(t *testing.T) {
	t.Parallel()
	c := newCounts(limited())
	c.add("a", begin, &wire.QoSHits{
		Source: "s", Seq: 1, Subnets: wire.QoSCounts{{Key: "203.0.113.0", N: 20}, {Key: "2001:db8::", N: 20}},
		Hosts: wire.QoSCounts{{Key: "a.example", N: 51}, {Key: "b.example", N: 49}}, Total: 100,
		UniqueIPs: wire.QoSCounts{{Key: "203.0.113.0", N: 1}},
	})
	require.Equal(t, &qos.Blocklists{Subnets: []string{"2001:db8::"}, Hosts: []string{"a.example"}}, c.lists(begin))
	// One edge has seen two addresses by now.
	c.add("b", begin, &wire.QoSHits{
		Source: "s", Seq: 1, Hosts: wire.QoSCounts{{Key: "b.example", N: 2}}, Total: 2, UniqueIPs: wire.QoSCounts{{Key: "203.0.113.0", N: 2}},
	})
	require.Equal(t, &qos.Blocklists{Subnets: []string{"2001:db8::", "203.0.113.0"}}, c.lists(begin))
	// A number that is of the window before counts there.
	c.add("b", begin.Add(12*second), &wire.QoSHits{
		Source: "s", Seq: 2, UniqueIPs: wire.QoSCounts{{Key: "198.51.100.0", N: 9}}, UniqueWindowsAgo: 1,
	})
	require.InDelta(t, 9, c.previous.UniqueIPs["198.51.100.0"], 0)
	require.Empty(t, c.current.UniqueIPs)
}

func TestCountsAreBounded(t *testing.T) {
	t.Parallel()
	limits := limited()
	c := newCounts(limits)
	ip := func(i int) string { return fmt.Sprintf("10.0.%d.%d", i/256, i%256) }
	for i := range 1_000 {
		h := &wire.QoSHits{Source: "s", Seq: uint64(i + 1)}
		h.IPs = wire.QoSCounts{{Key: ip(i), N: int64(1 + i%500)}}
		h.Subnets, h.Hosts, h.UniqueIPs = h.IPs, h.IPs, h.IPs
		c.add("a", begin, h)
		for _, m := range []map[string]float64{c.current.IPs, c.current.Subnets, c.current.Hosts} {
			require.LessOrEqual(t, len(m), 2*limits.MaxTrackedActors)
		}
		require.LessOrEqual(t, len(c.current.UniqueIPs), 4*limits.MaxTrackedActors)
	}
	require.Contains(t, c.current.IPs, ip(499), "the most active stay")
	require.Contains(t, c.current.IPs, ip(998))
	require.NotContains(t, c.current.IPs, ip(0))

	for i := range 2 * maxSources {
		h := hits(1, "203.0.113.7", 1)
		h.Source = fmt.Sprint(i)
		c.add("a", begin.Add(time.Duration(i)*time.Millisecond), h)
		require.LessOrEqual(t, len(c.sources), maxSources)
	}
	require.Contains(t, c.sources, source{"a", fmt.Sprint(2*maxSources - 1)})
	require.NotContains(t, c.sources, source{"a", "0"}, "the most silent one is forgotten")
}

// TestLateAddressesAreBounded: addresses that were seen in the window before the hits
// they come with are bounded too, and those of subnets with hits stay.
func TestLateAddressesAreBounded(t *testing.T) {
	t.Parallel()
	limits := limited()
	c := newCounts(limits)
	for i := range 1_000 {
		subnet := fmt.Sprintf("10.%d.%d.0", i/256, i%256)
		h := &wire.QoSHits{Source: "s", Seq: uint64(i + 1), UniqueWindowsAgo: 1, UniqueIPs: wire.QoSCounts{{Key: subnet, N: 2}}}
		if i == 0 {
			h.Subnets = wire.QoSCounts{{Key: subnet, N: 20}}
		}
		c.add("a", begin, h)
		require.LessOrEqual(t, len(c.previous.UniqueIPs), 4*limits.MaxTrackedActors)
	}
	require.Equal(t, []string{"10.0.0.0"}, c.lists(begin).Subnets)
}

// TestCountsDoNotHoldMessages: a key that is kept keeps no message in memory.
func TestCountsDoNotHoldMessages(t *testing.T) {
	t.Parallel()
	c := newCounts(limited())
	keys := func() wire.QoSCounts { return wire.QoSCounts{{Key: "203.0.113.0", N: 1}} }
	h := &wire.QoSHits{Source: "s", Seq: 1, IPs: keys(), Subnets: keys(), Hosts: keys(), UniqueIPs: keys()}
	c.add("a", begin, h)
	for _, m := range []map[string]float64{c.current.IPs, c.current.Subnets, c.current.Hosts, c.current.UniqueIPs} {
		require.Len(t, m, 1)
		for key := range m {
			require.NotSame(t, unsafe.StringData(h.IPs[0].Key), unsafe.StringData(key)) //nolint:gosec // compared only
		}
	}
}

func TestTrimKeepsTheSameEverywhere(t *testing.T) {
	t.Parallel()
	m := map[string]float64{"a": 1, "b": 1, "c": 1, "d": 2}
	trimTo(m, 2)
	require.Equal(t, map[string]float64{"c": 1, "d": 2}, m)
}

// TestCountsProperty compares with a list of all hits.
func TestCountsProperty(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		limits := limited()
		c := newCounts(limits)
		type hit struct {
			window int64
			ip     string
			n      int64
		}
		var all []hit
		at := begin
		sent := map[string]uint64{}
		var repeat []func()
		for range rapid.IntRange(1, 40).Draw(t, "messages") {
			at = at.Add(time.Duration(rapid.IntRange(0, 8_000).Draw(t, "pause")) * time.Millisecond)
			if len(repeat) > 0 && rapid.Bool().Draw(t, "repeat") {
				repeat[rapid.IntRange(0, len(repeat)-1).Draw(t, "which")]()
				continue
			}
			edge := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "edge")
			sent[edge]++
			h := hits(sent[edge], fmt.Sprintf("203.0.113.%d", rapid.IntRange(1, 3).Draw(t, "ip")), int64(rapid.IntRange(1, 8).Draw(t, "n")))
			require.True(t, c.add(edge, at, h))
			repeat = append(repeat, func() { require.False(t, c.add(edge, at, h)) })
			window, _ := limits.WindowAt(at)
			all = append(all, hit{window, h.IPs[0].Key, h.IPs[0].N})
		}
		now := at.Add(time.Duration(rapid.IntRange(0, 25_000).Draw(t, "later")) * time.Millisecond)
		window, weight := limits.WindowAt(now)
		var want []string
		for _, ip := range []string{"203.0.113.1", "203.0.113.2", "203.0.113.3"} {
			var current, previous float64
			for _, h := range all {
				switch {
				case h.ip != ip:
				case h.window == window:
					current += float64(h.n)
				case h.window == window-1:
					previous += float64(h.n)
				}
			}
			if current+previous*weight >= 10 {
				want = append(want, ip)
			}
		}
		require.Equal(t, want, c.lists(now).IPs)
	})
}

func TestClock(t *testing.T) {
	t.Parallel()
	local := begin
	c := &clock{local: func() time.Time { return local }}
	_, ok := c.now()
	require.False(t, ok)
	now := func() time.Time {
		at, ok := c.now()
		require.True(t, ok)
		return at
	}
	c.observe(begin.Add(time.Hour))
	require.Equal(t, begin.Add(time.Hour), now())
	local = local.Add(3 * second)
	require.Equal(t, begin.Add(time.Hour+3*second), now(), "it goes on")
	c.observe(begin.Add(time.Hour + second))
	require.Equal(t, begin.Add(time.Hour+3*second), now(), "a stamp that was seen late says nothing")
	c.observe(begin.Add(time.Hour + 4*second))
	require.Equal(t, begin.Add(time.Hour+4*second), now())
	// The server's clock is set back.
	for range 5 {
		local = local.Add(clockPeriod / 2)
		c.observe(local)
	}
	require.Equal(t, local, now())
}

// BenchmarkLists judges as many addresses as are kept.
func BenchmarkLists(b *testing.B) {
	limits := limited()
	limits.MaxTrackedActors = 50_000
	c := newCounts(limits)
	h := &wire.QoSHits{Source: "s", Seq: 1}
	for i := range 50_000 {
		h.IPs = append(h.IPs, wire.QoSCount{Key: fmt.Sprintf("10.%d.%d.7", i/256, i%256), N: int64(1 + i%11)})
	}
	b.Run("count", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			c.add("a", begin, h)
			h.Seq++
		}
	})
	b.Run("judge", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			c.lists(begin)
		}
	})
}
