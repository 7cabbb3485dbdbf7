package pgstore_test

import (
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ccnq/ccnq/pkg/wire"
	"github.com/ccnq/ccnq/services/queue-coordinator/internal/store"
	"github.com/ccnq/ccnq/services/queue-coordinator/internal/store/pgstore"
)

// BenchmarkAdmitRelease admits and releases requests: 256 callers with one
// request for each call, against batches of 100 with two calls in flight. An
// operation is one request, admitted and released.
func BenchmarkAdmitRelease(b *testing.B) {
	for _, groups := range []int{1, 1000} {
		for _, way := range []struct {
			name           string
			batch, callers int
		}{{"single", 1, 256}, {"batched", 100, 2}} {
			b.Run(fmt.Sprintf("groups=%d/%s", groups, way.name), func(b *testing.B) {
				benchmarkAdmitRelease(b, groups, way.batch, way.callers)
			})
		}
	}
}

// BenchmarkLoneAdmit is one caller with one request at a time.
func BenchmarkLoneAdmit(b *testing.B) { benchmarkAdmitRelease(b, 1000, 1, 1) }

// BenchmarkStatus is the status of an edge that lists 10,000 requests, all of
// them there and old enough to be freed if they were not listed.
func BenchmarkStatus(b *testing.B) {
	s := pgstore.New(newPool(b), pgstore.Options{})
	b.Cleanup(s.Close)
	limits := store.Limits{MaxServed: 1, MaxPending: 1, Lease: time.Minute, StaleActive: time.Hour}
	status := store.Status{EdgeID: "edge-1", Epoch: 1, Stale: time.Millisecond}
	var items []store.AdmitItem
	for n := range uint64(10_000) {
		id := benchmarkID(n)
		item := store.Item{ID: id, Group: fmt.Sprintf("198.51.%d.0/24", n), EdgeID: "edge-1"}
		items = append(items, store.AdmitItem{Item: item})
		status.Active = append(status.Active, id)
	}
	s.Admit(b.Context(), limits, items, func(_ int, r store.AdmitResult) {
		if r.Decision != wire.Admitted {
			b.Errorf("admit: %+v", r)
		}
	})
	b.ReportAllocs()
	for b.Loop() {
		if r, err := s.Status(b.Context(), limits, status); err != nil || r.Freed+len(r.Unknown) > 0 {
			b.Fatalf("status: %+v, %v", r, err)
		}
	}
}

func benchmarkAdmitRelease(b *testing.B, groups, batch, callers int) {
	b.Helper()
	s := pgstore.New(newPool(b), pgstore.Options{})
	b.Cleanup(s.Close)
	limits := store.Limits{MaxServed: 256, MaxPending: 256, Lease: 5 * time.Second, StaleActive: time.Minute}
	var next atomic.Uint64
	b.ReportAllocs()
	b.ResetTimer()
	begin := time.Now()
	done := make(chan struct{}, callers)
	for range callers {
		go func() {
			defer func() { done <- struct{}{} }()
			admits, releases := make([]store.AdmitItem, batch), make([]store.Item, batch)
			var reported sync.WaitGroup // a result may come after its call
			for {
				first := next.Add(uint64(batch)) - uint64(batch)
				if first >= uint64(b.N) {
					return
				}
				for i := range batch {
					n := first + uint64(i)
					item := store.Item{
						ID:     benchmarkID(n),
						Group:  fmt.Sprintf("198.51.%d.0/24", n%uint64(groups)),
						EdgeID: "edge-1",
					}
					admits[i], releases[i] = store.AdmitItem{Item: item}, item
				}
				reported.Add(batch)
				s.Admit(b.Context(), limits, admits, func(_ int, r store.AdmitResult) {
					defer reported.Done()
					if r.Decision != wire.Admitted {
						b.Errorf("admit: %+v", r)
					}
				})
				reported.Wait()
				reported.Add(batch)
				s.Release(b.Context(), limits, releases, func(_ int, err error) {
					defer reported.Done()
					if err != nil {
						b.Errorf("release: %v", err)
					}
				})
				reported.Wait()
			}
		}()
	}
	for range callers {
		<-done
	}
	b.ReportMetric(float64(b.N)/time.Since(begin).Seconds(), "op/s")
}

// benchmarkID makes an id as UUIDv7 does: growing, with random bytes behind.
func benchmarkID(n uint64) (id wire.RequestID) {
	binary.BigEndian.PutUint64(id[:8], n+1)
	binary.BigEndian.PutUint64(id[8:], n*0x9e3779b97f4a7c15)
	return id
}
