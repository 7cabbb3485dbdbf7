package coordinator

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/pkg/config"
)

func load(environ ...string) (Config, error) {
	var c Config
	err := config.Load(environ, &c)
	return c, err
}

func TestConfigDefaults(t *testing.T) {
	t.Parallel()
	c, err := load()
	require.NoError(t, err)
	require.Equal(t, "nats://127.0.0.1:4222", c.NATS.URL)
	require.Equal(t, config.Addr("127.0.0.1:9181"), c.General.AdminAddr)
	limits := c.Queue.limits()
	require.Equal(t, 1, limits.MaxServed)
	require.Equal(t, 5, limits.MaxPending)
	require.Equal(t, 5*time.Second, limits.Lease)
	require.Equal(t, 5*time.Minute, limits.StaleActive)
	pool, err := c.Postgres.pooled()
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

func TestConfigIsDocumented(t *testing.T) {
	t.Parallel()
	fields, err := config.Fields(&Config{})
	require.NoError(t, err)
	require.NotEmpty(t, fields)
}

func TestConfigOddValuesReachPostgresAsTheyAre(t *testing.T) {
	t.Parallel()
	const odd = `a b&c=d'e\f%41?host=evil#x@y:z`
	c, err := load("CCNQ_PG_HOST=::1", "CCNQ_PG_USER="+odd, "CCNQ_PG_PASSWORD="+odd, "CCNQ_PG_DATABASE="+odd)
	require.NoError(t, err)
	pool, err := c.Postgres.pooled()
	require.NoError(t, err)
	require.Equal(t, "::1", pool.ConnConfig.Host)
	require.Equal(t, odd, pool.ConnConfig.User)
	require.Equal(t, odd, pool.ConnConfig.Password)
	require.Equal(t, odd, pool.ConnConfig.Database)
}

func TestConfigBehindAPooler(t *testing.T) {
	t.Parallel()
	c, err := load("CCNQ_PG_HOST=pooler", "CCNQ_PG_DIRECT_URL=postgres://owner:secret@db:5433/app?sslmode=disable")
	require.NoError(t, err)
	direct, err := c.Postgres.direct()
	require.NoError(t, err)
	require.Equal(t, "db", direct.Host)
	require.Equal(t, "owner", direct.User)
	pool, err := c.Postgres.pooled()
	require.NoError(t, err)
	require.Equal(t, "pooler", pool.ConnConfig.Host)
	require.NotContains(t, pool.ConnConfig.RuntimeParams, "search_path")
	require.NotContains(t, pool.ConnConfig.RuntimeParams, "statement_timeout")
}

func TestConfigRefuses(t *testing.T) {
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
		"max served":   {[]string{"CCNQ_QUEUE_MAX_SERVED_PER_GROUP=0"}, `CCNQ_QUEUE_MAX_SERVED_PER_GROUP: "0" is not`},
		"max pending":  {[]string{"CCNQ_QUEUE_MAX_PENDING_PER_GROUP=-1"}, `CCNQ_QUEUE_MAX_PENDING_PER_GROUP: "-1" is not`},
		"lease":        {[]string{"CCNQ_QUEUE_LEASE_MS=10"}, `CCNQ_QUEUE_LEASE_MS: "10" is not`},
		"nats":         {[]string{"CCNQ_NATS_URL=http://x"}, `CCNQ_NATS_URL: "http://x" does not begin with`},
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
