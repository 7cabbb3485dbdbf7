package redis_test

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ccnq/ccnq/pkg/qos"
	"github.com/ccnq/ccnq/pkg/qos/redis"
	"github.com/ccnq/ccnq/pkg/qos/redis/redistest"
	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// window is the window in which tests begin, at its start.
const window = 170_000_000

// cluster is nodes on one server, with a clock that the test sets.
type cluster struct {
	t      *testing.T
	server *redistest.Server
	client goredis.UniversalClient
	ms     atomic.Int64 // since the start of window
	errors []error      // of all nodes
}

func newCluster(t *testing.T, settings ...string) *cluster {
	t.Helper()
	c := &cluster{t: t, server: redistest.Start(t, settings...)}
	c.client = c.open()
	return c
}

func (c *cluster) open() goredis.UniversalClient { return open(c.t, c.server.URL) }

func open(t testing.TB, address string) goredis.UniversalClient {
	t.Helper()
	client, err := redis.Open(address)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client
}

func (c *cluster) Now() time.Time {
	return time.UnixMilli(window*10_000 + c.ms.Load())
}

func (c *cluster) Lag() time.Duration { return 0 }

// join makes a node without limits of its own, that syncs when it is told to.
func (c *cluster) join(client goredis.UniversalClient, o qos.ClusterOptions) *qos.Limiter {
	c.t.Helper()
	store, err := redis.New(client, redis.DefaultPrefix)
	require.NoError(c.t, err)
	o.Store, o.SyncInterval = store, time.Hour
	o.OnError = func(err error) { c.errors = append(c.errors, err) }
	l, err := qos.New(qos.Options{MinHostRate: new(0.0), Cluster: &o, Lag: c, Now: c.Now})
	require.NoError(c.t, err)
	c.t.Cleanup(func() { require.NoError(c.t, l.Close()) })
	return l
}

// requireSynced syncs a node.
func (c *cluster) requireSynced(nodes ...*qos.Limiter) {
	c.t.Helper()
	for _, l := range nodes {
		l.Sync(c.t.Context())
		require.Empty(c.t, c.errors)
	}
}

// decide asks for n requests of a host from an address, and returns the last reason.
func decide(l *qos.Limiter, host, address string, n int) qos.Reason {
	reason := qos.Pass
	for range n {
		reason = l.Decide(l.NewActor(host, netip.MustParseAddr(address)))
	}
	return reason
}

// sum is all hits of a kind, over all windows.
func (c *cluster) sum(kind string) (total float64) {
	c.t.Helper()
	keys, err := c.client.Keys(c.t.Context(), redis.DefaultPrefix+kind+":*").Result()
	require.NoError(c.t, err)
	for _, key := range keys {
		members, err := c.client.ZRangeWithScores(c.t.Context(), key, 0, -1).Result()
		require.NoError(c.t, err)
		for _, m := range members {
			total += m.Score
		}
	}
	return total
}

// requireCounted checks that everything was counted once.
func (c *cluster) requireCounted(hits int) {
	c.t.Helper()
	for _, kind := range []string{"ip", "subnet", "host"} {
		require.InDelta(c.t, hits, c.sum(kind), 0, kind)
	}
	keys, err := c.client.Keys(c.t.Context(), "qos:total:*").Result()
	require.NoError(c.t, err)
	total := 0
	for _, key := range keys {
		n, err := c.client.Get(c.t.Context(), key).Int()
		require.NoError(c.t, err)
		total += n
	}
	require.Equal(c.t, hits, total)
}

// keys are all keys that are no marks.
func (c *cluster) keys() []string {
	c.t.Helper()
	keys, err := c.client.Keys(c.t.Context(), "*").Result()
	require.NoError(c.t, err)
	keys = slices.DeleteFunc(keys, func(key string) bool { return strings.HasPrefix(key, "{") })
	slices.Sort(keys)
	return keys
}

// spoil is a hook that sends only some commands of publishing pipelines, and then says
// that nothing was sent.
type spoil struct {
	armed bool
	sends func(commands int) int
}

func (s *spoil) DialHook(next goredis.DialHook) goredis.DialHook          { return next }
func (s *spoil) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook { return next }

func (s *spoil) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return func(ctx context.Context, commands []goredis.Cmder) error {
		if !s.armed || commands[0].Name() != "eval" {
			return next(ctx, commands)
		}
		if n := s.sends(len(commands)); n > 0 {
			if err := next(ctx, commands[:n]); err != nil {
				return err
			}
		}
		return errFault
	}
}

func address(n int) string { return fmt.Sprintf("10.%d.%d.%d", n>>16, n>>8&0xff, n&0xff) }
