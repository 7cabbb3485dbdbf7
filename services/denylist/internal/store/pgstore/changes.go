package pgstore

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ccnq/ccnq/pkg/wire"
	"github.com/ccnq/ccnq/services/denylist/internal/store"
	"github.com/ccnq/ccnq/services/denylist/internal/store/denylistdb"
)

// Changes implements [store.Store].
func (s *Store) Changes(ctx context.Context, after int64, limit int) ([]store.Change, error) {
	rows, err := s.queries.ListChanges(ctx, s.pool, denylistdb.ListChangesParams{After: after, Most: int32(limit)})
	if err != nil {
		return nil, fmt.Errorf("denylist changes: %w", err)
	}
	changes := make([]store.Change, len(rows))
	for i, r := range rows {
		changes[i] = store.Change{Kind: store.Kind(r.Kind), At: r.At.UTC(), BlockChange: wire.BlockChange{
			Scope: wire.Scope(r.Scope), Target: r.Target, BlockedUntil: r.BlockedUntil.UTC(), Since: r.Since.UTC(),
			Version: r.Version, Reason: r.Reason, By: r.By, KeepCounts: r.KeepCounts,
		}}
	}
	return changes, nil
}

// SetPublished implements [store.Store]. It waits for no batch.
func (s *Store) SetPublished(ctx context.Context, epoch, version int64) error {
	return s.tx(ctx, "set published", mode{writer: projector}, func(ctx context.Context, tx pgx.Tx) error {
		if err := s.leads(ctx, tx, epoch); err != nil {
			return err
		}
		return s.queries.SetPublished(ctx, tx, version)
	})
}

// RaiseVersion implements [store.Store].
func (s *Store) RaiseVersion(ctx context.Context, epoch, atLeast int64) error {
	return s.lead(ctx, "raise version", mode{writer: projector}, epoch, func(ctx context.Context, tx pgx.Tx, _ store.Checkpoint) error {
		return s.raise(ctx, tx, atLeast)
	})
}

// raise makes later versions greater than atLeast. Versions that nobody drew
// are published if all others are.
func (s *Store) raise(ctx context.Context, tx pgx.Tx, atLeast int64) error {
	if err := s.queries.LockBlocks(ctx, tx); err != nil {
		return err
	}
	last, err := s.queries.LastVersion(ctx, tx)
	if err != nil || atLeast <= last {
		return err
	}
	v, err := s.queries.Newest(ctx, tx)
	if err != nil {
		return err
	}
	if v.Published >= v.Newest {
		if err := s.queries.SetPublished(ctx, tx, atLeast); err != nil {
			return err
		}
	}
	return s.queries.SetVersion(ctx, tx, atLeast)
}

// Renew implements [store.Store].
func (s *Store) Renew(ctx context.Context, epoch int64, before time.Time, limit int) (int, error) {
	var renewed int64
	err := s.lead(ctx, "renew", mode{writer: projector, scan: true}, epoch, func(ctx context.Context, tx pgx.Tx, _ store.Checkpoint) error {
		ips, err := s.queries.RenewIPBlocks(ctx, tx, denylistdb.RenewIPBlocksParams{Before: before, Most: int32(limit)})
		if err != nil {
			return err
		}
		renewed = ips
		if ips == int64(limit) {
			return nil
		}
		ranges, err := s.queries.RenewRangeBlocks(ctx, tx, denylistdb.RenewRangeBlocksParams{
			Before: before, Most: int32(limit) - int32(ips),
		})
		renewed += ranges
		return err
	})
	if err != nil {
		return 0, err
	}
	return int(renewed), nil
}
