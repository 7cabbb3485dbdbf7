package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/ccnq/ccnq/tests/load/internal/report"
	"github.com/ccnq/ccnq/tests/load/internal/traffic"
)

// requesters is how many admits are under way at once.
const requesters = 256

func manyGroups(ctx context.Context, b *bench) ([]report.Row, error) {
	pairs, err := b.batching(ctx, 1_000)
	if err != nil {
		return nil, err
	}
	what := "admit + release over NATS and Postgres, 256 concurrent, 1,000 groups"
	return append(pairs.rate(what, 4), report.Row{
		What:     "the same, Postgres CPU per op",
		Measured: micros(pairs.cpu.Measured()),
		Against:  micros(pairs.cpu.Against()) + " (batching off)",
		Ratio:    fmt.Sprintf("%.2f×", pairs.cpu.Ratio()),
		Reach:    "≤ 0.25×",
		Met:      pairs.cpu.Ratio() <= 0.25,
	}), nil
}

func hotGroup(ctx context.Context, b *bench) ([]report.Row, error) {
	pairs, err := b.batching(ctx, 1)
	if err != nil {
		return nil, err
	}
	return pairs.rate("the same on one hot group, cap 100", 8), nil
}

// batchingPairs are operations a second, and CPU nanoseconds of Postgres for
// each.
type batchingPairs struct{ ops, cpu report.Pairs }

func (p *batchingPairs) rate(what string, reach float64) []report.Row {
	return []report.Row{{
		What:     what,
		Measured: fmt.Sprintf("%.0f op/s", p.ops.Measured()),
		Against:  fmt.Sprintf("%.0f op/s (batching off)", p.ops.Against()),
		Ratio:    fmt.Sprintf("%.1f×", p.ops.Ratio()),
		Reach:    fmt.Sprintf("≥ %.0f×", reach),
		Met:      p.ops.Ratio() >= reach,
	}}
}

// batching compares a coordinator with one that makes one call of Postgres for
// each request. On one group, whose cap is less than the number of
// requesters, the others wait in line.
func (b *bench) batching(ctx context.Context, groups int) (_ *batchingPairs, err error) {
	var c closers
	defer c.close(&err)
	limits := settings{
		"CCNQ_QUEUE_MAX_SERVED_PER_GROUP":  "100",
		"CCNQ_QUEUE_MAX_PENDING_PER_GROUP": strconv.Itoa(4 * requesters),
	}
	ways := [][]string{nil, {"unbatched"}}
	var ks [2]*coordinated
	var rs [2]*requester
	for i, how := range ways {
		if ks[i], err = b.startCoordinator(&c, limits, how...); err != nil {
			return nil, err
		}
		if rs[i], err = newRequester(&c, ks[i].nats); err != nil {
			return nil, err
		}
	}
	pairs := &batchingPairs{}
	for round := range b.rounds + 1 {
		var ops, cpu [2]float64
		for i := range ways {
			if ops[i], cpu[i], err = b.admitAndRelease(ctx, ks[i], rs[i], groups); err != nil {
				return nil, err
			}
		}
		if round > 0 { // the first warms up
			pairs.ops.Add(ops[0], ops[1])
			pairs.cpu.Add(cpu[0], cpu[1])
		}
	}
	return pairs, nil
}

// admitAndRelease returns operations a second, and CPU nanoseconds of Postgres
// for each.
func (b *bench) admitAndRelease(ctx context.Context, k *coordinated, r *requester, groups int) (ops, cpu float64, err error) {
	before, err := k.postgresCPU(ctx)
	if err != nil {
		return 0, 0, err
	}
	began := time.Now()
	var count atomic.Int64
	err = traffic.Each(requesters, func(int) error {
		for time.Since(began) < b.round && ctx.Err() == nil {
			item, err := r.admit(groupKey(rand.IntN(groups)))
			if err != nil {
				return err
			}
			r.release(item)
			count.Add(1)
		}
		return ctx.Err()
	})
	r.settle()
	took := time.Since(began)
	if err != nil {
		return 0, 0, err
	}
	after, err := k.postgresCPU(ctx)
	n := float64(count.Load())
	return n / took.Seconds(), float64(after-before) / n, err
}
