package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/pressly/goose/v3/lock"
)

// LockWait bounds how long [Migrate] waits for another process that migrates
// the same schema.
const LockWait = 2 * time.Minute

// lockPoll is the pause between two attempts to take the lock. Attempts are
// repeated rather than left to wait in Postgres, because a waiting statement
// holds a snapshot, and a migration with CREATE INDEX CONCURRENTLY in the
// process that has the lock would wait for that snapshot.
const lockPoll = 50 * time.Millisecond

// ErrLocked is wrapped by the error of [Migrate] when another process holds
// the lock for longer than [LockWait].
var ErrLocked = errors.New("another process is migrating")

// locker prepares the one connection on which goose works: lock, schema,
// search path, in this order.
type locker struct {
	schema string
	key    int64
}

var _ lock.SessionLocker = (*locker)(nil)

func newLocker(schema string) *locker {
	return &locker{schema: schema, key: lockKey(schema)}
}

// SessionLock takes the lock, creates the schema and makes it the search path
// of the session.
func (l *locker) SessionLock(ctx context.Context, conn *sql.Conn) error {
	const unlimited = `SELECT set_config('statement_timeout', '0', false), set_config('lock_timeout', '0', false)`
	if _, err := conn.ExecContext(ctx, unlimited); err != nil {
		return fmt.Errorf("lift timeouts: %w", err)
	}
	if err := l.acquire(ctx, conn); err != nil {
		return err
	}
	if err := l.enter(ctx, conn); err != nil {
		return errors.Join(err, l.SessionUnlock(context.WithoutCancel(ctx), conn))
	}
	return nil
}

// SessionUnlock gives the lock back.
func (l *locker) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	if _, err := conn.ExecContext(ctx, `SELECT pg_advisory_unlock($1)`, l.key); err != nil {
		return fmt.Errorf("unlock: %w", err)
	}
	return nil
}

func (l *locker) acquire(ctx context.Context, conn *sql.Conn) error {
	ctx, cancel := context.WithTimeoutCause(ctx, LockWait, fmt.Errorf("%w for %s", ErrLocked, LockWait))
	defer cancel()
	poll := time.NewTicker(lockPoll)
	defer poll.Stop()
	for {
		var got bool
		err := conn.QueryRowContext(ctx, `SELECT pg_try_advisory_lock($1)`, l.key).Scan(&got)
		if ctx.Err() != nil {
			return fmt.Errorf("wait for the migration lock: %w", context.Cause(ctx))
		}
		if err != nil {
			return fmt.Errorf("take the migration lock: %w", err)
		}
		if got {
			return nil
		}
		select {
		case <-ctx.Done():
		case <-poll.C:
		}
	}
}

// enter creates the schema and makes it the session's search path.
func (l *locker) enter(ctx context.Context, conn *sql.Conn) error {
	// CREATE SCHEMA IF NOT EXISTS asks for the right to create even when the
	// schema exists, so look first.
	var exists bool
	err := conn.QueryRowContext(ctx, `SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)`, l.schema).Scan(&exists)
	if err != nil {
		return fmt.Errorf("look for the schema: %w", err)
	}
	quoted := pgx.Identifier{l.schema}.Sanitize()
	if !exists {
		if _, err := conn.ExecContext(ctx, `CREATE SCHEMA `+quoted); err != nil {
			return fmt.Errorf("create the schema: %w", err)
		}
	}
	if _, err := conn.ExecContext(ctx, `SELECT set_config('search_path', $1, false)`, quoted); err != nil {
		return fmt.Errorf("set the search path: %w", err)
	}
	var current sql.NullString
	if err := conn.QueryRowContext(ctx, `SELECT current_schema()`).Scan(&current); err != nil {
		return fmt.Errorf("read the search path: %w", err)
	}
	if current.String != l.schema {
		return fmt.Errorf("the role has no USAGE on schema %s", l.schema)
	}
	return nil
}
