package gateway

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/ccnq/ccnq/services/edge/internal/admission"
)

// BenchmarkRefuse is what the gateway itself costs for a refused request.
func BenchmarkRefuse(b *testing.B) {
	bundle := setup(b, nil)
	bundle.gateway.stages = []stage{
		{"identity", bundle.gateway.identify},
		{"refuse", func(*exchange) Verdict {
			return refuse(Reason(admission.QueueFull), http.StatusTooManyRequests, 5*time.Second)
		}},
	}
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("Accept", "text/html,application/xhtml+xml,*/*;q=0.8")
	w := &discard{header: http.Header{}}
	b.ReportAllocs()
	for b.Loop() {
		clear(w.header)
		bundle.gateway.ServeHTTP(w, r)
	}
}

// discard is a response that nobody reads.
type discard struct{ header http.Header }

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(p []byte) (int, error) { return len(p), nil }
func (d *discard) WriteHeader(int)             {}
