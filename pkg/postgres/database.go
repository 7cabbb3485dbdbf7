package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ccnq/ccnq/db"
)

// ErrSearchPath means that the pool's connections do not see the tables.
var ErrSearchPath = errors.New("the schema is not in the search path; " +
	"behind a pooler run ALTER ROLE … SET search_path for the user")

// Database is a service's database. It is safe for concurrent use.
type Database struct {
	pool   *pgxpool.Pool
	direct *pgx.ConnConfig
	schema string
	table  string
}

// Open returns a database that connects when it is used, as application in
// pg_stat_activity. Table is one of the service's own, which shows that the
// migrations are visible. An error means that the settings are no good.
func (c Config) Open(ctx context.Context, application, table string) (*Database, error) {
	direct, err := c.direct()
	if err != nil {
		return nil, err
	}
	cfg, err := c.pooled()
	if err != nil {
		return nil, err
	}
	direct.RuntimeParams["application_name"] = application
	cfg.ConnConfig.RuntimeParams["application_name"] = application
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return &Database{pool: pool, direct: direct, schema: c.Schema, table: table}, nil
}

// Pool returns the pool, which is closed with the database.
func (d *Database) Pool() *pgxpool.Pool { return d.pool }

// Session opens a connection of its own, past a pooler if there is one. The
// caller closes it.
func (d *Database) Session(ctx context.Context) (*pgx.Conn, error) {
	return pgx.ConnectConfig(ctx, d.direct.Copy())
}

// Ping asks for a sign of life.
func (d *Database) Ping(ctx context.Context) error { return d.pool.Ping(ctx) }

// Prepare makes the database usable, which may have been replaced by an empty
// one since it was seen last. It fails soon if the database is away, and with
// [ErrSearchPath] if the tables exist and are not seen.
func (d *Database) Prepare(ctx context.Context) error {
	ping, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	if err := d.Ping(ping); err != nil {
		return err
	}
	if err := db.Migrate(ctx, d.direct, d.schema); err != nil {
		return err
	}
	var visible bool
	if err := d.pool.QueryRow(ctx, `SELECT to_regclass($1) IS NOT NULL`, d.table).Scan(&visible); err != nil {
		return err
	}
	if !visible {
		return ErrSearchPath
	}
	return nil
}

// Close closes the pool, and waits for what is out of it.
func (d *Database) Close() { d.pool.Close() }
