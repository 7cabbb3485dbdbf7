package outbox

import (
	"context"
	"log/slog"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// BenchmarkRecord records refused requests of 1,000 addresses from many
// goroutines while intervals are cut, written and sent as in service.
func BenchmarkRecord(b *testing.B) {
	addrs, groups := make([]netip.Addr, 1_000), make([]netip.Prefix, 1_000)
	for i := range addrs {
		addrs[i], groups[i] = address(i * 7)
	}
	o := New(Options{
		EdgeID: "bench", Dir: b.TempDir(), Registerer: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler),
		Publish: func(context.Context, string, []byte, string) error { return nil },
	})
	o.Start()
	defer o.Stop(context.Background())
	var n atomic.Int64
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		at := time.Now()
		for i := int(n.Add(1)) * 131; pb.Next(); i++ {
			o.Record(QueueFull, addrs[i%1_000], groups[i%1_000], "/some/path/of/a/page", at)
		}
	})
}

// BenchmarkRecordNew records each address for the first time in its interval.
func BenchmarkRecordNew(b *testing.B) {
	c := newCollector(1 << 40)
	at := time.Now()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		addr, group := address(i % maxDenials)
		c.record(QueueFull, addr, group, "/some/path/of/a/page", at)
		if i%maxDenials == maxDenials-1 {
			c.cut(func(*entry, []byte) {})
		}
	}
}

// BenchmarkFlush cuts, encodes and writes an interval of 100 addresses.
func BenchmarkFlush(b *testing.B) {
	o := New(Options{EdgeID: "bench", Dir: b.TempDir(), Registerer: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler)})
	defer o.Stop(context.Background())
	b.ReportAllocs()
	for b.Loop() {
		for i := range 100 {
			note(o.denials, QueueFull, i, "/some/path/of/a/page", noon)
		}
		o.flush(false)
		o.file.ack(1 << 60)
	}
}
