package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/ccnq/ccnq/tests/load/internal/process"
	"github.com/ccnq/ccnq/tests/load/internal/report"
	"github.com/ccnq/ccnq/tests/load/internal/traffic"
)

const (
	// memoServed and memoHold make 400 requests a second of one group.
	memoServed = 8
	memoHold   = 20 * time.Millisecond
	// memoClients ask again memoPause after a refusal: several times what can
	// be served, and less than what the machine can do.
	memoClients = 24
	memoPause   = 10 * time.Millisecond
)

// fullMemo compares what two edges serve of one busy group with and without
// the memory of a full group. The line is short, so that places do run empty
// and each belief that outlives its truth costs throughput. A relay between
// edges and coordinator takes the memo out of the replies; with the memo on it
// relays all the same.
func fullMemo(ctx context.Context, b *bench) (_ []report.Row, err error) {
	var c closers
	defer c.close(&err)
	upstream, err := startOrigin(&c, func(w http.ResponseWriter, r *http.Request) {
		timer := time.NewTimer(memoHold)
		defer timer.Stop()
		<-timer.C
		writePage(w, r)
	})
	if err != nil {
		return nil, err
	}
	with, err := b.relayed(ctx, &c, upstream, "full-memo")
	if err != nil {
		return nil, err
	}
	without, err := b.relayed(ctx, &c, upstream, "no-memo")
	if err != nil {
		return nil, err
	}
	var pairs report.Pairs
	for round := range b.rounds + 1 {
		measured, err := b.served(ctx, with)
		if err != nil {
			return nil, err
		}
		against, err := b.served(ctx, without)
		if err != nil {
			return nil, err
		}
		if round > 0 { // the first warms up
			pairs.Add(measured, against)
		}
	}
	return []report.Row{{
		What:     "requests served per second of one busy group, 2 edges, with the full memo",
		Measured: fmt.Sprintf("%.0f /s", pairs.Measured()),
		Against:  fmt.Sprintf("%.0f /s (without)", pairs.Against()),
		Ratio:    fmt.Sprintf("%.3f×", pairs.Ratio()),
		Reach:    "≥ 0.98×",
		Met:      pairs.Ratio() >= 0.98,
	}}, nil
}

// relayed starts two edges behind a relay.
func (b *bench) relayed(ctx context.Context, c *closers, upstream, how string) (edges []*edge, err error) {
	k, err := b.startCoordinator(c, settings{
		"CCNQ_QUEUE_MAX_SERVED_PER_GROUP":  fmt.Sprint(memoServed),
		"CCNQ_QUEUE_MAX_PENDING_PER_GROUP": "1",
	})
	if err != nil {
		return nil, err
	}
	nats, err := b.startNATS(c)
	if err != nil {
		return nil, err
	}
	p, _, err := process.StartAndRead("the relay", os.Environ(), b.command("backstage"), "relay", nats, k.nats, how)
	if err != nil {
		return nil, err
	}
	c.add(p.Stop)
	queue, err := b.queue(nats, everything)
	if err != nil {
		return nil, err
	}
	for range 2 {
		e, err := b.startEdge(ctx, c, upstream, queue)
		if err != nil {
			return nil, err
		}
		edges = append(edges, e)
	}
	return edges, nil
}

// served returns how many requests are served in a second.
func (b *bench) served(ctx context.Context, edges []*edge) (float64, error) {
	request := traffic.Request("/", "203.0.113.7")
	began := time.Now()
	var count atomic.Int64
	err := traffic.Each(memoClients, func(i int) error {
		conn, err := traffic.Dial(edges[i%len(edges)].addr)
		if err != nil {
			return err
		}
		defer conn.Close()
		pause := time.NewTicker(memoPause)
		defer pause.Stop()
		for time.Since(began) < b.round && ctx.Err() == nil {
			status, err := conn.Do(request)
			if err != nil {
				return err
			}
			switch status {
			case http.StatusOK:
				count.Add(1)
			case http.StatusTooManyRequests:
				pause.Reset(memoPause)
				<-pause.C
			default:
				return fmt.Errorf("a response has status %d", status)
			}
		}
		return ctx.Err()
	})
	return float64(count.Load()) / time.Since(began).Seconds(), err
}
