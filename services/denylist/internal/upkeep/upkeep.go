// Package upkeep does the leader's housekeeping: it removes what is old from
// the tables, and has blocks published again whose events grow old, so that a
// rebuild still finds them in the stream.
//
// It keeps no state. A step that fails is counted and logged, and the next one
// repeats it.
package upkeep

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ccnq/ccnq/services/denylist/internal/store"
)

const (
	// renewPage is the number of blocks that are published again at once.
	renewPage = 1_000
	// maxRounds bounds the work of one step.
	maxRounds = 200
	// stepTimeout bounds its time.
	stepTimeout = time.Minute
)

// Options say what is kept up.
type Options struct {
	Store store.Store
	// Every is the time between two steps.
	Every time.Duration
	// RenewAfter is the age of a block's last event from which the block is
	// published again.
	RenewAfter time.Duration
	// Changed is told that blocks are to be published. It must not block.
	Changed  func()
	Logger   *slog.Logger
	Registry prometheus.Registerer
}

// Keeper keeps the tables up. Make one with [New].
type Keeper struct {
	opts              Options
	pruned            *prometheus.CounterVec
	renewed, failures prometheus.Counter
}

// New returns a keeper that does nothing yet.
func New(opts Options) *Keeper {
	k := &Keeper{
		opts: opts,
		pruned: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ccnq_denylist_pruned_total", Help: "Old rows that were removed, by what they were.",
		}, []string{"what"}),
		renewed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "ccnq_denylist_renewed_total", Help: "Blocks that were published again because their events grew old.",
		}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "ccnq_denylist_upkeep_failures_total", Help: "Housekeeping that failed; the next one repeats it.",
		}),
	}
	k.note(store.Pruned{})
	opts.Registry.MustRegister(k.pruned, k.renewed, k.failures)
	return k
}

// Run takes a step at once and then regularly, as the leader of an epoch, until
// ctx ends.
func (k *Keeper) Run(ctx context.Context, epoch int64) {
	tick := time.NewTicker(k.opts.Every)
	defer tick.Stop()
	for {
		if err := k.step(ctx, epoch); err != nil && ctx.Err() == nil {
			k.failures.Inc()
			k.opts.Logger.Warn("housekeeping failed; it is repeated", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (k *Keeper) step(ctx context.Context, epoch int64) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	for range maxRounds {
		n, err := k.opts.Store.Renew(ctx, epoch, time.Now().Add(-k.opts.RenewAfter), renewPage)
		if err != nil {
			return err
		}
		if n > 0 {
			k.renewed.Add(float64(n))
			k.opts.Changed()
		}
		if n < renewPage {
			break
		}
	}
	for range maxRounds {
		pruned, err := k.opts.Store.Prune(ctx)
		k.note(pruned)
		if err != nil || !pruned.More {
			return err
		}
	}
	return nil
}

func (k *Keeper) note(p store.Pruned) {
	k.pruned.WithLabelValues("counts").Add(float64(p.Counts))
	k.pruned.WithLabelValues("blocks").Add(float64(p.Blocks))
	k.pruned.WithLabelValues("changes").Add(float64(p.Changes))
	k.pruned.WithLabelValues("positions").Add(float64(p.Positions))
	k.pruned.WithLabelValues("quarantined").Add(float64(p.Quarantined))
}
