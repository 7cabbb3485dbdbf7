package coordinator

import (
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
}

func TestConfigIsDocumented(t *testing.T) {
	t.Parallel()
	fields, err := config.Fields(&Config{})
	require.NoError(t, err)
	require.NotEmpty(t, fields)
}

func TestConfigRefuses(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		environ []string
		want    string
	}{
		"schema":      {[]string{"CCNQ_PG_SCHEMA=Queue;drop"}, `CCNQ_PG_SCHEMA: invalid schema name: "Queue;drop"`},
		"max served":  {[]string{"CCNQ_QUEUE_MAX_SERVED_PER_GROUP=0"}, `CCNQ_QUEUE_MAX_SERVED_PER_GROUP: "0" is not`},
		"max pending": {[]string{"CCNQ_QUEUE_MAX_PENDING_PER_GROUP=-1"}, `CCNQ_QUEUE_MAX_PENDING_PER_GROUP: "-1" is not`},
		"lease":       {[]string{"CCNQ_QUEUE_LEASE_MS=10"}, `CCNQ_QUEUE_LEASE_MS: "10" is not`},
		"nats":        {[]string{"CCNQ_NATS_URL=http://x"}, `CCNQ_NATS_URL: "http://x" does not begin with`},
	} {
		_, err := load(append(test.environ, "CCNQ_PG_PASSWORD=hunter2")...)
		require.ErrorContains(t, err, test.want, name)
		require.NotContains(t, err.Error(), "hunter2", name)
	}
}
