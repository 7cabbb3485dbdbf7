package testdb

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func connect(t *testing.T, cfg *pgx.ConnConfig) *pgx.Conn {
	t.Helper()
	conn, err := pgx.ConnectConfig(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// hasVersions reports whether goose's table is in the schema, which is so once
// a migration has run there.
func hasVersions(t *testing.T, conn *pgx.Conn, schema string) (found bool) {
	t.Helper()
	const query = `SELECT EXISTS (SELECT FROM pg_tables WHERE schemaname = $1 AND tablename = 'goose_db_version')`
	require.NoError(t, conn.QueryRow(t.Context(), query, schema).Scan(&found))
	return found
}

func TestNew(t *testing.T) {
	t.Parallel()
	outer := New(t)
	conn := connect(t, outer.Config())
	var current string
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT current_schema()").Scan(&current))
	require.Equal(t, outer.Schema, current)

	var inner DB
	t.Run("Inner", func(t *testing.T) {
		inner = New(t)
		require.NotEqual(t, outer.Schema, inner.Schema)
		require.True(t, hasVersions(t, conn, inner.Schema))
	})
	require.False(t, hasVersions(t, conn, inner.Schema), "the schema must go with its test")
	require.True(t, hasVersions(t, conn, outer.Schema))
}

func TestServer(t *testing.T) {
	t.Parallel()
	s := StartServer(t)
	one := func() (n int, err error) {
		conn, err := pgx.Connect(t.Context(), s.URL)
		if err != nil {
			return 0, err
		}
		defer conn.Close(t.Context())
		err = conn.QueryRow(t.Context(), "SELECT 1").Scan(&n)
		return n, err
	}
	for _, down := range []struct {
		name string
		down func()
	}{{"Stop", s.Stop}, {"Kill", s.Kill}} {
		down.down()
		_, err := one()
		require.Error(t, err, down.name)
		s.Restart()
		n, err := one()
		require.NoError(t, err, down.name)
		require.Equal(t, 1, n)
	}
	s.Freeze()
	s.Thaw()
	_, err := one()
	require.NoError(t, err)
}
