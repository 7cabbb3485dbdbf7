package pgstore

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ccnq/ccnq/pkg/wire"
	"github.com/ccnq/ccnq/services/denylist/internal/store"
	"github.com/ccnq/ccnq/services/denylist/internal/store/denylistdb"
	"github.com/ccnq/ccnq/services/denylist/internal/store/tally"
)

// BeginRebuild implements [store.Store].
func (s *Store) BeginRebuild(ctx context.Context, epoch int64) error {
	return s.lead(ctx, "begin rebuild", mode{writer: replay}, epoch, func(ctx context.Context, tx pgx.Tx, _ store.Checkpoint) error {
		if err := s.queries.ClearRebuild(ctx, tx); err != nil {
			return err
		}
		return s.queries.MarkRebuild(ctx, tx, epoch)
	})
}

// rebuilding is [Store.lead], and checks that a rebuild of the epoch has begun.
func (s *Store) rebuilding(ctx context.Context, name string, m mode, epoch int64, do func(context.Context, pgx.Tx) error) error {
	return s.lead(ctx, name, m, epoch, func(ctx context.Context, tx pgx.Tx, _ store.Checkpoint) error {
		begun, err := s.queries.Rebuilding(ctx, tx, epoch)
		if err != nil {
			return err
		}
		if !begun {
			return store.ErrNoRebuild
		}
		return do(ctx, tx)
	})
}

// Replay implements [store.Store].
func (s *Store) Replay(ctx context.Context, epoch int64, events []store.Event) (store.Result, error) {
	var out store.Result
	err := s.rebuilding(ctx, "replay", mode{writer: replay}, epoch, func(ctx context.Context, tx pgx.Tx) error {
		out = store.Result{}
		var records []store.Record
		for _, e := range events {
			if e.Record != nil {
				records = append(records, *e.Record)
				continue
			}
			// A change may forgive what was counted before it.
			if err := s.replayDenied(ctx, tx, records, &out); err != nil {
				return err
			}
			records = records[:0]
			if err := s.replayChange(ctx, tx, e.Change, &out); err != nil {
				return err
			}
		}
		return s.replayDenied(ctx, tx, records, &out)
	})
	if err != nil {
		return store.Result{}, err
	}
	return out, nil
}

func (s *Store) replayDenied(ctx context.Context, tx pgx.Tx, records []store.Record, out *store.Result) error {
	if len(records) == 0 {
		return nil
	}
	known, err := s.queries.RebuildPositions(ctx, tx, outboxes(records))
	if err != nil {
		return err
	}
	applied := make(map[string]uint64, len(known))
	for _, r := range known {
		applied[r.OutboxID] = uint64(r.LastSeq)
	}
	b := tally.Collect(records, func(id string) uint64 { return applied[id] })
	all := addresses(b)
	if first, last, ok := b.Span(); ok {
		rows, err := s.queries.RebuildDays(ctx, tx, denylistdb.RebuildDaysParams{
			Ips: texts(all), First: first.Begin(), Last: last.Begin(),
		})
		if err != nil {
			return err
		}
		days := make([]denylistdb.DenialDaysRow, len(rows))
		for i, r := range rows {
			days[i] = denylistdb.DenialDaysRow(r)
		}
		if err := setDays(all, days); err != nil {
			return err
		}
	}
	b.Count()
	made, more := newRows(all)
	for _, rows := range [][]row{made, more} {
		if err := s.queries.RebuildCountDenials(ctx, tx, columns(rows)); err != nil {
			return err
		}
	}
	out.Add(b.Result)
	return s.queries.RebuildSavePositions(ctx, tx, denylistdb.RebuildSavePositionsParams(newPositions(b)))
}

func (s *Store) replayChange(ctx context.Context, tx pgx.Tx, c *store.Change, out *store.Result) error {
	if _, err := wire.ParseTarget(c.Scope, c.Target); err != nil {
		return nil //nolint:nilerr // an event that names nothing changes nothing
	}
	n, err := s.queries.RebuildBlock(ctx, tx, denylistdb.RebuildBlockParams{
		Scope: string(c.Scope), Target: c.Target, BlockedUntil: store.Instant(c.BlockedUntil), Since: store.Instant(c.Since),
		Reason: text(c.Reason), By: text(c.By), Version: c.Version, Changed: store.Instant(c.At),
	})
	if err != nil || n == 0 {
		return err
	}
	out.Changes++
	if c.Kind != store.KindUnblocked || c.KeepCounts {
		return nil
	}
	if c.Scope == wire.ScopeIP {
		return s.queries.RebuildForgiveIP(ctx, tx, c.Target)
	}
	return s.queries.RebuildForgiveRange(ctx, tx, c.Target)
}

// FinishRebuild implements [store.Store]. Only what differs is written.
func (s *Store) FinishRebuild(ctx context.Context, epoch int64, at store.Checkpoint) (store.Result, error) {
	var out store.Result
	err := s.rebuilding(ctx, "finish rebuild", mode{writer: replay, scan: true}, epoch, func(ctx context.Context, tx pgx.Tx) error {
		out = store.Result{}
		for _, step := range []func(context.Context, denylistdb.DBTX) error{
			s.queries.RebuildLostCounts, s.queries.RebuildCounts, s.queries.RebuildPositionsSwap,
		} {
			if err := step(ctx, tx); err != nil {
				return fmt.Errorf("counts: %w", err)
			}
		}
		newest, err := s.queries.RebuildNewest(ctx, tx)
		if err != nil {
			return err
		}
		if err := s.raise(ctx, tx, newest); err != nil {
			return err
		}
		ips, err := s.queries.RebuildIPBlocks(ctx, tx)
		if err != nil {
			return err
		}
		if err := s.restore(ctx, tx, wire.ScopeIP, ips, &out); err != nil {
			return err
		}
		rows, err := s.queries.RebuildRangeBlocks(ctx, tx)
		if err != nil {
			return err
		}
		ranges := make([]denylistdb.RebuildIPBlocksRow, len(rows))
		for i, r := range rows {
			ranges[i] = denylistdb.RebuildIPBlocksRow(r)
		}
		if err := s.restore(ctx, tx, wire.ScopeRange, ranges, &out); err != nil {
			return err
		}
		if err := s.queries.ClearRebuild(ctx, tx); err != nil {
			return err
		}
		return s.queries.MoveCheckpoint(ctx, tx, denylistdb.MoveCheckpointParams{
			Created: store.Instant(at.Created), Seq: int64(at.Seq),
		})
	})
	if err != nil {
		return store.Result{}, err
	}
	return out, nil
}

// restore writes the blocks of one scope that differ: those that come back
// with the version of their event, and those that change now.
func (s *Store) restore(ctx context.Context, tx pgx.Tx, scope wire.Scope, rows []denylistdb.RebuildIPBlocksRow, out *store.Result) error {
	var made, replaced, changed []wire.BlockChange
	var madeAt, replacedAt []time.Time
	for _, r := range rows {
		b := wire.BlockChange{
			Scope: scope, Target: r.Target, BlockedUntil: r.BlockedUntil, Since: r.Since,
			Version: r.Version, Reason: r.Reason, By: r.By,
		}
		switch {
		case !r.Existed:
			made, madeAt = append(made, b), append(madeAt, r.Changed)
		case r.Version > r.OldVersion:
			replaced, replacedAt = append(replaced, b), append(replacedAt, r.Changed)
		default:
			changed = append(changed, b)
		}
	}
	if _, err := s.writeBlocks(ctx, tx, scope, true, blockColumns(made, madeAt)); err != nil {
		return err
	}
	if _, err := s.writeBlocks(ctx, tx, scope, false, blockColumns(replaced, replacedAt)); err != nil {
		return err
	}
	if len(changed) == 0 {
		return nil
	}
	if err := s.enter(ctx, tx, mode{writer: projector, scan: true}); err != nil {
		return err
	}
	now, err := s.queries.Now(ctx, tx)
	if err != nil {
		return err
	}
	if _, err := s.writeBlocks(ctx, tx, scope, false, newVersions(changed, now)); err != nil {
		return err
	}
	out.Changes += len(changed)
	return s.enter(ctx, tx, mode{writer: replay, scan: true})
}
