package postgres

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/pkg/config"
)

// environment is a configuration of its own, as a service has it.
type environment struct {
	Postgres Config `section:"Postgres"`
}

// Validate is that of the part.
func (e *environment) Validate() []string { return e.Postgres.Validate() }

func load(environ ...string) (Config, error) {
	var e environment
	err := config.Load(environ, &e)
	return e.Postgres, err
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	c, err := load()
	require.NoError(t, err)
	pool, err := c.pooled()
	require.NoError(t, err)
	require.Equal(t, "localhost", pool.ConnConfig.Host)
	require.EqualValues(t, 5432, pool.ConnConfig.Port)
	require.Equal(t, "postgres", pool.ConnConfig.User)
	require.Equal(t, "postgres", pool.ConnConfig.Password)
	require.Equal(t, "postgres", pool.ConnConfig.Database)
	require.EqualValues(t, 10, pool.MaxConns)
	require.Equal(t, "queue", pool.ConnConfig.RuntimeParams["search_path"])
	require.Equal(t, "5000", pool.ConnConfig.RuntimeParams["statement_timeout"])
}

func TestOddValuesReachPostgresAsTheyAre(t *testing.T) {
	t.Parallel()
	const odd = `a b&c=d'e\f%41?host=evil#x@y:z`
	c, err := load("CCNQ_PG_HOST=::1", "CCNQ_PG_USER="+odd, "CCNQ_PG_PASSWORD="+odd, "CCNQ_PG_DATABASE="+odd)
	require.NoError(t, err)
	pool, err := c.pooled()
	require.NoError(t, err)
	require.Equal(t, "::1", pool.ConnConfig.Host)
	require.Equal(t, odd, pool.ConnConfig.User)
	require.Equal(t, odd, pool.ConnConfig.Password)
	require.Equal(t, odd, pool.ConnConfig.Database)
}

func TestBehindAPooler(t *testing.T) {
	t.Parallel()
	c, err := load("CCNQ_PG_HOST=pooler", "CCNQ_PG_DIRECT_URL=postgres://owner:secret@db:5433/app?sslmode=disable")
	require.NoError(t, err)
	direct, err := c.direct()
	require.NoError(t, err)
	require.Equal(t, "db", direct.Host)
	require.Equal(t, "owner", direct.User)
	pool, err := c.pooled()
	require.NoError(t, err)
	require.Equal(t, "pooler", pool.ConnConfig.Host)
	require.NotContains(t, pool.ConnConfig.RuntimeParams, "search_path")
	require.NotContains(t, pool.ConnConfig.RuntimeParams, "statement_timeout")
}

func TestRefuses(t *testing.T) {
	t.Parallel()
	notPEM := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(notPEM, []byte("nonsense"), 0o600))
	for name, test := range map[string]struct {
		environ []string
		want    string
	}{
		"schema":       {[]string{"CCNQ_PG_SCHEMA=Queue;drop"}, `CCNQ_PG_SCHEMA: invalid schema name: "Queue;drop"`},
		"ssl mode":     {[]string{"CCNQ_PG_SSLMODE=on"}, `CCNQ_PG_SSLMODE: "on" is not one of`},
		"pool":         {[]string{"CCNQ_PG_POOL_MAX=1"}, `CCNQ_PG_POOL_MAX: "1" is not`},
		"ca unused":    {[]string{"CCNQ_PG_CA_FILE=" + notPEM}, "CCNQ_PG_CA_FILE: has no effect"},
		"ca missing":   {[]string{"CCNQ_PG_CA_FILE=/no/such", "CCNQ_PG_SSLMODE=verify-full"}, "CCNQ_PG_CA_FILE: open /no/such"},
		"ca malformed": {[]string{"CCNQ_PG_CA_FILE=" + notPEM, "CCNQ_PG_SSLMODE=verify-full"}, "these settings cannot be used: "},
		"direct":       {[]string{"CCNQ_PG_DIRECT_URL=mysql://u:hunter2@h"}, "CCNQ_PG_DIRECT_URL: the value (not shown) is not"},
	} {
		_, err := load(append(test.environ, "CCNQ_PG_PASSWORD=hunter2")...)
		require.ErrorContains(t, err, test.want, name)
		require.NotContains(t, err.Error(), "hunter2", name)
	}
}
