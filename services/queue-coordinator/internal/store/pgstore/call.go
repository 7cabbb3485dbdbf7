package pgstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/ccnq/ccnq/pkg/wire"
	"github.com/ccnq/ccnq/services/queue-coordinator/internal/store"
	"github.com/ccnq/ccnq/services/queue-coordinator/internal/store/queuedb"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Causes of a failed call that this package tells apart.
var (
	errLocked  = errors.New("lock timeout")
	errTimeout = errors.New("statement timeout")
)

// grace is how much longer than its statement a call may take before the
// connection is given up: the database does not answer at all.
const grace = 250 * time.Millisecond

// form is how a call takes its locks.
type form struct {
	// lock is how long it waits for each.
	lock time.Duration
	// skip leaves out groups that are locked. (A lock on a single request, or
	// on a group that is new, cannot be left out and fails the call.)
	skip bool
	// renew also renews the leases of the edges, and keeps those rows locked
	// until the call ends. Forms that may run long and often do not.
	renew bool
}

var (
	firstTry  = form{lock: 200 * time.Millisecond, renew: true}
	secondTry = form{lock: 200 * time.Millisecond, skip: true}
	// The slow lane tries all its groups together, then those that are locked
	// each apart: waiting is what gets a turn at a row that others lock all
	// the time for short.
	together = form{lock: 20 * time.Millisecond, skip: true}
	apart    = form{lock: 20 * time.Millisecond}
)

// call runs the function for the batch, whose ids are distinct.
func (s *Store) call(ctx context.Context, b batch, how form) ([]queuedb.QueueEvent, error) {
	var (
		ids    = make([]wire.RequestID, len(b.ops))
		groups = make([]string, len(b.ops))
		edges  = make([]string, len(b.ops))
		lease  *time.Duration
	)
	for i := range b.ops {
		ids[i], groups[i], edges[i] = b.ops[i].ID, b.ops[i].Group, b.ops[i].EdgeID
	}
	if how.renew {
		lease = &b.limits.Lease
	}
	limit := time.Until(b.soonest())
	return run(ctx, s, b.kind.String(), limit, how.lock, func(ctx context.Context, db queuedb.DBTX) ([]queuedb.QueueEvent, error) {
		switch b.kind {
		case release:
			return s.queries.ReleaseAndPromote(ctx, db, queuedb.ReleaseAndPromoteParams{
				Ids: ids, Groups: groups, Edges: edges, MaxServed: int32(b.limits.MaxServed),
				Lease: lease, Skip: how.skip, Now: s.now(),
			})
		case cancel:
			return s.queries.ExpirePending(ctx, db, queuedb.ExpirePendingParams{
				Ids: ids, Groups: groups, Edges: edges, MaxServed: int32(b.limits.MaxServed),
				Lease: lease, Skip: how.skip, Now: s.now(),
			})
		default:
			modes := make([]string, len(b.ops))
			for i := range b.ops {
				modes[i] = string(b.ops[i].mode)
			}
			return s.queries.Admit(ctx, db, queuedb.AdmitParams{
				Ids: ids, Groups: groups, Edges: edges, Modes: modes,
				MaxServed: int32(b.limits.MaxServed), MaxPending: int32(b.limits.MaxPending),
				Lease: lease, Stale: b.limits.StaleActive, Skip: how.skip, Now: s.now(),
			})
		}
	})
}

// run calls query with the timeouts in force, and once more if the failure was
// one that passes. The error is a store error or wraps the cause.
func run[T any](ctx context.Context, s *Store, name string, limit, lock time.Duration,
	query func(context.Context, queuedb.DBTX) (T, error),
) (T, error) {
	ctx, stop := context.WithTimeout(ctx, limit+grace)
	defer stop()
	db := timed{pool: s.pool, statement: limit, lock: min(lock, limit/2)}
	out, err := query(ctx, db)
	if err != nil && passes(err) && ctx.Err() == nil {
		out, err = query(ctx, db)
	}
	if err != nil {
		return out, fmt.Errorf("queue %s: %w", name, cause(err))
	}
	return out, nil
}

// passes reports whether the same call may well succeed right away.
func passes(err error) bool {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Code == "40P01" || pg.Code == "40001" // deadlock, serialization failure
	}
	return pgconn.SafeToRetry(err)
}

// cause translates what the database says.
func cause(err error) error {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch pg.Code {
		case "55P03":
			return errLocked
		case "57014":
			return errTimeout
		}
	}
	return err
}

// public turns the causes that callers know nothing of into store errors.
func public(err error) error {
	switch {
	case errors.Is(err, errLocked):
		return fmt.Errorf("%w: %w", store.ErrBusy, err)
	case errors.Is(err, errTimeout):
		return fmt.Errorf("%w: %w", store.ErrExpired, err)
	}
	return err
}

// timed is a pool on which each query is a transaction of its own with its own
// timeouts, in one round trip.
type timed struct {
	pool            *pgxpool.Pool
	statement, lock time.Duration
}

const setTimeouts = `SELECT set_config('statement_timeout', $1, true), set_config('lock_timeout', $2, true)`

// Query implements [queuedb.DBTX].
func (t timed) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	var b pgx.Batch
	b.Queue(setTimeouts, millis(t.statement), millis(t.lock))
	b.Queue(sql, args...)
	results := t.pool.SendBatch(ctx, &b)
	if _, err := results.Exec(); err != nil {
		return nil, errors.Join(err, results.Close())
	}
	rows, err := results.Query()
	if err != nil {
		return nil, errors.Join(err, results.Close())
	}
	return &timedRows{Rows: rows, results: results}, nil
}

// QueryRow implements [queuedb.DBTX].
func (t timed) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	rows, err := t.Query(ctx, sql, args...)
	return timedRow{rows, err}
}

// Exec implements [queuedb.DBTX].
func (t timed) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	rows, err := t.Query(ctx, sql, args...)
	if err != nil {
		return pgconn.CommandTag{}, err
	}
	rows.Close()
	return rows.CommandTag(), rows.Err()
}

// millis writes a timeout for Postgres, where 0 would mean none.
func millis(d time.Duration) string {
	return strconv.FormatInt(max(d.Milliseconds(), 1), 10)
}

// timedRows ends the transaction with the rows.
type timedRows struct {
	pgx.Rows
	results pgx.BatchResults
	err     error
}

// Close ends the transaction, whose commit may be what fails.
func (r *timedRows) Close() {
	r.Rows.Close()
	if r.results != nil {
		r.err = r.results.Close()
		r.results = nil
	}
}

// Next closes the rows after the last.
func (r *timedRows) Next() bool {
	if r.Rows.Next() {
		return true
	}
	r.Close()
	return false
}

// Err returns the error of the rows or of the commit.
func (r *timedRows) Err() error {
	if err := r.Rows.Err(); err != nil {
		return err
	}
	return r.err
}

// timedRow is the first of some rows.
type timedRow struct {
	rows pgx.Rows
	err  error
}

// Scan implements [pgx.Row].
func (r timedRow) Scan(dest ...any) error {
	if r.err != nil {
		return r.err
	}
	defer r.rows.Close()
	if !r.rows.Next() {
		if err := r.rows.Err(); err != nil {
			return err
		}
		return pgx.ErrNoRows
	}
	if err := r.rows.Scan(dest...); err != nil {
		return err
	}
	r.rows.Close()
	return r.rows.Err()
}
