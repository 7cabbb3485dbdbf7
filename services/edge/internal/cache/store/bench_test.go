package store

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

func BenchmarkGet(b *testing.B) {
	for _, size := range []int{1 << 10, 64 << 10} {
		for _, memory := range []int64{64 << 20, 0} {
			from := "tier"
			if memory == 0 {
				from = "bbolt"
			}
			b.Run(fmt.Sprintf("%s/%dKiB", from, size>>10), func(b *testing.B) {
				ts := open(b, b.TempDir(), func(o *Options[string]) { o.MemoryBytes = memory })
				const entries = 100
				for n := range entries {
					require.True(b, ts.add(n, "head", bodyOf(n, 0, size)))
				}
				ts.flush(b)
				var keys [entries]Key
				for n := range keys {
					keys[n] = keyOf(n)
				}
				b.SetBytes(int64(size))
				b.ReportAllocs()
				b.RunParallel(func(pb *testing.PB) {
					for n := 0; pb.Next(); n++ {
						it, ok := ts.Get(keys[n%entries])
						if !ok || len(it.Body()) != size {
							b.Error("gone")
							return
						}
						it.Close()
					}
				})
			})
		}
	}
	b.Run("large/10MiB", func(b *testing.B) {
		ts := open(b, b.TempDir(), func(o *Options[string]) { o.MaxBytes = 128 << 20 })
		require.True(b, ts.add(1, "head", bodyOf(1, 0, 10<<20)))
		ts.cold(b)
		b.SetBytes(10 << 20)
		b.ReportAllocs()
		for b.Loop() {
			it, ok := ts.Get(keyOf(1))
			if !ok {
				b.Fatal("gone")
			}
			if _, err := it.WriteTo(io.Discard); err != nil {
				b.Fatal(err)
			}
			it.Close()
		}
	})
}

// BenchmarkWrite stores entries as fast as they are taken, over a budget that
// is full, and tells how many a second reach the disk.
func BenchmarkWrite(b *testing.B) {
	for _, size := range []int{1 << 10, 16 << 10} {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			ts := open(b, b.TempDir(), func(o *Options[string]) { o.MaxBytes = 256 << 20 })
			body := bodyOf(1, 0, size)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				for !ts.add(n, "a head of about a hundred bytes", body) {
					runtime.Gosched() // the queue is full: wait, as no client would
				}
				n++
			}
			ts.flush(b)
			b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "entries/s")
			b.ReportMetric(ts.metric(b, "ccnq_cache_file_bytes")/float64(ts.opts.MaxBytes), "file/budget")
		})
	}
}

// BenchmarkIndex tells the memory of many entries and the time to open them.
func BenchmarkIndex(b *testing.B) {
	for _, entries := range []int{100_000, 1_000_000} {
		b.Run(strconv.Itoa(entries), func(b *testing.B) {
			ts := open(b, b.TempDir(), func(o *Options[string]) { o.MaxBytes = 4 << 30; o.MemoryBytes = 0 })
			body := bodyOf(1, 0, 200)
			for n := range entries {
				for !ts.add(n, "a head of about a hundred bytes", body) {
					runtime.Gosched()
				}
			}
			ts.stop()
			ts.Store = nil
			heap := func() uint64 {
				var m runtime.MemStats
				runtime.GC()
				runtime.GC()
				runtime.ReadMemStats(&m)
				return m.HeapAlloc
			}
			for b.Loop() {
				b.StopTimer()
				before := heap()
				b.StartTimer()
				ts.start(b)
				b.StopTimer()
				require.Equal(b, entries, ts.Len())
				b.ReportMetric(float64(heap()-before)/float64(entries), "B/entry")
				ts.Stop(context.Background())
				b.StartTimer()
			}
		})
	}
}
