// Package demo is a small origin to try ccnq with: pages that are quick and
// reports that are slow.
package demo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// SlowFor is how long the origin works on a report.
const SlowFor = time.Second

// Rules is a ruleset that queues the slow reports.
const Rules = `[
  [
    { "target": "path", "matchType": "endsWith", "value": ".pdf" }
  ]
]
`

// Origin is a running demo origin.
type Origin struct {
	addr   net.Addr
	server *http.Server
	served chan struct{}
	atOnce atomic.Int64
}

// Start serves on an address, host:port; port 0 takes a free one.
func Start(addr string) (*Origin, error) {
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("demo origin: %w", err)
	}
	o := &Origin{addr: listener.Addr(), served: make(chan struct{})}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", o.page)
	mux.HandleFunc("GET /{name}", o.report)
	o.server = &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() {
		defer close(o.served)
		if err := o.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			panic(err) // the listener is ours and nothing else closes it
		}
	}()
	return o, nil
}

// URL is the origin's base URL.
func (o *Origin) URL() string { return "http://" + o.addr.String() }

// Stop ends the origin; requests under way are cut when ctx ends.
func (o *Origin) Stop(ctx context.Context) {
	if o.server.Shutdown(ctx) != nil {
		_ = o.server.Close()
	}
	<-o.served
}

func (o *Origin) page(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	fmt.Fprintln(w, `<!doctype html><title>Demo origin</title><p>A quick page. <a href="/report.pdf">A slow report</a>.`)
}

func (o *Origin) report(w http.ResponseWriter, r *http.Request) {
	now := o.atOnce.Add(1)
	defer o.atOnce.Add(-1)
	select {
	case <-time.After(SlowFor):
	case <-r.Context().Done():
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	fmt.Fprintf(w, "A slow report. When it began, the origin had %d at once.\n", now)
}
