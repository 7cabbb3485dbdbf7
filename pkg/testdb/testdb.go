package testdb

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ccnq/ccnq/db"
	"github.com/ccnq/ccnq/pkg/testdb/internal/pgserver"
	"github.com/jackc/pgx/v5"
)

// cleanupWait bounds the work at the end of a test.
const cleanupWait = time.Minute

// DB is a migrated schema that belongs to one test.
type DB struct {
	// Schema is the name of the schema.
	Schema string
	// URL is the address of the database, with Schema as the search path.
	URL string
}

// New returns a fresh schema with all migrations run, and drops it when the
// test ends. Connections to it must be closed by then.
func New(t testing.TB) DB {
	t.Helper()
	server, err := shared()
	if err != nil {
		t.Fatalf("testdb: %v", err)
	}
	d := named(t, server.address)
	if err := db.Migrate(t.Context(), d.Config(), d.Schema); err != nil {
		t.Fatalf("testdb: %v", err)
	}
	return d
}

// Config returns a new connection configuration with Schema as the search
// path.
func (d DB) Config() *pgx.ConnConfig {
	cfg, err := pgx.ParseConfig(d.URL)
	if err != nil {
		panic(fmt.Sprintf("testdb: %v", err)) // New has parsed it already
	}
	return cfg
}

// named returns a random name in the database at address, for a schema that
// does not exist yet and that is dropped when the test ends.
func named(t testing.TB, address string) DB {
	t.Helper()
	schema := "test_" + strings.ToLower(rand.Text())
	at, err := url.Parse(address)
	if err != nil {
		t.Fatalf("testdb: %s is not a URL", pgserver.URLVariable) // the error would repeat the password
	}
	query := at.Query()
	query.Set("search_path", schema)
	at.RawQuery = query.Encode()
	d := DB{Schema: schema, URL: at.String()}
	if _, err := pgx.ParseConfig(d.URL); err != nil {
		t.Fatalf("testdb: %s: %v", pgserver.URLVariable, err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), cleanupWait)
		defer cancel()
		if err := drop(ctx, d); err != nil {
			t.Errorf("testdb: drop schema %s: %v", d.Schema, err)
		}
	})
	return d
}

// drop removes the schema. A connection that a test has left behind in a
// transaction makes it fail rather than hang.
func drop(ctx context.Context, d DB) error {
	cfg := d.Config()
	cfg.RuntimeParams["lock_timeout"] = "10s"
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, "DROP SCHEMA IF EXISTS "+pgx.Identifier{d.Schema}.Sanitize()+" CASCADE")
	return err
}

// server is the one that all tests of this process use.
type server struct {
	address string
	// close is never called, only kept: the server ends when the last
	// reference to its pipe does, and that must be the end of the process.
	close func(context.Context) error
}

var shared = sync.OnceValues(func() (server, error) {
	address, stop, err := pgserver.Open(context.Background())
	return server{address, stop}, err
})
