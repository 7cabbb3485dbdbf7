package memstore

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/ccnq/ccnq/pkg/wire"
	"github.com/ccnq/ccnq/services/queue-coordinator/internal/store"
)

// BenchmarkAdmitRelease admits and releases one request, over many groups and
// with many others waiting in each.
func BenchmarkAdmitRelease(b *testing.B) {
	const groups = 1000
	limits := store.Limits{MaxServed: 10, MaxPending: 100, Lease: time.Minute, StaleActive: time.Hour}
	s := New(nil, nil)
	item := func(n uint64) store.Item {
		var id wire.RequestID
		binary.BigEndian.PutUint64(id[8:], n+1)
		return store.Item{ID: id, Group: keys[n%groups], EdgeID: "edge-1"}
	}
	var n uint64
	for ; n < 50*groups; n++ { // 10 active and 40 waiting in each
		s.Admit(b.Context(), limits, []store.AdmitItem{{Item: item(n)}}, func(int, store.AdmitResult) {})
	}
	b.ReportAllocs()
	for b.Loop() {
		s.Admit(b.Context(), limits, []store.AdmitItem{{Item: item(n)}}, func(_ int, r store.AdmitResult) {
			if r.Decision != wire.Queued {
				b.Fatalf("admit: %+v", r)
			}
		})
		s.Release(b.Context(), limits, []store.Item{item(n - 50*groups)}, func(int, error) {})
		n++
	}
}

var keys = func() (keys [1000]string) {
	for n := range keys {
		keys[n] = fmt.Sprintf("198.51.%d.0/24", n)
	}
	return keys
}()
