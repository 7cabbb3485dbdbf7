package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ccnq/ccnq/pkg/wire"
	"github.com/ccnq/ccnq/tests/load/internal/report"
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
