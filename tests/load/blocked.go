package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"time"

	"github.com/ccnq/ccnq/pkg/bus"
	"github.com/ccnq/ccnq/pkg/wire"
	"github.com/ccnq/ccnq/tests/load/internal/report"
	"github.com/ccnq/ccnq/tests/load/internal/traffic"
)

// maxStart is how long an edge may take until it knows all blocks.
const maxStart = 15 * time.Second

// blocked starts edges beside a bucket that is full of blocks, and compares
// what the refusal of a blocked client costs with a handler that only writes
// 429. The refusals are counted and reported as ever.
func blocked(ctx context.Context, b *bench) (_ []report.Row, err error) {
	var c closers
	defer c.close(&err)
	upstream, err := startOrigin(&c, writePage)
	if err != nil {
		return nil, err
	}
	nats, conn, err := b.startJetStream(&c)
	if err != nil {
		return nil, err
	}
	if err := b.makeStreams(ctx, nats); err != nil {
		return nil, err
	}
	if err := fillBucket(ctx, conn, b.blocks); err != nil {
		return nil, err
	}
	if _, err := b.coordinate(&c, nats, nil); err != nil {
		return nil, err
	}
	var starts []time.Duration
	for range b.starts - 1 {
		took, err := b.startAndStop(ctx, upstream, nats)
		if err != nil {
			return nil, err
		}
		starts = append(starts, took)
	}
	e, took, err := b.startBlocking(ctx, &c, upstream, nats)
	if err != nil {
		return nil, err
	}
	starts = append(starts, took)
	cost, err := b.refusals(ctx, &c, e)
	if err != nil {
		return nil, err
	}
	start := report.Percentile(starts, 50)
	return []report.Row{{
		What:     fmt.Sprintf("start of an edge with %d blocks in KV, until ready", b.blocks),
		Measured: fmt.Sprintf("%.2f s", start.Seconds()),
		Against:  "–",
		Ratio:    "–",
		Reach:    fmt.Sprintf("≤ %.0f s", maxStart.Seconds()),
		Met:      start <= maxStart,
	}, {
		What:     fmt.Sprintf("refusal of a blocked client, %d connections, CPU per request", connections),
		Measured: micros(cost.Measured()),
		Against:  micros(cost.Against()) + " (a handler that only writes 429)",
		Ratio:    fmt.Sprintf("%.2f×", cost.Ratio()),
		Reach:    "≤ 1.15×",
		Met:      cost.Ratio() <= 1.15,
	}}, nil
}

// makeStreams lets a denylist service make what it keeps in NATS. It must be
// gone before the bucket is filled: blocks that its tables do not have it would
// lift.
func (b *bench) makeStreams(ctx context.Context, nats string) (err error) {
	var c closers
	defer c.close(&err)
	_, err = b.startDenylist(ctx, &c, nats)
	return err
}

// fillBucket writes blocks and the mark, as the denylist service does.
func fillBucket(ctx context.Context, conn *bus.Conn, blocks int) error {
	const page = 20_000
	now := time.Now().UTC()
	mark := wire.Mark{Version: int64(blocks), Written: now}
	puts := make([]bus.Put, 0, page)
	for i := range blocks {
		scope, target := blockTarget(i)
		if scope == wire.ScopeIP {
			mark.IPs++
		} else {
			mark.Ranges++
		}
		data, err := json.Marshal(wire.Block{
			BlockedUntil: now.Add(24 * time.Hour), Version: int64(i + 1), Reason: "denials", Since: now,
		})
		if err != nil {
			return err
		}
		puts = append(puts, bus.Put{
			Subject: wire.KVSubject(wire.BlockKey(scope, target)), Data: data, TTL: 24 * time.Hour,
		})
		if len(puts) == page || i == blocks-1 {
			if err := store(ctx, conn, puts); err != nil {
				return err
			}
			puts = puts[:0]
		}
	}
	info, err := bus.StreamInfo(ctx, conn, wire.StreamBlocks)
	if err != nil {
		return err
	}
	mark.Generation = info.Created.UTC().Format(time.RFC3339Nano)
	data, err := json.Marshal(mark)
	if err != nil {
		return err
	}
	return store(ctx, conn, []bus.Put{{Subject: wire.KVSubject(wire.KeyMark), Data: data}})
}

// blockTarget is the nth of the blocks: nine addresses and a range, in turn.
func blockTarget(n int) (wire.Scope, string) {
	if n%10 == 9 {
		r := n / 10
		ip := netip.AddrFrom4([4]byte{100 + byte(r>>16), byte(r >> 8), byte(r), 0})
		return wire.ScopeRange, netip.PrefixFrom(ip, 24).String()
	}
	return wire.ScopeIP, netip.AddrFrom4([4]byte{20 + byte(n>>24), byte(n >> 16), byte(n >> 8), byte(n)}).String()
}

// startBlocking starts an edge that enforces blocks, and returns how long it
// took until it knew them.
func (b *bench) startBlocking(ctx context.Context, c *closers, upstream, nats string) (*edge, time.Duration, error) {
	queue, err := b.queue(nats, everything)
	if err != nil {
		return nil, 0, err
	}
	queue["CCNQ_QUEUE_DENYLIST_ENABLED"] = "true"
	if queue["CCNQ_DATA_DIR"], err = os.MkdirTemp(b.dir, "edge-"); err != nil {
		return nil, 0, err
	}
	began := time.Now()
	e, err := b.startEdge(ctx, c, upstream, queue)
	return e, time.Since(began), err
}

func (b *bench) startAndStop(ctx context.Context, upstream, nats string) (took time.Duration, err error) {
	var c closers
	defer c.close(&err)
	_, took, err = b.startBlocking(ctx, &c, upstream, nats)
	return took, err
}

// refusals compares the CPU time of refusals.
func (b *bench) refusals(ctx context.Context, c *closers, e *edge) (cost report.Pairs, err error) {
	least, err := b.baseline(c, "refuse")
	if err != nil {
		return cost, err
	}
	_, client := blockTarget(0)
	request := traffic.Request("/", client)
	measured, err := newLoad(c, e, request, http.StatusTooManyRequests)
	if err != nil {
		return cost, err
	}
	against, err := newLoad(c, least, request, http.StatusTooManyRequests)
	if err != nil {
		return cost, err
	}
	err = b.compare(ctx, &cost, measured, against)
	return cost, err
}
