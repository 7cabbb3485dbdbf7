package testdb

import (
	"context"
	"fmt"
	"hash/fnv"
	"testing"
	"time"

	"github.com/ccnq/ccnq/db"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

// The tests of db.Migrate are here, because the module db must not import this
// one.

// fresh returns a schema that does not exist yet.
func fresh(t *testing.T) DB {
	t.Helper()
	server, err := shared()
	require.NoError(t, err)
	return named(t, server.address)
}

// addRole makes a role that may log in and not much else.
func addRole(t *testing.T, admin *pgx.Conn, d DB) *pgx.ConnConfig {
	t.Helper()
	name := "role_" + d.Schema
	_, err := admin.Exec(t.Context(), fmt.Sprintf("CREATE ROLE %s LOGIN PASSWORD 'secret'", name))
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := admin.Exec(context.Background(), fmt.Sprintf("DROP OWNED BY %s CASCADE; DROP ROLE %[1]s", name))
		require.NoError(t, err)
	})
	cfg := d.Config()
	cfg.User, cfg.Password = name, "secret"
	return cfg
}

func TestMigrateFromManyProcesses(t *testing.T) {
	t.Parallel()
	d := fresh(t)
	var group errgroup.Group
	for range 8 {
		group.Go(func() error { return db.Migrate(t.Context(), d.Config(), d.Schema) })
	}
	require.NoError(t, group.Wait())
	conn := connect(t, d.Config())
	var runs, versions int
	err := conn.QueryRow(t.Context(), "SELECT count(*), count(DISTINCT version_id) FROM goose_db_version").Scan(&runs, &versions)
	require.NoError(t, err)
	require.Equal(t, versions, runs, "a migration ran twice")
	require.Greater(t, versions, 1, "version 0 and one migration at least")
}

func TestMigrateIgnoresOtherSearchPaths(t *testing.T) {
	t.Parallel()
	d, other := fresh(t), New(t)
	admin := connect(t, other.Config())
	cfg := addRole(t, admin, d)
	_, err := admin.Exec(t.Context(), fmt.Sprintf(
		"ALTER ROLE %s SET search_path = %s; GRANT CREATE ON DATABASE %s TO %[1]s",
		cfg.User, other.Schema, pgx.Identifier{cfg.Database}.Sanitize()))
	require.NoError(t, err)
	delete(cfg.RuntimeParams, "search_path")
	require.NoError(t, db.Migrate(t.Context(), cfg, d.Schema))
	require.True(t, hasVersions(t, admin, d.Schema))
}

func TestMigrateNeedsNoCreateIfTheSchemaExists(t *testing.T) {
	t.Parallel()
	d := fresh(t)
	admin := connect(t, d.Config())
	cfg := addRole(t, admin, d)
	require.ErrorContains(t, db.Migrate(t.Context(), cfg, d.Schema), "create the schema")
	// A session left behind would keep the lock from those who try next.
	require.Eventually(t, func() bool {
		var sessions int
		const query = "SELECT count(*) FROM pg_stat_activity WHERE usename = $1"
		return admin.QueryRow(t.Context(), query, cfg.User).Scan(&sessions) == nil && sessions == 0
	}, cleanupWait, 10*time.Millisecond)
	_, err := admin.Exec(t.Context(), "CREATE SCHEMA "+d.Schema)
	require.NoError(t, err)
	require.ErrorContains(t, db.Migrate(t.Context(), cfg, d.Schema), "no USAGE on schema "+d.Schema)
	_, err = admin.Exec(t.Context(), fmt.Sprintf("ALTER SCHEMA %s OWNER TO %s", d.Schema, cfg.User))
	require.NoError(t, err)
	require.NoError(t, db.Migrate(t.Context(), cfg, d.Schema))
}

func TestMigrateWaitsForTheLock(t *testing.T) {
	t.Parallel()
	d := fresh(t)
	// The key is part of the contract between versions that start together.
	key := fnv.New64a()
	fmt.Fprint(key, "ccnq.migrate."+d.Schema)
	holder := connect(t, d.Config())
	_, err := holder.Exec(t.Context(), "SELECT pg_advisory_lock($1)", int64(key.Sum64()))
	require.NoError(t, err)

	cfg := d.Config()
	cfg.RuntimeParams["application_name"] = d.Schema
	cfg.RuntimeParams["statement_timeout"] = "1" // must not apply to migrations
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- db.Migrate(ctx, cfg, d.Schema) }()
	waiting := "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1 AND query LIKE '%try_advisory%'"
	require.Eventually(t, func() bool {
		var n int
		err := holder.QueryRow(t.Context(), waiting, d.Schema).Scan(&n)
		return err == nil && n == 1 || len(done) > 0
	}, cleanupWait, 10*time.Millisecond)
	require.Empty(t, done)
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)

	go func() { done <- db.Migrate(t.Context(), cfg, d.Schema) }()
	require.NoError(t, holder.Close(t.Context())) // a holder that dies
	require.NoError(t, <-done)
}

func TestMigrateRefusesANameThatIsNotAllowed(t *testing.T) {
	t.Parallel()
	for _, schema := range []string{"", "Queue", `x"; DROP SCHEMA public; --`, "pg_x"} {
		err := db.Migrate(t.Context(), fresh(t).Config(), schema)
		require.ErrorIs(t, err, db.ErrSchema)
	}
}
