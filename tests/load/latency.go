package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ccnq/ccnq/pkg/wire"
	"github.com/ccnq/ccnq/tests/load/internal/report"
	"github.com/ccnq/ccnq/tests/load/internal/traffic"
)

// admitBlock is how many admits are timed before it is the other way's turn.
const admitBlock = 100

// loneAdmit compares one admit at a time, asked as an edge asks, with a call
// of the same function of Postgres without NATS and without a coordinator.
func loneAdmit(ctx context.Context, b *bench) (_ []report.Row, err error) {
	var c closers
	defer c.close(&err)
	k, err := b.startCoordinator(&c, settings{"CCNQ_QUEUE_MAX_SERVED_PER_GROUP": "100"})
	if err != nil {
		return nil, err
	}
	r, err := newRequester(&c, k.nats)
	if err != nil {
		return nil, err
	}
	var asked, called []time.Duration
	err = k.withDatabase(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		for round := range 2*b.rounds + 1 {
			for i := range admitBlock {
				took, err := r.timeAdmit(groupKey(i))
				if err != nil {
					return err
				}
				if round > 0 { // the first warms up
					asked = append(asked, took)
				}
			}
			for i := range admitBlock {
				took, err := callAdmit(ctx, conn, groupKey(i))
				if err != nil {
					return err
				}
				if round > 0 {
					called = append(called, took)
				}
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	measured, against := report.Percentile(asked, 50), report.Percentile(called, 50)
	ratio := float64(measured) / float64(against)
	return []report.Row{{
		What:     "lone admit on an idle system, edge to edge, p50",
		Measured: micros(float64(measured)),
		Against:  micros(float64(against)) + " (bare pgx call)",
		Ratio:    fmt.Sprintf("%.2f×", ratio),
		Reach:    "≤ 4×",
		Met:      ratio <= 4,
	}}, nil
}

// timeAdmit times one admit and gives the place back.
func (r *requester) timeAdmit(group string) (time.Duration, error) {
	began := time.Now()
	item, err := r.admit(group)
	took := time.Since(began)
	if err != nil {
		return 0, err
	}
	return took, r.releaseNow([]wire.Item{item})
}

// callAdmit is timeAdmit without anything between this program and Postgres.
func callAdmit(ctx context.Context, conn *pgx.Conn, group string) (time.Duration, error) {
	const (
		admit   = `SELECT outcome FROM admit($1, $2, $3, $4, 100, 5, $5, $6, false, NULL)`
		release = `SELECT outcome FROM release_and_promote($1, $2, $3, 100, $4, false, NULL)`
	)
	ids, groups, edges := []wire.RequestID{newID()}, []string{group}, []string{"load-direct"}
	var outcome string
	began := time.Now()
	err := conn.QueryRow(ctx, admit, ids, groups, edges, []string{"wait"}, 5*time.Second, 5*time.Minute).Scan(&outcome)
	took := time.Since(began)
	if err != nil {
		return 0, err
	}
	if outcome != "admitted" {
		return 0, fmt.Errorf("the function says %q", outcome)
	}
	_, err = conn.Exec(ctx, release, ids, groups, edges, 5*time.Second)
	return took, err
}

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

// turns is an origin that holds each request until it is told to finish it.
type turns struct{ arrived chan arrival }

// arrival is a request at the origin.
type arrival struct {
	at  time.Time
	end chan chan time.Time
}

// finish ends the request and returns when that was.
func (a arrival) finish() time.Time {
	at := make(chan time.Time)
	a.end <- at
	return <-at
}

func (o *turns) serve(w http.ResponseWriter, r *http.Request) {
	a := arrival{at: time.Now(), end: make(chan chan time.Time)}
	select {
	case o.arrived <- a:
	case <-r.Context().Done():
		return
	}
	select {
	case at := <-a.end:
		at <- time.Now()
		writePage(w, r)
	case <-r.Context().Done():
	}
}

func (o *turns) next(ctx context.Context) (arrival, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWait)
	defer cancel()
	select {
	case a := <-o.arrived:
		return a, nil
	case <-ctx.Done():
		return arrival{}, fmt.Errorf("no request arrives at the origin: %w", ctx.Err())
	}
}
