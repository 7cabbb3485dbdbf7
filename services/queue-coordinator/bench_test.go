package coordinator

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/pkg/bus"
	"github.com/ccnq/ccnq/pkg/testdb"
	"github.com/ccnq/ccnq/pkg/wire"
)

// BenchmarkAdmitAndRelease asks for a place and gives it back, over real NATS
// and a real store, from 256 requests at once: over 1,000 groups, and within
// one whose limit is 100. One operation is the pair.
func BenchmarkAdmitAndRelease(b *testing.B) {
	for _, memory := range []bool{false, true} {
		for _, groups := range []int{1_000, 1} {
			for _, unbatched := range []bool{true, false} {
				name := fmt.Sprintf("store=%s/groups=%d/batched=%v", map[bool]string{true: "memory", false: "postgres"}[memory], groups, !unbatched)
				b.Run(name, func(b *testing.B) { benchmark(b, memory, unbatched, groups) })
			}
		}
	}
}

func benchmark(b *testing.B, memory, unbatched bool, groups int) {
	b.Helper()
	const requesters, edges = 256, 4
	p := newParts(b)
	address, schema := "postgres://nobody@127.0.0.1:1/none", "queue"
	if !memory {
		db := testdb.New(b)
		address, schema = db.URL, db.Schema
	}
	cfg := p.config(address, schema)
	cfg.Queue.MaxServed, cfg.Queue.MaxPending = 100, 1_000_000
	untilReady(b, p.start(cfg, Deps{Memory: memory, Unbatched: unbatched}))
	var clients [edges]*client
	for i := range clients {
		clients[i] = newClient(b, p, fmt.Sprintf("edge-%d", i))
	}
	var workers, requests, again atomic.Int64
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	b.ReportAllocs()
	b.SetParallelism(requesters / 2) // times GOMAXPROCS
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		c := clients[workers.Add(1)%edges]
		for pb.Next() {
			n := requests.Add(1)
			item := wire.Item{
				RequestID: id(int(n)),
				Bucket:    wire.Bucket{Kind: wire.KindGroup, Key: fmt.Sprintf("10.%d.%d.0/24", n%int64(groups)/250, n%int64(groups)%250)},
			}
			if err := c.serve(ctx, item, &again); err != nil {
				b.Error(err)
				cancel()
				return
			}
		}
	})
	b.ReportMetric(float64(again.Load())/float64(b.N), "repeats/op")
}

// serve is the life of one request. What was not answered is asked again.
func (c *client) serve(ctx context.Context, item wire.Item, again *atomic.Int64) error {
	turn := c.turns[slot(item.RequestID)]
	var decision wire.Decision
	err := repeat(ctx, again, func() error {
		reply, err := bus.Request[wire.AdmitRequest, wire.AdmitReply](ctx, c.conn, c.admits,
			wire.AdmitRequest{RequestID: item.RequestID, Bucket: item.Bucket, BudgetMS: patience.Milliseconds()})
		decision = reply.Decision
		return err
	})
	if err != nil {
		return err
	}
	if decision == wire.Queued {
		select {
		case <-turn:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return repeat(ctx, again, func() error {
		_, err := bus.Request[wire.ReleaseRequest, wire.ReleaseReply](ctx, c.conn, c.releases,
			wire.ReleaseRequest{Items: []wire.Item{item}})
		return err
	})
}

func repeat(ctx context.Context, again *atomic.Int64, ask func() error) error {
	for {
		err := ask()
		if err == nil || ctx.Err() != nil || bus.CodeOf(err) == bus.CodeInvalid {
			return err
		}
		again.Add(1)
	}
}

// client is an edge of the benchmark. Each of its requests has a slot that
// hears of its turn.
type client struct {
	conn             *bus.Conn
	admits, releases string
	turns            [1 << 16]chan struct{}
}

func newClient(b *testing.B, p *parts, edgeID string) *client {
	b.Helper()
	opts := p.config("postgres://nobody@127.0.0.1:1/none", "queue").NATS.Options(edgeID, slog.New(slog.DiscardHandler))
	conn, err := bus.Connect(opts)
	require.NoError(b, err)
	b.Cleanup(conn.Close)
	c := &client{
		conn:     conn,
		admits:   wire.EdgeSubject(wire.SubjectAdmit, edgeID),
		releases: wire.EdgeSubject(wire.SubjectRelease, edgeID),
	}
	for i := range c.turns {
		c.turns[i] = make(chan struct{}, 1)
	}
	require.NoError(b, bus.Subscribe(conn, wire.EdgeSubject(wire.SubjectPromoted, edgeID), func(m wire.Promoted) {
		for _, id := range m.RequestIDs {
			c.turns[slot(id)] <- struct{}{}
		}
	}, func(err error) { b.Error(err) }))
	require.NoError(b, conn.Ping(p.ctx()))
	return c
}

func slot(id wire.RequestID) int { return int(binary.BigEndian.Uint16(id[14:])) }
