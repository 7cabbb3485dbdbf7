package batch

import (
	"sync/atomic"
	"testing"
)

// BenchmarkLone is the cost that the batcher adds to an item that nobody waits
// behind.
func BenchmarkLone(b *testing.B) {
	b.ReportAllocs()
	done := make(chan struct{}, 1)
	batcher := New(Options[int]{
		Run:      func([]int) { done <- struct{}{} },
		Drop:     func(int, error) {},
		MaxBatch: 512, MaxInFlight: 2, MaxWaiting: 16_384,
	})
	deadline := far()
	for b.Loop() {
		batcher.Submit(1, deadline)
		<-done
	}
	batcher.Stop()
}

// BenchmarkBusy is the cost of an item while more come than calls are made.
func BenchmarkBusy(b *testing.B) {
	b.ReportAllocs()
	var items, batches atomic.Int64
	batcher := New(Options[int]{
		Run: func(batch []int) {
			items.Add(int64(len(batch)))
			batches.Add(1)
		},
		Drop:     func(int, error) {},
		MaxBatch: 512, MaxInFlight: 2, MaxWaiting: 1 << 20,
	})
	deadline := far()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			batcher.Submit(1, deadline)
		}
	})
	batcher.Stop()
	b.ReportMetric(float64(items.Load())/float64(batches.Load()), "items/batch")
}
