package pgstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ccnq/ccnq/services/denylist/internal/store"
	"github.com/ccnq/ccnq/services/denylist/internal/store/denylistdb"
)

// attempts is how often a transaction is tried that met somebody else's.
const attempts = 3

// Store is the projection in Postgres. Make one with [New].
type Store struct {
	pool     *pgxpool.Pool
	queries  *denylistdb.Queries
	settings store.Settings
	clock    func() time.Time
}

// New returns a store on the schema that is first in the search path of the
// pool's connections. The schema must have been migrated (package db). The
// pool stays the caller's; it must outlive the store. A nil clock is the
// database's.
func New(pool *pgxpool.Pool, settings store.Settings, clock func() time.Time) *Store {
	return &Store{pool: pool, queries: denylistdb.New(), settings: settings, clock: clock}
}

// writer says to the triggers what a transaction does, see the migration.
type writer string

const (
	projector writer = "projector"
	request   writer = "request"
	replay    writer = "replay"
)

// mode is how a transaction runs.
type mode struct {
	writer writer
	// forgive marks lifts as forgiving.
	forgive bool
	// scan allows the planner to read whole tables, and takes as long as it
	// needs.
	scan bool
}

// errMeanwhile means that somebody else changed what the transaction had read:
// an operator's SQL on the counts.
var errMeanwhile = errors.New("counts were changed meanwhile")

// passes reports whether the same transaction may well succeed right away.
func passes(err error) bool {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch pg.Code {
		case "40P01", "40001", "23505": // deadlock, serialization, a row that exists already
			return true
		}
	}
	return errors.Is(err, errMeanwhile)
}

// tx runs do in a transaction, again if somebody else was in the way.
func (s *Store) tx(ctx context.Context, name string, m mode, do func(context.Context, pgx.Tx) error) error {
	var err error
	for range attempts {
		err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
			if err := s.enter(ctx, tx, m); err != nil {
				return err
			}
			return do(ctx, tx)
		})
		if !passes(err) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("denylist %s: %w", name, err)
	}
	return nil
}

// enter tells the transaction what it does. It may be called again within one.
func (s *Store) enter(ctx context.Context, tx pgx.Tx, m mode) error {
	p := denylistdb.EnterParams{Writer: string(m.writer), Scan: onOff(m.scan), Forgive: onOff(m.forgive)}
	if s.clock != nil {
		p.Now = store.Instant(s.clock()).Format(time.RFC3339Nano)
	}
	if m.scan {
		if _, err := tx.Exec(ctx, "SET LOCAL statement_timeout = 0"); err != nil {
			return err
		}
	}
	return s.queries.Enter(ctx, tx, p)
}

func onOff(b bool) string {
	if b {
		return "on"
	}
	return "off"
}

// lead runs do as the leader: with the checkpoint locked, and the epoch
// checked.
func (s *Store) lead(ctx context.Context, name string, m mode, epoch int64,
	do func(context.Context, pgx.Tx, store.Checkpoint) error,
) error {
	return s.tx(ctx, name, m, func(ctx context.Context, tx pgx.Tx) error {
		row, err := s.queries.LockCheckpoint(ctx, tx)
		if err != nil {
			return err
		}
		if err := s.leads(ctx, tx, epoch); err != nil {
			return err
		}
		return do(ctx, tx, checkpoint(row.Created, row.Seq))
	})
}

func (s *Store) leads(ctx context.Context, tx pgx.Tx, epoch int64) error {
	ok, err := s.queries.Leads(ctx, tx, epoch)
	if err == nil && !ok {
		return store.ErrNotLeader
	}
	return err
}

// Lead implements [store.Store].
func (s *Store) Lead(ctx context.Context, holder string, ttl time.Duration) (int64, bool, error) {
	var epoch int64
	err := s.tx(ctx, "lead", mode{}, func(ctx context.Context, tx pgx.Tx) (err error) {
		epoch, err = s.queries.Lead(ctx, tx, denylistdb.LeadParams{Holder: holder, Ttl: ttl})
		return err
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, false, nil
	}
	return epoch, err == nil, err
}

// Resign implements [store.Store].
func (s *Store) Resign(ctx context.Context, epoch int64) error {
	return s.tx(ctx, "resign", mode{}, func(ctx context.Context, tx pgx.Tx) error {
		n, err := s.queries.Resign(ctx, tx, epoch)
		if err == nil && n == 0 {
			return store.ErrNotLeader
		}
		return err
	})
}

// Checkpoint implements [store.Store].
func (s *Store) Checkpoint(ctx context.Context) (store.Checkpoint, error) {
	row, err := s.queries.GetCheckpoint(ctx, s.pool)
	if err != nil {
		return store.Checkpoint{}, fmt.Errorf("denylist checkpoint: %w", err)
	}
	return checkpoint(row.Created, row.Seq), nil
}

func checkpoint(created *time.Time, seq int64) store.Checkpoint {
	c := store.Checkpoint{Seq: uint64(seq)}
	if created != nil {
		c.Created = created.UTC()
	}
	return c
}

// Reset implements [store.Store].
func (s *Store) Reset(ctx context.Context, epoch int64, created time.Time) error {
	return s.lead(ctx, "reset", mode{writer: projector}, epoch, func(ctx context.Context, tx pgx.Tx, _ store.Checkpoint) error {
		return s.queries.MoveCheckpoint(ctx, tx, denylistdb.MoveCheckpointParams{Created: store.Instant(created)})
	})
}

var _ store.Store = (*Store)(nil)
