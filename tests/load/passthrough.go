package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/ccnq/ccnq/tests/load/internal/report"
	"github.com/ccnq/ccnq/tests/load/internal/traffic"
)

const connections = 64

// passThrough compares an edge on requests that no rule concerns with a bare
// ReverseProxy: as a plain proxy, and with the queue on.
func passThrough(ctx context.Context, b *bench) (_ []report.Row, err error) {
	var c closers
	defer c.close(&err)
	upstream, err := startOrigin(&c, writePage)
	if err != nil {
		return nil, err
	}
	bare, err := b.baseline(&c, "proxy", upstream)
	if err != nil {
		return nil, err
	}
	k, err := b.startCoordinator(&c, nil)
	if err != nil {
		return nil, err
	}
	queue, err := b.queue(k.nats, nothing)
	if err != nil {
		return nil, err
	}
	ways := []struct {
		name     string
		settings settings
	}{{"plain proxy", nil}, {"queue on, out of scope", queue}}
	edges := make([]*edge, len(ways))
	for i, way := range ways {
		if edges[i], err = b.startEdge(ctx, &c, upstream, way.settings); err != nil {
			return nil, err
		}
	}
	request := traffic.Request("/articles/2024/a-page?page=2", "203.0.113.7")
	send := func(e *edge) (float64, error) { return b.cpuPerRequest(ctx, e, request, http.StatusOK) }
	pairs := make([]report.Pairs, len(ways))
	for round := range b.rounds + 1 {
		against, err := send(bare)
		if err != nil {
			return nil, err
		}
		for i := range edges {
			measured, err := send(edges[i])
			if err != nil {
				return nil, err
			}
			if round > 0 { // the first warms up
				pairs[i].Add(measured, against)
			}
		}
	}
	var out []report.Row
	for i, p := range pairs {
		out = append(out, report.Row{
			What:     fmt.Sprintf("pass-through, %s, %d connections, CPU per request", ways[i].name, connections),
			Measured: micros(p.Measured()),
			Against:  micros(p.Against()) + " (httputil.ReverseProxy)",
			Ratio:    fmt.Sprintf("%.2f×", p.Ratio()),
			Reach:    "≤ 1.05×",
			Met:      p.Ratio() <= 1.05,
		})
	}
	return out, nil
}

// cpuPerRequest sends requests and returns the CPU time, in nanoseconds, that
// the process used for each.
func (b *bench) cpuPerRequest(ctx context.Context, e *edge, request []byte, status int) (float64, error) {
	before, err := e.CPU()
	if err != nil {
		return 0, err
	}
	if err := traffic.Flood(ctx, e.addr, request, connections, b.requests, status); err != nil {
		return 0, err
	}
	after, err := e.CPU()
	return float64(after-before) / float64(b.requests), err
}

// micros writes nanoseconds.
func micros(ns float64) string {
	return fmt.Sprintf("%.1f µs", ns/float64(time.Microsecond))
}
