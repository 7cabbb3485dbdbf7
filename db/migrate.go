package db

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
)

// closeWait bounds the farewell of a connection.
const closeWait = 5 * time.Second

//go:embed migrations/*.sql
var migrations embed.FS

// Migrate creates the schema if it is missing and runs every migration in it
// that has not run yet. It may be called by many processes at once and is
// idempotent.
//
// It waits up to [LockWait] for another process that is migrating the same
// schema, less if ctx ends before. The connection must be a session of its
// own: a pooler that shares sessions between transactions (PgBouncer in
// transaction mode) loses the lock, so cfg must point past it. Migrate sets
// the search path itself, whatever the role, the database or cfg say, and
// lifts statement_timeout and lock_timeout for its session. The role needs the
// right to create the schema only if it does not exist.
//
// An invalid name gives an error that wraps [ErrSchema]; a wait that runs out
// gives one that wraps [ErrLocked] or the error of ctx.
func Migrate(ctx context.Context, cfg *pgx.ConnConfig, schema string) error {
	if err := CheckSchema(schema); err != nil {
		return err
	}
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return fmt.Errorf("migrate schema %s: %w", schema, err)
	}
	// The timeouts of a service are not meant for migrations; prepare lifts
	// those of the role.
	cfg = cfg.Copy()
	delete(cfg.RuntimeParams, "statement_timeout")
	delete(cfg.RuntimeParams, "lock_timeout")
	// goose looks for pending migrations, and creates its table, before it would
	// take a lock of its own. So the lock is part of opening the connection, and
	// one connection is all that goose gets. Closing it gives the lock back.
	conn := stdlib.OpenDB(*cfg, stdlib.OptionAfterConnect(func(ctx context.Context, conn *pgx.Conn) error {
		err := prepare(ctx, conn, schema)
		if err != nil {
			// The caller of this function would leave the connection open, and
			// with it the lock.
			closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWait)
			defer cancel()
			err = errors.Join(err, conn.Close(closing))
		}
		return err
	}))
	conn.SetMaxOpenConns(1)
	defer conn.Close()
	provider, err := goose.NewProvider(goose.DialectPostgres, conn, files,
		goose.WithDisableGlobalRegistry(true),
		goose.WithLogger(goose.NopLogger()))
	if err != nil {
		return fmt.Errorf("migrate schema %s: %w", schema, err)
	}
	if _, err := provider.Up(ctx); err != nil {
		return fmt.Errorf("migrate schema %s: %w", schema, err)
	}
	return nil
}
