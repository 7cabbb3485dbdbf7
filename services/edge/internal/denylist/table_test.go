package denylist

import (
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ccnq/ccnq/pkg/wire"
)

var nine = time.Date(2026, 3, 4, 9, 0, 0, 0, time.UTC)

// target reads an address or a range.
func target(t testing.TB, text string) (wire.Scope, netip.Prefix) {
	t.Helper()
	scope, p, err := wire.ParseTargetText(text)
	require.NoError(t, err)
	return scope, p
}

func (t *Table) set(tb testing.TB, text string, until time.Time, version int64) bool {
	tb.Helper()
	scope, p := target(tb, text)
	return t.put(newChange(scope, p, wire.Block{BlockedUntil: until, Version: version}))
}

func blocked(t testing.TB, table *Table, addr string, now, want time.Time) {
	t.Helper()
	until, yes := table.Check(netip.MustParseAddr(addr), now)
	require.Equal(t, !want.IsZero(), yes, addr)
	if yes {
		require.True(t, until.Equal(want), "%s until %s, not %s", addr, until, want)
	}
}

var free time.Time

func TestF19_TheLongestBlockDecides(t *testing.T) {
	t.Parallel()
	const addr, group = "198.51.100.7", "198.51.100.0/24"
	table := NewTable()
	table.set(t, addr, nine.Add(3*time.Hour), 1)
	table.set(t, group, nine.Add(2*time.Hour), 2)
	blocked(t, table, addr, nine, nine.Add(3*time.Hour))
	blocked(t, table, "198.51.100.8", nine, nine.Add(2*time.Hour))
	table.set(t, group, nine, 3) // lifted
	blocked(t, table, addr, nine, nine.Add(3*time.Hour))
	blocked(t, table, "198.51.100.8", nine, free)

	// The other way around: a long block of a wide range, shorter ones within.
	table.set(t, "198.51.0.0/16", nine.Add(9*time.Hour), 4)
	table.set(t, group, nine.Add(4*time.Hour), 5)
	blocked(t, table, addr, nine, nine.Add(9*time.Hour))
	blocked(t, table, addr, nine.Add(8*time.Hour), nine.Add(9*time.Hour))
	scope, p := target(t, "198.51.0.0/16")
	table.remove(scope, p)
	blocked(t, table, addr, nine, nine.Add(4*time.Hour))
	blocked(t, table, addr, nine.Add(4*time.Hour), free)
}

func TestBlocksEndByTheClock(t *testing.T) {
	t.Parallel()
	table := NewTable()
	end := nine.Add(time.Hour)
	table.set(t, "2001:db8::1", end, 1)
	blocked(t, table, "2001:db8::1", end.Add(-time.Microsecond), end)
	blocked(t, table, "2001:db8::1", end, free)
	blocked(t, table, "2001:db8::2", nine, free)
	table.set(t, "192.0.2.1", time.Time{}, 2) // an end before all time is no block, and no harm
	blocked(t, table, "192.0.2.1", nine, free)
	far := time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)
	table.set(t, "192.0.2.1", far, 3)
	blocked(t, table, "192.0.2.1", nine, far)
	_, yes := table.Check(netip.Addr{}, nine)
	require.False(t, yes)
}

func TestFamiliesAndLengthsAreKeptApart(t *testing.T) {
	t.Parallel()
	table := NewTable()
	end := nine.Add(time.Hour)
	table.set(t, "::/0", end, 1)
	blocked(t, table, "2001:db8::1", nine, end)
	blocked(t, table, "::1", nine, end)
	blocked(t, table, "192.0.2.1", nine, free)
	table.set(t, "0.0.0.0/0", end.Add(1*time.Hour), 2)
	blocked(t, table, "192.0.2.1", nine, end.Add(1*time.Hour))
	// A range of one address is not the block of that address.
	one := netip.MustParsePrefix("192.0.2.1/32")
	table.put(newChange(wire.ScopeRange, one, wire.Block{BlockedUntil: end.Add(3 * time.Hour), Version: 3}))
	table.set(t, "192.0.2.1", end.Add(2*time.Hour), 2)
	blocked(t, table, "192.0.2.1", nine, end.Add(3*time.Hour))
	table.remove(wire.ScopeRange, one)
	blocked(t, table, "192.0.2.1", nine, end.Add(2*time.Hour))
}

func TestOlderChangesAreIgnored(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"192.0.2.1", "192.0.2.0/24"} {
		table := NewTable()
		require.True(t, table.set(t, text, nine.Add(time.Hour), 5))
		require.False(t, table.set(t, text, nine.Add(2*time.Hour), 5), "the same")
		require.False(t, table.set(t, text, nine.Add(2*time.Hour), 4), "older")
		blocked(t, table, "192.0.2.1", nine, nine.Add(time.Hour))
		require.True(t, table.set(t, text, nine, 6), "lifted")
		require.False(t, table.set(t, text, nine.Add(time.Hour), 5), "late")
		blocked(t, table, "192.0.2.1", nine, free)
	}
}

func TestSweep(t *testing.T) {
	t.Parallel()
	table := NewTable()
	for i := range 3_000 {
		table.set(t, fmt.Sprintf("10.0.%d.%d", i/250, i%250), nine.Add(time.Duration(i%3)*time.Hour), int64(i+1))
		table.set(t, fmt.Sprintf("2001:db8:%x::/%d", i, 48+i%2), nine.Add(time.Duration(i%3)*time.Hour), int64(i+1))
	}
	held := func() (ips, ranges int) {
		s := table.state(time.UnixMicro(0))
		return s.ips.most, s.ranges.most
	}
	slots := func() int { return len(table.now.Load().families[0].ips.now.Load().slots) }
	before := slots()
	table.sweep(nine.Add(keepEnded))
	ips, ranges := held()
	require.Equal(t, []int{3_000, 3_000}, []int{ips, ranges}, "not yet")
	table.sweep(nine.Add(keepEnded + time.Minute))
	ips, ranges = held()
	require.Equal(t, []int{2_000, 2_000}, []int{ips, ranges})
	table.sweep(nine.Add(time.Hour + keepEnded + time.Minute))
	blocked(t, table, "10.0.0.2", nine, nine.Add(2*time.Hour))
	blocked(t, table, "10.0.0.1", nine, free)
	require.True(t, table.set(t, "10.0.0.1", nine.Add(time.Hour), 1), "what was swept may come again")
	blocked(t, table, "10.0.0.1", nine, nine.Add(time.Hour))
	table.sweep(nine.Add(24 * time.Hour))
	ips, ranges = held()
	require.Equal(t, []int{0, 0}, []int{ips, ranges})
	require.Nil(t, table.now.Load().families[0].ips.now.Load(), "memory is given back")
	require.Empty(t, *table.now.Load().families[1].lengths.Load())
	for i := range 20 {
		table.set(t, fmt.Sprintf("10.0.0.%d", i), nine.Add(time.Hour), int64(i+10_000))
	}
	require.Less(t, slots(), before/10)
}

func TestBuiltAside(t *testing.T) {
	t.Parallel()
	end := nine.Add(time.Hour)
	table := NewTable()
	table.set(t, "192.0.2.1", end, 1)
	table.set(t, "192.0.2.0/28", end, 2)
	v := table.begin()
	table.set(t, "192.0.2.2", end, 12) // a live change while it is built
	scope, p := target(t, "192.0.2.3")
	table.fill(v, []change{newChange(scope, p, wire.Block{BlockedUntil: end, Version: 11})})
	blocked(t, table, "192.0.2.3", nine, end) // by the range
	table.swap(v, "g", 20)
	blocked(t, table, "192.0.2.1", nine, free)
	blocked(t, table, "192.0.2.2", nine, end)
	blocked(t, table, "192.0.2.3", nine, end)
	s := table.state(nine)
	require.Equal(t, state{generation: "g", version: 20, ips: count{2, 2}}, s)

	v = table.begin()
	table.fill(v, []change{newChange(scope, p, wire.Block{BlockedUntil: end.Add(1), Version: 3})})
	scope, p = target(t, "2001:db8::/32")
	table.fill(v, []change{newChange(scope, p, wire.Block{BlockedUntil: end, Version: 21})})
	table.merge(v)
	blocked(t, table, "192.0.2.2", nine, end)
	blocked(t, table, "192.0.2.3", nine, end)
	blocked(t, table, "2001:db8::5", nine, end)
	require.Equal(t, state{generation: "g", version: 20, ips: count{2, 2}, ranges: count{1, 1}}, table.state(nine))
}

func TestEndsAreCountedToTheMinute(t *testing.T) {
	t.Parallel()
	e := ends{}
	at := nine.UnixMicro()
	e.add(at-minute, 1)
	e.add(at+10, 2)
	e.add(at+minute, 4)
	require.Equal(t, count{4, 6}, e.inForce(at))
	require.Equal(t, 1, e.endedBefore(at))
	require.True(t, count{4, 6}.fits(5))
	require.False(t, count{4, 6}.fits(7))
	e.change(block{until: at - minute}, true, block{until: at + minute})
	require.Equal(t, count{5, 7}, e.inForce(at))
	require.Zero(t, e.endedBefore(at))
	require.Len(t, e, 2)
}

// oracle is the table as one would write it without a thought of speed.
type oracle map[string]wire.Block // by scope and target

func (o oracle) check(addr netip.Addr, now time.Time) (until time.Time) {
	for name, b := range o {
		_, p, err := wire.ParseBlockKey(name)
		if err != nil {
			panic(err)
		}
		if p.Contains(addr) && b.BlockedUntil.After(now) && b.BlockedUntil.After(until) {
			until = b.BlockedUntil
		}
	}
	return until
}

// TestTableIsTheOracle makes changes in any order and asks after each.
func TestTableIsTheOracle(t *testing.T) {
	t.Parallel()
	addr := rapid.Custom(func(t *rapid.T) netip.Addr {
		last := byte(rapid.IntRange(0, 7).Draw(t, "last"))
		third := byte(rapid.IntRange(0, 3).Draw(t, "third"))
		if rapid.Bool().Draw(t, "v6") {
			return netip.AddrFrom16([16]byte{0: 0x20, 1: 0x01, 7: third, 15: last})
		}
		return netip.AddrFrom4([4]byte{10, third, 0, last})
	})
	rapid.Check(t, func(t *rapid.T) {
		table, model, now := NewTable(), oracle{}, nine
		for range rapid.IntRange(1, 40).Draw(t, "changes") {
			a := addr.Draw(t, "addr")
			scope, p := wire.ScopeIP, netip.PrefixFrom(a, a.BitLen())
			if rapid.Bool().Draw(t, "range") {
				scope = wire.ScopeRange
				p = netip.PrefixFrom(a, rapid.IntRange(0, a.BitLen()).Draw(t, "bits")).Masked()
			}
			name := wire.BlockKey(scope, wire.TargetText(scope, p))
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0:
				table.remove(scope, p)
				delete(model, name)
			case 1:
				now = now.Add(time.Duration(rapid.IntRange(0, 100).Draw(t, "later")) * time.Minute)
				table.sweep(now)
				for n, b := range model {
					if b.BlockedUntil.UnixMicro()/minute < now.Add(-keepEnded).UnixMicro()/minute {
						delete(model, n)
					}
				}
			default:
				b := wire.Block{
					BlockedUntil: nine.Add(time.Duration(rapid.IntRange(-100, 600).Draw(t, "until")) * time.Minute),
					Version:      int64(rapid.IntRange(1, 50).Draw(t, "version")),
				}
				table.put(newChange(scope, p, b))
				if old, known := model[name]; !known || old.Version < b.Version {
					model[name] = b
				}
			}
			asked := addr.Draw(t, "asked")
			until, yes := table.Check(asked, now)
			want := model.check(asked, now)
			if yes != !want.IsZero() || yes && !until.Equal(want) {
				t.Fatalf("%s until %v (%v), not %v", asked, until, yes, want)
			}
		}
		inForce := 0
		for _, b := range model {
			if b.BlockedUntil.After(now) {
				inForce++
			}
		}
		s := table.state(now)
		if !(count{s.ips.least + s.ranges.least, s.ips.most + s.ranges.most}).fits(inForce) {
			t.Fatalf("%d in force, not %+v", inForce, s)
		}
	})
}

// TestReadersSeeWholeBlocks reads while everything is changed at once. Each
// address has one of two ends; any other would be a torn one.
func TestReadersSeeWholeBlocks(t *testing.T) {
	t.Parallel()
	table := NewTable()
	const n = 300
	always, ends := netip.MustParseAddr("10.9.9.9"), [2]time.Time{nine.Add(time.Hour), nine.Add(2 * time.Hour)}
	table.set(t, always.String(), ends[0], 1)
	var stop atomic.Bool
	var readers sync.WaitGroup
	for range 3 {
		readers.Go(func() {
			for i := 0; !stop.Load(); i++ {
				if _, yes := table.Check(always, nine); !yes {
					t.Error("a block that nobody touches is gone")
					return
				}
				addr := netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})
				if until, yes := table.Check(addr, nine); yes && !until.Equal(ends[0]) && !until.Equal(ends[1]) {
					t.Errorf("%s until %s", addr, until)
					return
				}
			}
		})
	}
	version := int64(1)
	for round := range 6 {
		v := table.begin()
		scope, p := target(t, always.String())
		table.fill(v, []change{newChange(scope, p, wire.Block{BlockedUntil: ends[0], Version: 1})})
		for i := range n {
			version++
			table.set(t, fmt.Sprintf("10.0.%d.%d", i>>8, i&255), ends[i%2], version)
			version++
			table.set(t, fmt.Sprintf("10.0.%d.0/%d", i&1, 24+i%8), ends[round%2], version)
		}
		if round%2 == 0 {
			table.swap(v, "g", version)
		} else {
			table.merge(v)
		}
		table.sweep(nine)
		scope, p = target(t, fmt.Sprintf("10.0.0.%d", round))
		table.remove(scope, p)
	}
	stop.Store(true)
	readers.Wait()
}
