package pgstore

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ccnq/ccnq/pkg/wire"
	"github.com/ccnq/ccnq/services/denylist/internal/store/denylistdb"
)

// blockRow is a row of either table of blocks.
type blockRow denylistdb.IPBlocksRow

func (r blockRow) change(scope wire.Scope) wire.BlockChange {
	return wire.BlockChange{
		Scope: scope, Target: r.Target, BlockedUntil: r.BlockedUntil.UTC(), Since: r.Since.UTC(),
		Version: r.Version, Reason: r.Reason, By: r.By,
	}
}

// blocksOf reads the blocks of the targets that have one.
func (s *Store) blocksOf(ctx context.Context, db denylistdb.DBTX, scope wire.Scope, targets []string) (map[string]wire.BlockChange, error) {
	known := make(map[string]wire.BlockChange)
	if scope == wire.ScopeIP {
		rows, err := s.queries.IPBlocks(ctx, db, targets)
		for _, r := range rows {
			known[r.Target] = blockRow(r).change(scope)
		}
		return known, err
	}
	rows, err := s.queries.RangeBlocks(ctx, db, targets)
	for _, r := range rows {
		known[r.Target] = blockRow(r).change(scope)
	}
	return known, err
}

// newVersions are blocks as the queries take them, to be written as a change of
// now.
func newVersions(blocks []wire.BlockChange, now time.Time) denylistdb.InsertIPBlocksParams {
	changed := make([]time.Time, len(blocks))
	for i := range blocks {
		changed[i] = now
	}
	p := blockColumns(blocks, changed)
	clear(p.Versions)
	return p
}

// blockColumns are blocks as the queries take them. A version of 0 draws the next.
func blockColumns(blocks []wire.BlockChange, changed []time.Time) denylistdb.InsertIPBlocksParams {
	p := denylistdb.InsertIPBlocksParams{Changed: changed}
	for _, b := range blocks {
		p.Targets = append(p.Targets, b.Target)
		p.Ends = append(p.Ends, b.BlockedUntil)
		p.Sinces = append(p.Sinces, b.Since)
		p.Reasons = append(p.Reasons, text(b.Reason))
		p.Bys = append(p.Bys, text(b.By))
		p.Versions = append(p.Versions, b.Version)
	}
	return p
}

// writeBlocks makes blocks or changes them, and returns their versions.
func (s *Store) writeBlocks(ctx context.Context, tx pgx.Tx, scope wire.Scope, insert bool,
	p denylistdb.InsertIPBlocksParams,
) ([]int64, error) {
	switch ip := scope == wire.ScopeIP; {
	case len(p.Targets) == 0:
		return nil, nil
	case ip && insert:
		return s.queries.InsertIPBlocks(ctx, tx, p)
	case ip:
		return s.queries.UpdateIPBlocks(ctx, tx, denylistdb.UpdateIPBlocksParams(p))
	case insert:
		return s.queries.InsertRangeBlocks(ctx, tx, denylistdb.InsertRangeBlocksParams(p))
	default:
		return s.queries.UpdateRangeBlocks(ctx, tx, denylistdb.UpdateRangeBlocksParams(p))
	}
}
