package denylist

import (
	"net/netip"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ccnq/ccnq/pkg/wire"
)

const (
	benchIPs    = 1_000_000
	benchRanges = 100_000
)

// spread returns the n-th of addresses that are spread over the space, every
// fourth of IPv6.
func spread(n int) netip.Addr {
	x := uint32(n) * 2_654_435_761 // wraps on purpose
	if n%4 == 3 {
		return netip.AddrFrom16([16]byte{0x20, 1, 0x0d, 0xb8, byte(x >> 24), byte(x >> 16), 0, 1, 14: byte(x >> 8), 15: byte(x)})
	}
	return netip.AddrFrom4([4]byte{byte(x >> 24), byte(x >> 16), byte(x >> 8), byte(x)})
}

// full returns a table with 1,000,000 addresses and 100,000 ranges of /24 and
// /48.
func full(tb testing.TB) *Table {
	tb.Helper()
	t := NewTable()
	v := t.begin()
	until := time.Now().Add(time.Hour).UnixMicro()
	var changes []change
	for i := range benchIPs {
		addr := spread(i)
		changes = append(changes, change{wire.ScopeIP, netip.PrefixFrom(addr, addr.BitLen()), block{until, int64(i + 1)}})
	}
	for i := range benchRanges {
		addr := spread(i * 11)
		bits := 24
		if addr.Is6() {
			bits = 48
		}
		changes = append(changes, change{wire.ScopeRange, netip.PrefixFrom(addr, bits).Masked(), block{until, int64(i + 1)}})
	}
	t.fill(v, changes)
	t.swap(v, "bench", 0)
	return t
}

// BenchmarkCheck asks for addresses of which half are blocked, from all
// processors.
func BenchmarkCheck(b *testing.B) {
	t := full(b)
	now := time.Now()
	var n, blocked atomic.Int64
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		hits := int64(0)
		for i := int(n.Add(1)) * 7_919; pb.Next(); i++ {
			if _, yes := t.Check(spread(i*7_919%(2*benchIPs)), now); yes {
				hits++
			}
		}
		blocked.Add(hits)
	})
	b.ReportMetric(float64(blocked.Load())/float64(b.N), "blocked/op")
}

// BenchmarkMemory tells the bytes that one address takes.
func BenchmarkMemory(b *testing.B) {
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	for b.Loop() {
		before := heap()
		t := NewTable()
		v := t.begin()
		until := time.Now().Add(time.Hour).UnixMicro()
		for i := range benchIPs {
			addr := spread(i)
			t.fill(v, []change{{wire.ScopeIP, netip.PrefixFrom(addr, addr.BitLen()), block{until, int64(i + 1)}}})
		}
		t.swap(v, "bench", 0)
		b.ReportMetric(float64(heap()-before)/benchIPs, "bytes/ip")
		runtime.KeepAlive(t)
	}
}

// BenchmarkPut changes blocks of a full table one by one, as live messages do.
func BenchmarkPut(b *testing.B) {
	t := full(b)
	until := time.Now().Add(2 * time.Hour)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		addr := spread(i % benchIPs)
		t.put(newChange(wire.ScopeIP, netip.PrefixFrom(addr, addr.BitLen()), wire.Block{BlockedUntil: until, Version: int64(benchIPs + i + 1)}))
	}
}

// BenchmarkPutRange does the same with ranges.
func BenchmarkPutRange(b *testing.B) {
	t := full(b)
	until := time.Now().Add(2 * time.Hour)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		p := netip.PrefixFrom(spread(i%benchIPs), 22).Masked()
		t.put(newChange(wire.ScopeRange, p, wire.Block{BlockedUntil: until, Version: int64(benchIPs + i + 1)}))
	}
}

// BenchmarkMiss is one read of memory that no cache holds and that waits for
// the one before: what a look-up in a large table costs at least. Compare
// BenchmarkCheck with it on a busy machine.
func BenchmarkMiss(b *testing.B) {
	memory := make([]uint64, 8<<20)
	for i := range memory {
		memory[i] = uint64(i) // positive
	}
	x, last := uint64(1), uint64(0)
	for b.Loop() {
		x = x*6_364_136_223_846_793_005 + 1_442_695_040_888_963_407 + last
		last = memory[x>>33%uint64(len(memory))] & 1
	}
}
