package qos

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// heap is the bytes in use.
func heap() int {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int(stats.HeapAlloc)
}

// nthAddress spreads numbers over the IPv4 addresses; no two share a /24.
func nthAddress(n int) netip.Addr {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], uint32(n)<<8|uint32(n)&0xff)
	return netip.AddrFrom4(b)
}

// TestMemoryIsBounded has no t.Parallel: it measures the process.
func TestMemoryIsBounded(t *testing.T) {
	const size = 500
	hosts := make([]string, 1<<16)
	for n := range hosts {
		hosts[n] = fmt.Sprintf("host%d.example", n)
	}
	for _, compat := range []bool{false, true} {
		addresses := distinctAddresses
		if compat {
			addresses /= 100 // the tables are the same; keys are texts
		}
		l, w, _ := newMember(t, Options{
			MinIPRate: 10, MaxIPRate: 20, MinSubnetRate: 10, MaxSubnetRate: 20, MaxHostRatio: 0.1,
			HistorySize: new(size), Compat: compat,
		}, ClusterOptions{MaxTrackedActors: size, MaxSubnetRate: 1, MinSubnetUniqueIPs: new(2.0)})
		fill := func(from, to int) {
			for n := from; n < to; n++ {
				w.ms.Add(int64(n & 1))
				l.Decide(l.NewActor(hosts[n%len(hosts)], nthAddress(n)))
			}
		}
		fill(0, 2*size)
		full := heap()
		fill(2*size, addresses)
		require.Less(t, heap()-full, 256<<10, "compat %v: bytes for %d addresses after %d", compat, addresses, 2*size)
		for _, table := range []*table{l.hosts, l.ips, l.subnets} {
			require.Len(t, table.keys(), size)
		}
		for _, tally := range []*tally{l.hosts.tally, l.ips.tally, l.subnets.tally} {
			require.EqualValues(t, size, tally.used.Load())
		}
	}
}

// TestTallyIsBounded: with new subnets in every interval, those that are kept for their
// addresses alone do not add up.
func TestTallyIsBounded(t *testing.T) {
	t.Parallel()
	const limit = 640
	tally := newTally(limit, 256)
	for n := range 100 * limit {
		k := addrKey(nthAddress(n))
		tally.add(&k, 1, 0)
		if n%limit == limit-1 {
			var out taken
			tally.take(&out, false)
			require.Len(t, out.hits, limit)
		}
	}
	kept := 0
	for i := range tally.shards {
		kept += len(tally.shards[i].counts)
	}
	require.LessOrEqual(t, kept, 2*limit)
}

// BenchmarkMemoryPerKey fills histories with 40 requests a second over 10 s.
func BenchmarkMemoryPerKey(b *testing.B) {
	const keys, perKey = 2_000, 400
	for _, kind := range []string{"host", "ip", "subnet", "subnet with 128 addresses"} {
		b.Run(kind, func(b *testing.B) {
			options := Options{HistorySize: new(keys), MaxAge: new(10 * time.Second)}
			switch kind {
			case "host":
				options.MinHostRate, options.MaxHostRate = new(41.0), new(41.0)
			case "ip":
				options = unlimitedHosts(options)
				options.MinIPRate, options.MaxIPRate = 41, 41
			default:
				options = unlimitedHosts(options)
				options.MinSubnetRate, options.MaxSubnetRate = 41, 41
			}
			names := make([]string, keys)
			for n := range names {
				names[n] = "host-" + nthAddress(n).String() + ".example"
			}
			for b.Loop() {
				before := heap()
				l, w := newLimiter(b, options)
				for i := range perKey {
					w.ms.Store(int64(i) * 25)
					for n := range keys {
						addr := nthAddress(n)
						if kind == "subnet with 128 addresses" {
							b := addr.As4()
							b[3] = byte(i % 128)
							addr = netip.AddrFrom4(b)
						}
						if l.Decide(l.NewActor(names[n], addr)) != Pass {
							b.Fatal("refused")
						}
					}
				}
				b.ReportMetric(float64(heap()-before)/keys, "B/key")
				runtime.KeepAlive(l)
			}
		})
	}
}
