package main

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/ccnq/ccnq/pkg/wire"
	"github.com/ccnq/ccnq/tests/load/internal/report"
	"github.com/ccnq/ccnq/tests/load/internal/traffic"
)

// maxAsks is how often an edge may ask about one group in a second.
const maxAsks = 20

// flood sends requests of a group whose only place is taken, and compares what
// a refusal costs the edge with a handler that only writes 429. It also counts
// the edge's questions, on their way to the coordinator.
func flood(ctx context.Context, b *bench) (_ []report.Row, err error) {
	var c closers
	defer c.close(&err)
	o := &turns{arrived: make(chan arrival)}
	upstream, err := startOrigin(&c, o.serve)
	if err != nil {
		return nil, err
	}
	least, err := b.baseline(&c, "refuse")
	if err != nil {
		return nil, err
	}
	k, err := b.startCoordinator(&c, settings{
		"CCNQ_QUEUE_MAX_SERVED_PER_GROUP": "1", "CCNQ_QUEUE_MAX_PENDING_PER_GROUP": "0",
	})
	if err != nil {
		return nil, err
	}
	queue, err := b.queue(k.nats, everything)
	if err != nil {
		return nil, err
	}
	e, err := b.startEdge(ctx, &c, upstream, queue)
	if err != nil {
		return nil, err
	}
	asks, err := countAsks(&c, k.nats)
	if err != nil {
		return nil, err
	}
	request := traffic.Request("/", "203.0.113.7")
	holder, err := traffic.Dial(e.addr)
	if err != nil {
		return nil, err
	}
	defer holder.Close()
	if err := holder.Send(request); err != nil {
		return nil, err
	}
	if _, err := o.next(ctx); err != nil {
		return nil, err
	}
	measured, err := newLoad(&c, e, request, http.StatusTooManyRequests)
	if err != nil {
		return nil, err
	}
	against, err := newLoad(&c, least, request, http.StatusTooManyRequests)
	if err != nil {
		return nil, err
	}
	var cost report.Pairs
	if err := b.compare(ctx, &cost, measured, against); err != nil {
		return nil, err
	}
	// The pauses of the comparison would make the questions look rarer.
	before, began := asks.Load(), time.Now()
	for range b.rounds {
		if err := measured.crowd.Flood(ctx, request, b.requests, measured.status); err != nil {
			return nil, err
		}
	}
	rate := float64(asks.Load()-before) / time.Since(began).Seconds()
	return []report.Row{{
		What:     fmt.Sprintf("flood on one full group, %d connections, CPU per refusal at the edge", connections),
		Measured: micros(cost.Measured()),
		Against:  micros(cost.Against()) + " (a handler that only writes 429)",
		Ratio:    fmt.Sprintf("%.2f×", cost.Ratio()),
		Reach:    "≤ 1.3×",
		Met:      cost.Ratio() <= 1.3,
	}, {
		What:     "the same, questions to the coordinator, per second",
		Measured: fmt.Sprintf("%.1f", rate),
		Against:  "–",
		Ratio:    "–",
		Reach:    fmt.Sprintf("≤ %d", maxAsks),
		Met:      rate <= maxAsks,
	}}, nil
}

// countAsks counts the admits that pass through a NATS server.
func countAsks(c *closers, url string) (*atomic.Int64, error) {
	conn, err := nats.Connect(url)
	if err != nil {
		return nil, err
	}
	c.add(func() error { conn.Close(); return nil })
	var n atomic.Int64
	if _, err := conn.Subscribe(wire.SubjectAdmit, func(*nats.Msg) { n.Add(1) }); err != nil {
		return nil, err
	}
	return &n, conn.Flush()
}
