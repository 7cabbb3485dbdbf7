// Package pages is an origin for a cache: each page is made of its own address, so
// that a wrong or torn body can be told from the right one.
package pages

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync/atomic"
	"testing"
)

// Origin is a running server. Its methods are safe for concurrent use.
type Origin struct {
	// URL is the address of the server.
	URL string

	asked atomic.Int64
}

// New starts an origin and ends it with the test.
func New(t testing.TB) *Origin {
	t.Helper()
	o := &Origin{}
	server := httptest.NewServer(http.HandlerFunc(o.serve))
	t.Cleanup(server.Close)
	o.URL = server.URL
	return o
}

// Asked returns how many requests have come.
func (o *Origin) Asked() int { return int(o.asked.Load()) }

// Path is the address of a page of so many bytes.
func Path(number, size int) string { return fmt.Sprintf("/%d?size=%d", number, size) }

// Body is the page at an address.
func Body(path string, size int) []byte {
	body := make([]byte, 0, size+sha256.Size)
	for block := 0; len(body) < size; block++ {
		sum := sha256.Sum256(strconv.AppendInt([]byte(path), int64(block), 10))
		body = append(body, sum[:]...)
	}
	return body[:size]
}

func (o *Origin) serve(w http.ResponseWriter, r *http.Request) {
	o.asked.Add(1)
	size, err := strconv.Atoi(r.URL.Query().Get("size"))
	if err != nil || size < 0 {
		http.Error(w, "no size", http.StatusBadRequest)
		return
	}
	w.Header().Set("Cache-Control", "max-age=3600")
	w.Header().Set("Content-Type", "application/octet-stream")
	_, _ = w.Write(Body(r.RequestURI, size))
}
