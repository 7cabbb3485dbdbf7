package coordinator

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ccnq/ccnq/db"
)

const (
	applicationName = "ccnq-queue-coordinator"
	// pgConnectTimeout bounds a new connection: a database that is away must
	// not be waited for.
	pgConnectTimeout = 2 * time.Second
	// pgPingTimeout bounds the check of a connection that was idle.
	pgPingTimeout = 500 * time.Millisecond
	pgHealthCheck = 10 * time.Second
)

// errSearchPath means that the pool's connections do not see the tables.
var errSearchPath = errors.New("the schema is not in the search path; " +
	"behind a pooler run ALTER ROLE … SET search_path for the user")

// validate returns one message for each problem.
func (p Postgres) validate() []string {
	if p.CAFile != "" {
		if p.SSLMode != "verify-ca" && p.SSLMode != "verify-full" {
			return []string{"CCNQ_PG_CA_FILE: has no effect unless CCNQ_PG_SSLMODE is verify-ca or verify-full"}
		}
		if _, err := os.ReadFile(p.CAFile); err != nil {
			return []string{"CCNQ_PG_CA_FILE: " + err.Error()}
		}
	}
	var problems []string
	if _, err := p.pooled(); err != nil {
		problems = append(problems, "CCNQ_PG_HOST: "+err.Error())
	}
	if _, err := p.direct(); err != nil && p.DirectURL != "" {
		problems = append(problems, "CCNQ_PG_DIRECT_URL: the value (not shown) is not the address of a Postgres database")
	}
	return problems
}

// pooled returns how the pool connects.
func (p Postgres) pooled() (*pgxpool.Config, error) {
	query := url.Values{
		"host": {p.Host}, "port": {strconv.Itoa(p.Port)}, "user": {p.User}, "password": {p.Password},
		"dbname": {p.Database}, "sslmode": {p.SSLMode},
	}
	if p.CAFile != "" {
		query.Set("sslrootcert", p.CAFile)
	}
	// As in libpq, a plus sign stands for itself.
	cfg, err := pgxpool.ParseConfig("postgres://?" + strings.ReplaceAll(query.Encode(), "+", "%20"))
	if err != nil {
		// The outer error repeats all settings, the password among them.
		return nil, fmt.Errorf("these settings cannot be used: %w", errors.Unwrap(err))
	}
	cfg.MaxConns = int32(p.PoolMax)
	cfg.HealthCheckPeriod = pgHealthCheck
	cfg.PingTimeout = pgPingTimeout
	cfg.ConnConfig.ConnectTimeout = pgConnectTimeout
	cfg.ConnConfig.RuntimeParams["application_name"] = applicationName
	if p.DirectURL == "" {
		// A transaction pooler refuses these, or applies them to whichever
		// session comes next.
		cfg.ConnConfig.RuntimeParams["search_path"] = p.Schema
		cfg.ConnConfig.RuntimeParams["statement_timeout"] = strconv.FormatInt(p.StatementTimeout.Duration().Milliseconds(), 10)
	}
	return cfg, nil
}

// direct returns how migrations connect.
func (p Postgres) direct() (*pgx.ConnConfig, error) {
	if p.DirectURL == "" {
		cfg, err := p.pooled()
		if err != nil {
			return nil, err
		}
		return cfg.ConnConfig, nil
	}
	cfg, err := pgx.ParseConfig(p.DirectURL)
	if err != nil {
		return nil, err
	}
	cfg.ConnectTimeout = pgConnectTimeout
	cfg.RuntimeParams["application_name"] = applicationName
	return cfg, nil
}

// database is the pool, and how to make the database usable.
type database struct {
	pool   *pgxpool.Pool
	direct *pgx.ConnConfig
	schema string
}

// open returns a pool that connects when it is used.
func (p Postgres) open(ctx context.Context) (*database, error) {
	direct, err := p.direct()
	if err != nil {
		return nil, err
	}
	cfg, err := p.pooled()
	if err != nil {
		return nil, err
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return &database{pool: pool, direct: direct, schema: p.Schema}, nil
}

// ping asks for a sign of life.
func (d *database) ping(ctx context.Context) error { return d.pool.Ping(ctx) }

// prepare makes the database usable, which may have been replaced by an empty
// one since it was seen last. It fails soon if the database is away.
func (d *database) prepare(ctx context.Context) error {
	ping, cancel := context.WithTimeout(ctx, pgConnectTimeout)
	defer cancel()
	if err := d.ping(ping); err != nil {
		return err
	}
	if err := db.Migrate(ctx, d.direct, d.schema); err != nil {
		return err
	}
	var visible bool
	if err := d.pool.QueryRow(ctx, `SELECT to_regclass('group_state') IS NOT NULL`).Scan(&visible); err != nil {
		return err
	}
	if !visible {
		return errSearchPath
	}
	return nil
}
