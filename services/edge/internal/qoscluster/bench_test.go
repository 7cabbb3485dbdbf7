package qoscluster

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/pkg/bus"
	"github.com/ccnq/ccnq/pkg/bus/embed"
	"github.com/ccnq/ccnq/pkg/qos"
	"github.com/ccnq/ccnq/pkg/wire"
)

// natsVariable names a NATS server at which a denylist service counts, with a limit
// of 1,000 to 2,000 hits of an address. Without it the benchmarks start a server, and
// measure until it has acknowledged everything.
const natsVariable = "CCNQ_TEST_NATS_URL"

// node is a limiter that counts with others.
type node struct {
	limiter *qos.Limiter
	heard   chan int // addresses on the lists
}

type noLag struct{}

func (noLag) Lag() time.Duration { return 0 }

// nodes makes limiters with a connection each. counted says that a denylist service
// makes lists.
func nodes(b *testing.B, n int) (all []*node, counted bool) {
	b.Helper()
	url := os.Getenv(natsVariable)
	counted = url != ""
	if !counted {
		nats, err := embed.Start(embed.Options{Host: "127.0.0.1", Port: -1, StoreDir: b.TempDir()})
		require.NoError(b, err)
		b.Cleanup(nats.Stop)
		url = nats.ClientURL()
	}
	for i := range n {
		conn, err := bus.Connect(bus.Options{URL: url, Logger: slog.New(slog.DiscardHandler)})
		require.NoError(b, err)
		b.Cleanup(conn.Close)
		require.Eventually(b, conn.Connected, patience, look)
		if !counted && i == 0 {
			for _, spec := range []bus.StreamSpec{
				{Name: wire.StreamQoSHits, Subjects: []string{wire.SubjectQoSHits}, Memory: true, MaxBytes: 64 << 20},
				{Name: wire.StreamQoSLists, Subjects: []string{wire.SubjectQoSLists}, Memory: true, Direct: true},
			} {
				_, err := bus.EnsureStream(b.Context(), conn, spec)
				require.NoError(b, err)
			}
		}
		store := New(Options{EdgeID: fmt.Sprintf("edge-%d", i), Conn: conn, Logger: slog.New(slog.DiscardHandler)})
		nd := &node{heard: make(chan int, 1024)}
		nd.limiter, err = qos.New(qos.Options{
			MinHostRate: new(0.0), Lag: noLag{}, MaxAge: new(10 * time.Minute),
			Cluster: &qos.ClusterOptions{Store: store, SyncInterval: time.Hour, MaxIPRate: 1},
		})
		require.NoError(b, err)
		require.NoError(b, store.Start(func(l *qos.Blocklists) {
			nd.limiter.SetBlocklists(l)
			nd.heard <- len(l.IPs)
		}))
		b.Cleanup(func() {
			require.NoError(b, nd.limiter.Close())
			store.Stop()
		})
		all = append(all, nd)
	}
	return all, counted
}

// track has addresses from one on pass once.
func (n *node) track(from, addresses int) {
	for i := from; i < from+addresses; i++ {
		n.limiter.Decide(n.limiter.NewActor("site.example", netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})))
	}
}

// BenchmarkSync is one sync of ten edges at once, with 50,000 addresses that are
// spread over the edges, or that each edge has seen. With a denylist service it lasts
// until each edge has new lists in force: each time one more address is above the
// limit.
func BenchmarkSync(b *testing.B) {
	const edges, actors = 10, 50_000
	for name, each := range map[string]int{"spread": actors / edges, "everywhere": actors} {
		b.Run(name, func(b *testing.B) {
			all, counted := nodes(b, edges)
			known := 0
			if counted {
				known = <-all[0].heard // by an earlier benchmark
			}
			for b.Loop() {
				b.StopTimer()
				known++
				victim := netip.AddrFrom4([4]byte{192, 0, 2, byte(known)})
				for i, n := range all {
					for range 300 { // first: of a full batch no further keys are counted
						n.limiter.Decide(n.limiter.NewActor("site.example", victim))
					}
					n.track(i*each%actors, each-1)
				}
				b.StartTimer()
				var syncs sync.WaitGroup
				for _, n := range all {
					syncs.Go(func() { n.limiter.Sync(context.Background()) })
				}
				syncs.Wait()
				for _, n := range all {
					for counted && <-n.heard < known {
						continue
					}
				}
			}
		})
	}
}

// BenchmarkDecideWhileSyncing is what a request notices of a sync of 50,000 addresses:
// the slowest decision of a thousand, and the slowest of all, while there is none and
// while there is one.
func BenchmarkDecideWhileSyncing(b *testing.B) {
	const actors, decisions = 50_000, 100_000
	for _, syncing := range []bool{false, true} {
		b.Run(fmt.Sprintf("syncing=%t", syncing), func(b *testing.B) {
			all, _ := nodes(b, 1)
			n := all[0]
			actor := n.limiter.NewActor("site.example", netip.MustParseAddr("10.0.0.1"))
			took := make([]time.Duration, 0, decisions)
			var slow, slowest []time.Duration
			for b.Loop() {
				n.track(1, actors-1)
				var syncs sync.WaitGroup
				if syncing {
					syncs.Go(func() { n.limiter.Sync(context.Background()) })
				}
				took = took[:0]
				for range decisions {
					begun := time.Now()
					n.limiter.Decide(actor)
					took = append(took, time.Since(begun))
				}
				syncs.Wait()
				slices.Sort(took)
				slow, slowest = append(slow, took[decisions*999/1000]), append(slowest, took[decisions-1])
			}
			slices.Sort(slow)
			slices.Sort(slowest)
			b.ReportMetric(float64(slow[len(slow)/2].Nanoseconds()), "p99.9-ns")
			b.ReportMetric(float64(slowest[len(slowest)/2].Nanoseconds()), "slowest-ns")
		})
	}
}
