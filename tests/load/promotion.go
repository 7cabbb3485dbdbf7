package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ccnq/ccnq/tests/load/internal/report"
	"github.com/ccnq/ccnq/tests/load/internal/traffic"
)

// seedPoll is how long a request of the seed waits on average until it notices
// that its turn has come: half of its polling interval.
const seedPoll = 125 * time.Millisecond

// promotion measures how long a place stays empty: from the moment that the
// origin ends a response until the request that waits in line arrives there.
func promotion(ctx context.Context, b *bench) (_ []report.Row, err error) {
	var c closers
	defer c.close(&err)
	o := &turns{arrived: make(chan arrival)}
	upstream, err := startOrigin(&c, o.serve)
	if err != nil {
		return nil, err
	}
	k, err := b.startCoordinator(&c, settings{"CCNQ_QUEUE_MAX_SERVED_PER_GROUP": "1"})
	if err != nil {
		return nil, err
	}
	queue, err := b.queue(k.nats, everything)
	if err != nil {
		return nil, err
	}
	queue["CCNQ_QUEUE_PENDING_TIMEOUT_MS"] = "60000"
	e, err := b.startEdge(ctx, &c, upstream, queue)
	if err != nil {
		return nil, err
	}
	var took []time.Duration
	for range b.rounds {
		round, err := b.promotionRound(ctx, k, e, o)
		if err != nil {
			return nil, err
		}
		took = append(took, round...)
	}
	p99 := report.Percentile(took, 99)
	return []report.Row{{
		What: fmt.Sprintf("slot freed → waiting request at the origin, p99, idle system, %d groups with one waiter each", b.groups),
		Measured: fmt.Sprintf("%.2f ms (p50 %.2f ms)", float64(p99.Microseconds())/1e3,
			float64(report.Percentile(took, 50).Microseconds())/1e3),
		Against: "125 ms (mean of the seed's polling)",
		Ratio:   fmt.Sprintf("%.3f×", float64(p99)/float64(seedPoll)),
		Reach:   "≤ 10 ms",
		Met:     p99 <= 10*time.Millisecond,
	}}, nil
}

// promotionRound has one request of each group at the origin and one in line,
// then ends the first ones one after the other.
func (b *bench) promotionRound(ctx context.Context, k *coordinated, e *edge, o *turns) (took []time.Duration, err error) {
	var conns []*traffic.Conn
	defer func() {
		for _, conn := range conns {
			conn.Close()
		}
	}()
	send := func(group int) error {
		conn, err := traffic.Dial(e.addr)
		if err != nil {
			return err
		}
		conns = append(conns, conn)
		return conn.Send(traffic.Request("/", fmt.Sprintf("10.9.%d.1", group)))
	}
	held := make([]arrival, b.groups)
	for group := range held {
		if err := send(group); err != nil {
			return nil, err
		}
		if held[group], err = o.next(ctx); err != nil {
			return nil, err
		}
	}
	for group := range held {
		if err := send(group); err != nil {
			return nil, err
		}
	}
	err = k.withDatabase(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		return e.Await(ctx, "all stand in line", func() bool {
			n, err := k.waiting(ctx, conn)
			return err == nil && n == b.groups
		})
	})
	if err != nil {
		return nil, err
	}
	for _, first := range held {
		freed := first.finish()
		second, err := o.next(ctx)
		if err != nil {
			return nil, err
		}
		took = append(took, second.at.Sub(freed))
		second.finish()
	}
	for _, conn := range conns {
		if status, err := conn.Receive(); err != nil || status != http.StatusOK {
			return nil, errors.Join(fmt.Errorf("a response has status %d", status), err)
		}
	}
	return took, nil
}
