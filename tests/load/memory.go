package main

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"syscall"

	"github.com/ccnq/ccnq/tests/load/internal/report"
	"github.com/ccnq/ccnq/tests/load/internal/traffic"
)

// spareFiles is how many file descriptors are left for all but the requests.
const spareFiles = 200

// memory compares the resident memory of an edge that has many requests in
// flight, each of them admitted by the queue, with a bare ReverseProxy.
func memory(ctx context.Context, b *bench) (_ []report.Row, err error) {
	var c closers
	defer c.close(&err)
	n, err := affordable(b.inFlight)
	if err != nil {
		return nil, err
	}
	k, err := b.startCoordinator(&c, settings{"CCNQ_QUEUE_MAX_SERVED_PER_GROUP": "1000"})
	if err != nil {
		return nil, err
	}
	queue, err := b.queue(k.nats, everything)
	if err != nil {
		return nil, err
	}
	var pairs report.Pairs
	for range b.memoryRounds {
		measured, err := b.held(ctx, n, func(c *closers, upstream string) (*edge, error) {
			return b.startEdge(ctx, c, upstream, queue)
		})
		if err != nil {
			return nil, err
		}
		against, err := b.held(ctx, n, func(c *closers, upstream string) (*edge, error) {
			return b.baseline(c, "proxy", upstream)
		})
		if err != nil {
			return nil, err
		}
		pairs.Add(measured, against)
	}
	return []report.Row{{
		What:     fmt.Sprintf("memory with %d requests in flight, HTTP/1.1", n),
		Measured: fmt.Sprintf("%.0f MiB resident", pairs.Measured()/(1<<20)),
		Against:  fmt.Sprintf("%.0f MiB (httputil.ReverseProxy)", pairs.Against()/(1<<20)),
		Ratio:    fmt.Sprintf("%.2f×", pairs.Ratio()),
		Reach:    "≤ 1.3×",
		Met:      pairs.Ratio() <= 1.3,
	}}, nil
}

// held starts a proxy in front of an origin that answers nobody, brings n
// requests there and returns the resident memory of the proxy in bytes.
func (b *bench) held(ctx context.Context, n int, start func(*closers, string) (*edge, error)) (_ float64, err error) {
	var c closers
	defer c.close(&err)
	var arrived atomic.Int64
	upstream, err := startOrigin(&c, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/warm-up" {
			writePage(w, r)
			return
		}
		arrived.Add(1)
		<-r.Context().Done()
	})
	if err != nil {
		return 0, err
	}
	proxy, err := start(&c, upstream)
	if err != nil {
		return 0, err
	}
	warmUp := traffic.Request("/warm-up", "203.0.113.7")
	crowd, err := traffic.Gather(proxy.addr, connections)
	if err != nil {
		return 0, err
	}
	err = crowd.Flood(ctx, warmUp, b.requests, http.StatusOK)
	crowd.Close()
	if err != nil {
		return 0, err
	}
	for i := range n {
		conn, err := traffic.Dial(proxy.addr)
		if err != nil {
			return 0, err
		}
		c.add(func() error { conn.Close(); return nil })
		if err := conn.Send(traffic.Request("/held", fmt.Sprintf("10.%d.%d.1", i>>8, i&0xff))); err != nil {
			return 0, err
		}
	}
	err = proxy.Await(ctx, "all requests are at the origin", func() bool { return arrived.Load() == int64(n) })
	if err != nil {
		return 0, err
	}
	bytes, err := proxy.Memory()
	return float64(bytes), err
}

// affordable returns how many requests the limit on open files allows, n at
// most. A proxy has two connections for each request, and so has this program,
// which is client and origin.
func affordable(n int) (int, error) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0, fmt.Errorf("limit on open files: %w", err)
	}
	if limit.Cur < 2*spareFiles {
		return 0, fmt.Errorf("only %d files may be open", limit.Cur)
	}
	return int(min(uint64(n), (limit.Cur-spareFiles)/2)), nil
}
