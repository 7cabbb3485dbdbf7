package main

import (
	"context"
	"fmt"
	"net/http"

	"github.com/ccnq/ccnq/tests/load/internal/report"
	"github.com/ccnq/ccnq/tests/load/internal/traffic"
)

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
	against, err := newLoad(&c, bare, request, http.StatusOK)
	if err != nil {
		return nil, err
	}
	pairs := make([]report.Pairs, len(ways))
	for i := range pairs {
		measured, err := newLoad(&c, edges[i], request, http.StatusOK)
		if err != nil {
			return nil, err
		}
		if err := b.compare(ctx, &pairs[i], measured, against); err != nil {
			return nil, err
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
