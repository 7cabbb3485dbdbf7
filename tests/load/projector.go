package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ccnq/ccnq/pkg/bus"
	"github.com/ccnq/ccnq/pkg/wire"
	"github.com/ccnq/ccnq/tests/load/internal/report"
)

// singleShare is how many times fewer denials the measurement with one call
// each is made with: it takes about as long.
const singleShare = 40

// projector compares a denylist service that works off a backlog with one call of
// Postgres for each denial, and measures a rebuild from all these events.
func projector(ctx context.Context, b *bench) (_ []report.Row, err error) {
	var c closers
	defer c.close(&err)
	nats, conn, err := b.startJetStream(&c)
	if err != nil {
		return nil, err
	}
	d, err := b.startDenylist(ctx, &c, nats)
	if err != nil {
		return nil, err
	}
	var (
		events denials
		pairs  report.Pairs
	)
	for range b.denialRounds {
		took, err := d.project(ctx, conn, &events, b.denials)
		if err != nil {
			return nil, err
		}
		// The SQL function that does the same for one denial is part of this
		// benchmark; four callers call it.
		single, err := goBenchmarks(ctx, "services/denylist/internal/store/pgstore", "^BenchmarkApply$/^single$",
			fmt.Sprintf("%dx", b.denials/singleShare))
		if err != nil {
			return nil, err
		}
		pairs.Add(float64(b.denials)/took.Seconds(), single.median("Apply/single", "denials/s"))
	}
	if _, err := d.project(ctx, conn, &events, b.rebuilt-events.n); err != nil {
		return nil, err
	}
	rebuild, err := d.rebuild(ctx, conn)
	if err != nil {
		return nil, err
	}
	return []report.Row{{
		What: fmt.Sprintf("projector, a backlog of %d denials from the stream to Postgres, %d addresses an event, half new that day, %d ranges",
			b.denials, perMessage, deniedRanges),
		Measured: fmt.Sprintf("%.0f denials/s", pairs.Measured()),
		Against:  fmt.Sprintf("%.0f denials/s (one SQL call each)", pairs.Against()),
		Ratio:    fmt.Sprintf("%.1f×", pairs.Ratio()),
		Reach:    "≥ 20×, ≥ 100000 a second",
		Met:      pairs.Ratio() >= 20 && pairs.Measured() >= 100_000,
	}, {
		What:     fmt.Sprintf("rebuild of %d denials", events.n),
		Measured: fmt.Sprintf("%.2f s, %.0f denials/s", rebuild.Seconds(), float64(events.n)/rebuild.Seconds()),
		Against:  "–",
		Ratio:    "–",
		Reach:    "printed",
		Met:      true,
	}}, nil
}

// project publishes so many denials while the service is frozen, and returns
// how long it takes to work them off once it runs. If it was frozen for longer
// than its lease, the time until it leads again is in that.
func (d *denylist) project(ctx context.Context, conn *bus.Conn, events *denials, n int) (time.Duration, error) {
	puts, err := events.messages(n / perMessage)
	if err != nil {
		return 0, err
	}
	if err := d.Freeze(); err != nil {
		return 0, err
	}
	err = store(ctx, conn, puts)
	began := time.Now()
	if err := errors.Join(err, d.Thaw()); err != nil {
		return 0, err
	}
	err = d.until(ctx, "ccnq_denylist_denials_total", events.n)
	return time.Since(began), err
}

// rebuild returns how long a rebuild takes.
func (d *denylist) rebuild(ctx context.Context, conn *bus.Conn) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, storeWait)
	defer cancel()
	began := time.Now()
	if _, err := bus.Request[wire.RebuildRequest, wire.RebuildReply](ctx, conn, wire.SubjectRebuild, wire.RebuildRequest{}); err != nil {
		return 0, err
	}
	err := d.until(ctx, "ccnq_denylist_rebuilds_total", 1)
	return time.Since(began), err
}
