package postgres

import (
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
	"github.com/ccnq/ccnq/pkg/config"
)

const (
	// connectTimeout bounds a new connection: a database that is away must not
	// be waited for.
	connectTimeout = 2 * time.Second
	// pingTimeout bounds the check of a connection that was idle.
	pingTimeout = 500 * time.Millisecond
	healthCheck = 10 * time.Second
)

// Config is the part of a service's environment that says where the database
// is. Names and defaults of cork-cache-n-queue are kept.
type Config struct {
	Host             string        `env:"CCNQ_PG_HOST" envDefault:"localhost" doc:"Postgres host, or the folder of its socket"`
	Port             int           `env:"CCNQ_PG_PORT" envDefault:"5432" min:"1" max:"65535" doc:"Postgres port"`
	User             string        `env:"CCNQ_PG_USER" envDefault:"postgres" doc:"Postgres user"`
	Password         string        `env:"CCNQ_PG_PASSWORD" envDefault:"postgres" secret:"true" doc:"Postgres password"`
	Database         string        `env:"CCNQ_PG_DATABASE" envDefault:"postgres" doc:"Postgres database"`
	Schema           string        `env:"CCNQ_PG_SCHEMA" envDefault:"queue" doc:"schema of the tables and functions"`
	PoolMax          int           `env:"CCNQ_PG_POOL_MAX" envDefault:"10" min:"2" max:"1000" doc:"connections at most"`
	StatementTimeout config.Millis `env:"CCNQ_PG_STATEMENT_TIMEOUT_MS" envDefault:"5000" min:"100" doc:"limit for a statement that has none of its own"`
	SSLMode          string        `env:"CCNQ_PG_SSLMODE" envDefault:"prefer" enum:"disable,allow,prefer,require,verify-ca,verify-full" doc:"TLS to Postgres, as in libpq"`
	CAFile           string        `env:"CCNQ_PG_CA_FILE" doc:"certificate authorities (PEM) that verify Postgres; needs CCNQ_PG_SSLMODE verify-ca or verify-full"`
	DirectURL        string        `env:"CCNQ_PG_DIRECT_URL" secret:"true" doc:"address (postgres://…) past a transaction pooler, for migrations and notifications; the user's search_path must then name the schema"`
}

// Validate returns one message for each problem, which names the variable.
func (c Config) Validate() []string {
	var problems []string
	if err := db.CheckSchema(c.Schema); err != nil {
		problems = append(problems, "CCNQ_PG_SCHEMA: "+err.Error())
	}
	if c.CAFile != "" {
		if c.SSLMode != "verify-ca" && c.SSLMode != "verify-full" {
			return append(problems, "CCNQ_PG_CA_FILE: has no effect unless CCNQ_PG_SSLMODE is verify-ca or verify-full")
		}
		if _, err := os.ReadFile(c.CAFile); err != nil {
			return append(problems, "CCNQ_PG_CA_FILE: "+err.Error())
		}
	}
	if _, err := c.pooled(); err != nil {
		problems = append(problems, "CCNQ_PG_HOST: "+err.Error())
	}
	if _, err := c.direct(); err != nil && c.DirectURL != "" {
		problems = append(problems, "CCNQ_PG_DIRECT_URL: the value (not shown) is not the address of a Postgres database")
	}
	return problems
}

// pooled returns how the pool connects.
func (c Config) pooled() (*pgxpool.Config, error) {
	query := url.Values{
		"host": {c.Host}, "port": {strconv.Itoa(c.Port)}, "user": {c.User}, "password": {c.Password},
		"dbname": {c.Database}, "sslmode": {c.SSLMode},
	}
	if c.CAFile != "" {
		query.Set("sslrootcert", c.CAFile)
	}
	// As in libpq, a plus sign stands for itself.
	cfg, err := pgxpool.ParseConfig("postgres://?" + strings.ReplaceAll(query.Encode(), "+", "%20"))
	if err != nil {
		// The outer error repeats all settings, the password among them.
		return nil, fmt.Errorf("these settings cannot be used: %w", errors.Unwrap(err))
	}
	cfg.MaxConns = int32(c.PoolMax)
	cfg.HealthCheckPeriod = healthCheck
	cfg.PingTimeout = pingTimeout
	cfg.ConnConfig.ConnectTimeout = connectTimeout
	if c.DirectURL == "" {
		// A transaction pooler refuses these, or applies them to whichever
		// session comes next.
		cfg.ConnConfig.RuntimeParams["search_path"] = c.Schema
		cfg.ConnConfig.RuntimeParams["statement_timeout"] = strconv.FormatInt(c.StatementTimeout.Duration().Milliseconds(), 10)
	}
	return cfg, nil
}

// direct returns how a session of its own connects.
func (c Config) direct() (*pgx.ConnConfig, error) {
	if c.DirectURL == "" {
		cfg, err := c.pooled()
		if err != nil {
			return nil, err
		}
		return cfg.ConnConfig, nil
	}
	cfg, err := pgx.ParseConfig(c.DirectURL)
	if err != nil {
		return nil, err
	}
	cfg.ConnectTimeout = connectTimeout
	return cfg, nil
}
