package redistest_test

import (
	"os"
	"testing"

	"github.com/ccnq/ccnq/pkg/qos/redis"
	"github.com/ccnq/ccnq/pkg/qos/redis/redistest"
	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, s *redistest.Server) goredis.UniversalClient {
	t.Helper()
	client, err := redis.Open(s.URL)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client
}

func TestRestartKeepsData(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	client := open(t, s)
	require.NoError(t, client.Set(t.Context(), "a", "b", 0).Err())

	s.Kill()
	require.Error(t, client.Get(t.Context(), "a").Err())
	s.Kill()
	s.Restart()
	value, err := client.Get(t.Context(), "a").Result()
	require.NoError(t, err)
	require.Equal(t, "b", value)
}

func TestSettings(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "maxmemory", "9000000")
	client := open(t, s)
	settings, err := client.ConfigGet(t.Context(), "maxmemory").Result()
	require.NoError(t, err)
	require.Equal(t, map[string]string{"maxmemory": "9000000"}, settings)
}

// TestEveryServerIsRemoved: the folder of one is gone when its test ends.
func TestEveryServerIsRemoved(t *testing.T) {
	t.Parallel()
	var dir string
	t.Run("uses one", func(t *testing.T) {
		s := redistest.Start(t)
		client := open(t, s)
		settings, err := client.ConfigGet(t.Context(), "dir").Result()
		require.NoError(t, err)
		dir = settings["dir"]
		require.DirExists(t, dir)
	})
	_, err := os.Stat(dir)
	require.ErrorIs(t, err, os.ErrNotExist)
}
