package postgres

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/pkg/testdb"
)

func TestPrepare(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	at := db.Config()
	c := Config{
		Host: at.Host, Port: int(at.Port), User: at.User, Password: at.Password, Database: at.Database,
		Schema: db.Schema, PoolMax: 2, StatementTimeout: 5_000_000_000, SSLMode: "disable",
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	d, err := c.Open(ctx, "a test", "group_state")
	require.NoError(t, err)
	defer d.Close()
	require.NoError(t, d.Prepare(ctx))
	_, err = d.Pool().Exec(ctx, "DROP SCHEMA "+db.Schema+" CASCADE")
	require.NoError(t, err)
	require.NoError(t, d.Prepare(ctx), "an empty database is made usable")

	session, err := d.Session(ctx)
	require.NoError(t, err)
	defer session.Close(ctx)
	var name, timeout string
	require.NoError(t, session.QueryRow(ctx, `SELECT current_setting('application_name'), current_setting('statement_timeout')`).Scan(&name, &timeout))
	require.Equal(t, "a test", name)
	require.Equal(t, "5s", timeout)

	// Behind a pooler the role must name the schema, and here it does not.
	c.DirectURL = db.URL
	pooled, err := c.Open(ctx, "a test", "group_state")
	require.NoError(t, err)
	defer pooled.Close()
	require.ErrorIs(t, pooled.Prepare(ctx), ErrSearchPath)
}
