package db

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
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

// prepare makes a new session fit for migrations: it lifts the timeouts, takes
// the lock, creates the schema and makes it the search path. The lock goes
// with the session.
func prepare(ctx context.Context, conn *pgx.Conn, schema string) error {
	const unlimited = `SELECT set_config('statement_timeout', '0', false), set_config('lock_timeout', '0', false)`
	if _, err := conn.Exec(ctx, unlimited); err != nil {
		return fmt.Errorf("lift timeouts: %w", err)
	}
	if err := acquire(ctx, conn, lockKey(schema)); err != nil {
		return err
	}
	if err := create(ctx, conn, schema); err != nil {
		return err
	}
	return enter(ctx, conn, schema)
}

func acquire(ctx context.Context, conn *pgx.Conn, key int64) error {
	ctx, cancel := context.WithTimeoutCause(ctx, LockWait, fmt.Errorf("%w for %s", ErrLocked, LockWait))
	defer cancel()
	poll := time.NewTicker(lockPoll)
	defer poll.Stop()
	for {
		var got bool
		err := conn.QueryRow(ctx, `SELECT pg_try_advisory_lock($1)`, key).Scan(&got)
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
			return fmt.Errorf("wait for the migration lock: %w", context.Cause(ctx))
		case <-poll.C:
		}
	}
}

// create makes the schema unless it exists. CREATE SCHEMA IF NOT EXISTS alone
// would ask for the right to create even when the schema exists.
func create(ctx context.Context, conn *pgx.Conn, schema string) error {
	var exists bool
	err := conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)`, schema).Scan(&exists)
	if err != nil {
		return fmt.Errorf("look for the schema: %w", err)
	}
	if exists {
		return nil
	}
	if _, err := conn.Exec(ctx, `CREATE SCHEMA `+pgx.Identifier{schema}.Sanitize()); err != nil {
		return fmt.Errorf("create the schema: %w", err)
	}
	return nil
}

// enter makes the schema the search path of the session.
func enter(ctx context.Context, conn *pgx.Conn, schema string) error {
	path := pgx.Identifier{schema}.Sanitize()
	if _, err := conn.Exec(ctx, `SELECT set_config('search_path', $1, false)`, path); err != nil {
		return fmt.Errorf("set the search path: %w", err)
	}
	// Postgres skips a schema in the path that the role may not use.
	var current *string
	if err := conn.QueryRow(ctx, `SELECT current_schema()`).Scan(&current); err != nil {
		return fmt.Errorf("read the search path: %w", err)
	}
	if current == nil || *current != schema {
		return fmt.Errorf("the role has no USAGE on schema %s", schema)
	}
	return nil
}
