package pgstore

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ccnq/ccnq/pkg/wire"
	"github.com/ccnq/ccnq/services/denylist/internal/store"
	"github.com/ccnq/ccnq/services/denylist/internal/store/denylistdb"
)

// Block implements [store.Store].
func (s *Store) Block(ctx context.Context, o store.Order, d time.Duration) (wire.BlockChange, error) {
	var b wire.BlockChange
	err := s.tx(ctx, "block", mode{writer: request}, func(ctx context.Context, tx pgx.Tx) error {
		was, now, err := s.lockBlock(ctx, tx, o)
		if err != nil {
			return err
		}
		b = was
		end := store.End(now, min(d, wire.MaxBlock))
		if !end.After(was.BlockedUntil) {
			return nil
		}
		if !was.BlockedUntil.After(now) {
			b.Since = now
		}
		b.BlockedUntil, b.Reason, b.By = store.Instant(end), o.Reason, o.By
		versions, err := s.writeBlocks(ctx, tx, o.Scope, was.Version == 0, newVersions([]wire.BlockChange{b}, now))
		if err == nil {
			b.Version = versions[0]
		}
		return err
	})
	if err != nil {
		return wire.BlockChange{}, err
	}
	return b, nil
}

// lockBlock reads the block that the order is about, which then cannot change,
// and the time.
func (s *Store) lockBlock(ctx context.Context, tx pgx.Tx, o store.Order) (b wire.BlockChange, now time.Time, err error) {
	if err := s.queries.LockBlocks(ctx, tx); err != nil {
		return b, now, err
	}
	if now, err = s.queries.Now(ctx, tx); err != nil {
		return b, now, err
	}
	known, err := s.blocksOf(ctx, tx, o.Scope, []string{o.Text()})
	b = known[o.Text()]
	b.Scope, b.Target = o.Scope, o.Text()
	return b, now.UTC(), err
}

// Unblock implements [store.Store].
func (s *Store) Unblock(ctx context.Context, o store.Order, keepCounts bool) (store.Lifted, error) {
	var out store.Lifted
	m := mode{writer: request, forgive: !keepCounts, scan: true}
	err := s.tx(ctx, "unblock", m, func(ctx context.Context, tx pgx.Tx) (err error) {
		out = store.Lifted{}
		if !keepCounts {
			if out.Forgiven, err = s.forgive(ctx, tx, o); err != nil {
				return err
			}
		}
		b, now, err := s.lockBlock(ctx, tx, o)
		if err != nil {
			return err
		}
		out.Lifted = b.BlockedUntil.After(now)
		switch {
		case out.Lifted:
			b.BlockedUntil, b.Reason, b.By = now, o.Reason, o.By
			versions, err := s.writeBlocks(ctx, tx, o.Scope, false, newVersions([]wire.BlockChange{b}, now))
			if err == nil {
				out.Version = versions[0]
			}
			return err
		case out.Forgiven > 0:
			out.Version, err = s.queries.NoteLift(ctx, tx, denylistdb.NoteLiftParams{
				Scope: string(o.Scope), Target: o.Text(), Reason: text(o.Reason), By: text(o.By),
			})
		}
		return err
	})
	if err != nil {
		return store.Lifted{}, err
	}
	return out, nil
}

// forgive removes the counts of the target, and returns how many. No batch is
// applied meanwhile.
func (s *Store) forgive(ctx context.Context, tx pgx.Tx, o store.Order) (int, error) {
	if _, err := s.queries.LockCheckpoint(ctx, tx); err != nil {
		return 0, err
	}
	var n int64
	var err error
	if o.Scope == wire.ScopeIP {
		n, err = s.queries.ForgiveIP(ctx, tx, o.Text())
	} else {
		n, err = s.queries.ForgiveRange(ctx, tx, o.Text())
	}
	return int(n), err
}
