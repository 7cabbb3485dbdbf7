package pgstore

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ccnq/ccnq/services/denylist/internal/store"
	"github.com/ccnq/ccnq/services/denylist/internal/store/denylistdb"
	"github.com/ccnq/ccnq/services/denylist/internal/store/tally"
)

// pruneMost is how many rows of a table one call removes.
const pruneMost = 5_000

// Prune implements [store.Store]. Each table is a transaction of its own.
func (s *Store) Prune(ctx context.Context) (store.Pruned, error) {
	var out store.Pruned
	steps := []struct {
		removed *int
		do      func(context.Context, pgx.Tx, due) (int64, error)
	}{
		{&out.Counts, func(ctx context.Context, tx pgx.Tx, d due) (int64, error) {
			if _, err := s.queries.LockCheckpoint(ctx, tx); err != nil {
				return 0, err
			}
			return s.queries.PruneCounts(ctx, tx, denylistdb.PruneCountsParams{Oldest: d.day.Begin(), Most: pruneMost})
		}},
		{&out.Blocks, func(ctx context.Context, tx pgx.Tx, d due) (int64, error) {
			return s.queries.PruneIPBlocks(ctx, tx, denylistdb.PruneIPBlocksParams{Old: d.retention, Most: pruneMost})
		}},
		{&out.Blocks, func(ctx context.Context, tx pgx.Tx, d due) (int64, error) {
			return s.queries.PruneRangeBlocks(ctx, tx, denylistdb.PruneRangeBlocksParams{Old: d.retention, Most: pruneMost})
		}},
		{&out.Changes, func(ctx context.Context, tx pgx.Tx, d due) (int64, error) {
			return s.queries.PruneChanges(ctx, tx, denylistdb.PruneChangesParams{Old: d.retention, Most: pruneMost})
		}},
		{&out.Positions, func(ctx context.Context, tx pgx.Tx, d due) (int64, error) {
			return s.queries.PrunePositions(ctx, tx, d.position)
		}},
		{&out.Quarantined, func(ctx context.Context, tx pgx.Tx, d due) (int64, error) {
			return s.queries.PruneQuarantine(ctx, tx, denylistdb.PruneQuarantineParams{
				Old: d.retention, Most: store.MaxQuarantined,
			})
		}},
	}
	for _, step := range steps {
		err := s.tx(ctx, "prune", mode{writer: projector}, func(ctx context.Context, tx pgx.Tx) error {
			d, err := s.due(ctx, tx)
			if err != nil {
				return err
			}
			n, err := step.do(ctx, tx, d)
			if err != nil {
				return err
			}
			*step.removed += int(n)
			out.More = out.More || n == pruneMost
			return nil
		})
		if err != nil {
			return out, err
		}
	}
	return out, nil
}

// due is from when on what is old.
type due struct {
	day                 tally.Day
	retention, position time.Time
}

func (s *Store) due(ctx context.Context, tx pgx.Tx) (due, error) {
	now, err := s.queries.Now(ctx, tx)
	return due{
		day:       tally.OldestDay(now, s.settings),
		retention: now.Add(-s.settings.PruneRetention),
		position:  now.Add(-store.PositionRetention),
	}, err
}
