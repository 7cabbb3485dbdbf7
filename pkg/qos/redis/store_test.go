package redis_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/ccnq/ccnq/pkg/qos"
	"github.com/ccnq/ccnq/pkg/qos/redis"
	"github.com/ccnq/ccnq/pkg/qos/redis/redistest"
	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestThreeNodesBlockTogether: each is under the limit of 10 requests a second over
// 10 s, all three are above.
func TestThreeNodesBlockTogether(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	var nodes []*qos.Limiter
	for range 3 {
		nodes = append(nodes, c.join(c.open(), qos.ClusterOptions{MaxIPRate: 10}))
	}
	for _, l := range nodes {
		require.Equal(t, qos.Pass, decide(l, "a.example", "192.0.2.1", 40))
	}
	for range 2 { // sync intervals, in which each node syncs once
		c.ms.Add(2000)
		c.requireSynced(nodes...)
	}
	for _, l := range nodes {
		require.Equal(t, qos.BadIP, decide(l, "a.example", "192.0.2.1", 1))
		require.Equal(t, qos.Pass, decide(l, "a.example", "192.0.2.2", 1))
	}
	c.ms.Store(20_000)
	c.requireSynced(nodes...)
	for _, l := range nodes {
		require.Equal(t, qos.Pass, decide(l, "a.example", "192.0.2.1", 1), "it is over")
	}
}

// strange answers every request for scores with more than were asked for.
type strange struct{}

func (strange) DialHook(next goredis.DialHook) goredis.DialHook          { return next }
func (strange) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook { return next }

func (strange) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return func(ctx context.Context, commands []goredis.Cmder) error {
		err := next(ctx, commands)
		for _, command := range commands {
			if scores, ok := command.(*goredis.FloatSliceCmd); ok {
				scores.SetVal(append(scores.Val(), 1))
			}
		}
		return err
	}
}

// TestAnswersThatDoNotFit: a server that answers more than it is asked is an error, not a
// panic.
func TestAnswersThatDoNotFit(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	client := c.open()
	client.AddHook(strange{})
	store, err := redis.New(client, redis.DefaultPrefix)
	require.NoError(t, err)
	limits := &qos.ClusterLimits{Window: 10 * time.Second, MaxTrackedActors: 10, MaxIPRate: 1}
	now := time.UnixMilli(1_700_000_000_000)
	require.NoError(t, client.ZIncrBy(t.Context(), "qos:ip:w170000000", 20, "192.0.2.1").Err())
	lists, err := store.Blocklists(t.Context(), limits, now)
	require.EqualError(t, err, "2 scores for 1 keys")
	require.Nil(t, lists)
}

// TestNodeInstancesCountToo: what connect-qos adds with plain commands.
func TestNodeInstancesCountToo(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	l := c.join(c.client, qos.ClusterOptions{MaxIPRate: 1, MaxSubnetRate: 2, MinSubnetUniqueIPs: new(1.0), MaxHostRatio: 0.05})
	decide(l, "a.example", "192.0.2.1", 4)
	ctx := t.Context()
	require.NoError(t, c.client.ZIncrBy(ctx, "qos:ip:w170000000", 6, "192.0.2.1").Err())
	require.NoError(t, c.client.ZIncrBy(ctx, "qos:ip:w170000000", 10, "::ffff:192.0.2.7").Err())
	require.NoError(t, c.client.ZIncrBy(ctx, "qos:subnet:w170000000", 16, "192.0.2.0").Err())
	require.NoError(t, c.client.ZIncrBy(ctx, "qos:host:w170000000", 60, "b.example").Err())
	require.NoError(t, c.client.IncrBy(ctx, "qos:total:w170000000", 60).Err())
	c.requireSynced(l)
	lists := l.Blocklists()
	require.ElementsMatch(t, []string{"192.0.2.1", "::ffff:192.0.2.7"}, lists.IPs)
	require.Equal(t, []string{"192.0.2.0"}, lists.Subnets)
	require.ElementsMatch(t, []string{"a.example", "b.example"}, lists.Hosts)
	require.Equal(t, qos.BadIP, decide(l, "c.example", "192.0.2.7", 1))
}

func TestKeysExpire(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	l := c.join(c.client, qos.ClusterOptions{MaxSubnetRate: 1})
	decide(l, "a.example", "192.0.2.1", 1)
	c.requireSynced(l)
	require.Equal(t, []string{
		"qos:host:w170000000", "qos:ip:w170000000", "qos:subnet:w170000000", "qos:total:w170000000", "qos:unique:w170000000",
	}, c.keys())
	all, err := c.client.Keys(t.Context(), "*").Result()
	require.NoError(t, err)
	require.Len(t, all, 5+4, "and four marks")
	for _, key := range all {
		ttl, err := c.client.PTTL(t.Context(), key).Result()
		require.NoError(t, err)
		require.Positive(t, ttl, key)
		require.LessOrEqual(t, ttl, 40*time.Second, key)
	}
	c.ms.Store(30_000)
	c.requireSynced(l)
	require.Empty(t, c.keys(), "a window is removed three windows later")
}

// TestBothWindowsCount: connect-qos does not see the 4, for they are less than half of
// the limit.
func TestBothWindowsCount(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	l := c.join(c.client, qos.ClusterOptions{MaxIPRate: 1, MaxSubnetRate: 1, MinSubnetUniqueIPs: new(1.0)})
	decide(l, "a.example", "192.0.2.1", 9)
	c.requireSynced(l)
	require.Empty(t, l.Blocklists().IPs)
	c.ms.Store(11_000)
	decide(l, "a.example", "192.0.2.1", 4)
	c.requireSynced(l)
	require.Equal(t, &qos.Blocklists{IPs: []string{"192.0.2.1"}, Subnets: []string{"192.0.2.0"}}, l.Blocklists())
}

func TestViolationNeedsTraffic(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	l := c.join(c.client, qos.ClusterOptions{MaxHostRatio: 0.02})
	decide(l, "a.example", "192.0.2.1", 19)
	c.requireSynced(l)
	require.Empty(t, l.Blocklists().Hosts, "19 requests say nothing")
	decide(l, "a.example", "192.0.2.1", 1)
	c.requireSynced(l)
	require.Equal(t, []string{"a.example"}, l.Blocklists().Hosts)
	require.Equal(t, qos.HostViolation, decide(l, "a.example", "192.0.2.1", 1))
}

// TestUniqueIPs: one node must have seen enough addresses; those of several do not add
// up, since they may be the same.
func TestUniqueIPs(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	o := qos.ClusterOptions{MaxSubnetRate: 1, MinSubnetUniqueIPs: new(4.0)}
	a, b := c.join(c.client, o), c.join(c.client, o)
	for _, address := range []string{"192.0.2.1", "192.0.2.2", "192.0.2.3"} {
		decide(a, "a.example", address, 10)
		decide(b, "a.example", address, 10)
	}
	c.requireSynced(a, b)
	require.Empty(t, b.Blocklists().Subnets)
	decide(b, "a.example", "192.0.2.4", 1)
	c.requireSynced(a, b)
	require.Equal(t, []string{"192.0.2.0"}, b.Blocklists().Subnets)
	score, err := c.client.ZScore(t.Context(), "qos:unique:w170000000", "192.0.2.0").Result()
	require.NoError(t, err)
	require.InDelta(t, 4, score, 0)

	// In the next window the hits of the previous one are enough at first, and of the
	// addresses less and less.
	c.ms.Store(10_000)
	c.requireSynced(a)
	require.Equal(t, []string{"192.0.2.0"}, a.Blocklists().Subnets)
	c.ms.Store(10_001)
	c.requireSynced(a)
	require.Empty(t, a.Blocklists().Subnets)
}

func TestTrim(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	o := qos.ClusterOptions{MaxSubnetRate: 1, MaxTrackedActors: 2}
	a, b := c.join(c.client, o), c.join(c.client, o)
	decide(a, "a.example", "192.0.2.1", 3)
	decide(a, "b.example", "192.0.3.1", 2)
	decide(b, "c.example", "192.0.4.1", 4)
	c.requireSynced(a, b)
	for kind, want := range map[string][]string{
		"ip": {"192.0.2.1", "192.0.4.1"}, "subnet": {"192.0.2.0", "192.0.4.0"}, "host": {"a.example", "c.example"},
		"unique": {"192.0.3.0", "192.0.4.0"}, // all have 1: the least by name goes
	} {
		members, err := c.client.ZRange(t.Context(), "qos:"+kind+":w170000000", 0, -1).Result()
		require.NoError(t, err)
		require.Equal(t, want, members, kind)
	}
}

// TestRedisCluster: no command concerns several slots.
func TestRedisCluster(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "cluster-enabled", "yes")
	ctx := t.Context()
	require.NoError(t, c.client.Do(ctx, "CLUSTER", "ADDSLOTSRANGE", 0, 16383).Err())
	client := open(t, c.server.URL+"?addr="+c.server.Addr)
	require.IsType(t, &goredis.ClusterClient{}, client)
	require.Eventually(t, func() bool {
		return client.Ping(ctx).Err() == nil && errors.Is(client.Get(ctx, "a").Err(), goredis.Nil)
	},
		time.Minute, 10*time.Millisecond, "the cluster has to notice its slots")

	l := c.join(client, qos.ClusterOptions{MaxIPRate: 1, MaxSubnetRate: 1, MaxHostRatio: 0.01, MinSubnetUniqueIPs: new(2.0)})
	decide(l, "a.example", "192.0.2.1", 10)
	decide(l, "a.example", "192.0.2.2", 3)
	c.requireSynced(l, l)
	require.Equal(t, &qos.Blocklists{IPs: []string{"192.0.2.1"}, Subnets: []string{"192.0.2.0"}, Hosts: []string{"a.example"}}, l.Blocklists())
	slots := make(map[int64]bool)
	for _, key := range c.keys() {
		slot, err := c.client.ClusterKeySlot(ctx, key).Result()
		require.NoError(t, err)
		slots[slot] = true
	}
	require.Len(t, slots, 5)
	c.requireCounted(13)
}

// TestCandidatesAreAll compares what is read and decided with the arithmetic on all
// that is there.
func TestCandidatesAreAll(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := open(t, server.URL)
	store, err := redis.New(client, redis.DefaultPrefix)
	require.NoError(t, err)
	ctx := t.Context()
	rapid.Check(t, func(t *rapid.T) {
		require.NoError(t, client.FlushDB(ctx).Err())
		limits := &qos.ClusterLimits{
			Window:           time.Duration(rapid.SampledFrom([]int{1, 500, 1000, 10_000}).Draw(t, "window")) * time.Millisecond,
			MaxTrackedActors: 1000,
			MaxIPRate:        rapid.SampledFrom([]float64{0, 0.3, 1, 2.7}).Draw(t, "address rate"),
			MaxSubnetRate:    rapid.SampledFrom([]float64{0, 1, 3}).Draw(t, "subnet rate"),
			MaxHostRatio:     rapid.SampledFrom([]float64{0, 0.01, 0.03, 0.2, 1}).Draw(t, "ratio"),
			RequiredIPs:      rapid.IntRange(1, 4).Draw(t, "addresses"),
		}
		now := time.UnixMilli(1_700_000_000_000 + rapid.Int64Range(0, 20_000).Draw(t, "now"))
		number, _ := limits.WindowAt(now)
		var windows [2]*qos.ClusterCounts
		for i := range windows {
			windows[i] = drawCounts(t)
			write(t, client, number-int64(i), windows[i])
		}
		want := limits.Blocklists(now, windows[0], windows[1])
		got, err := store.Blocklists(ctx, limits, now)
		require.NoError(t, err)
		for _, lists := range []*qos.Blocklists{want, got} {
			slices.Sort(lists.IPs)
			slices.Sort(lists.Subnets)
			slices.Sort(lists.Hosts)
		}
		require.Equal(t, want, got)
	})
}

func drawCounts(t *rapid.T) *qos.ClusterCounts {
	draw := func(kind string, keys ...string) map[string]float64 {
		counts := make(map[string]float64)
		for _, key := range keys {
			if n := rapid.IntRange(0, 40).Draw(t, kind+" "+key); n > 0 {
				counts[key] = float64(n)
			}
		}
		return counts
	}
	c := &qos.ClusterCounts{
		IPs:       draw("address", "192.0.2.1", "192.0.2.2", "2001:db8::1"),
		Subnets:   draw("subnet", "192.0.2.0", "192.0.3.0", "2001:db8::"),
		Hosts:     draw("host", "a", "b", "c", "d"),
		UniqueIPs: draw("unique", "192.0.2.0", "192.0.3.0"),
	}
	for _, n := range c.Hosts {
		c.Total += n
	}
	return c
}

func write(t *rapid.T, client goredis.UniversalClient, window int64, c *qos.ClusterCounts) {
	ctx := t.Context()
	for kind, counts := range map[string]map[string]float64{
		"ip": c.IPs, "subnet": c.Subnets, "host": c.Hosts, "unique": c.UniqueIPs,
	} {
		for key, n := range counts {
			require.NoError(t, client.ZIncrBy(ctx, fmt.Sprintf("qos:%s:w%d", kind, window), n, key).Err())
		}
	}
	require.NoError(t, client.IncrBy(ctx, fmt.Sprintf("qos:total:w%d", window), int64(c.Total)).Err())
}

func TestPrefix(t *testing.T) {
	t.Parallel()
	client := open(t, "redis://127.0.0.1:1")
	for _, prefix := range []string{"", "qos:", "{qos}:", "a{b}c{"} {
		_, err := redis.New(client, prefix)
		require.NoError(t, err, prefix)
	}
	for _, prefix := range []string{"{", "}", "a{}b", "}{"} {
		_, err := redis.New(client, prefix)
		require.EqualError(t, err, fmt.Sprintf("redis: key prefix %q has braces that are no hash tag", prefix))
	}
}

func TestOpenDoesNotTellThePassword(t *testing.T) {
	t.Parallel()
	for _, address := range []string{
		"redis://user:secret@host:port", "http://user:secret@host", "redis://user:secret@host/x", "redis://:secret@%zz",
		"redis://:secret@host?addr=b&dial_timeout=secret", "redis://:secret@host?read_timeout=secret", "secret",
	} {
		_, err := redis.Open(address)
		require.Error(t, err, address)
		require.NotContains(t, err.Error(), "secret")
		require.Contains(t, err.Error(), "redis: the address")
	}
	client, err := redis.Open("rediss://user:secret@127.0.0.1:1/3")
	require.NoError(t, err, "it does not connect yet")
	require.NoError(t, client.Close())
}

// FuzzOpen: an address is the operator's, with a password that no error repeats.
func FuzzOpen(f *testing.F) {
	for _, seed := range []string{"redis://u:p@h:1/2", "redis://h?addr=g:2", "unix:///tmp/s?db=1", "redis://[::1]:6379", "%", ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, address string) {
		client, err := redis.Open(address)
		if err == nil {
			require.NoError(t, client.Close())
			return
		}
		require.Less(t, len(err.Error()), 120)
	})
}

// BenchmarkSync is one sync of a node that tracked 50,000 addresses, each in a subnet of
// its own, besides the hosts.
func BenchmarkSync(b *testing.B) {
	const actors = 50_000
	server := redistest.Start(b)
	store, err := redis.New(open(b, server.URL), redis.DefaultPrefix)
	require.NoError(b, err)
	var failed error
	l, err := qos.New(qos.Options{MinHostRate: new(0.0), Cluster: &qos.ClusterOptions{
		Store: store, SyncInterval: time.Hour, MaxIPRate: math.MaxInt32, MaxSubnetRate: 1, MaxHostRatio: 0.5,
		OnError: func(err error) { failed = err },
	}})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, l.Close()) })
	for b.Loop() {
		b.StopTimer()
		for n := range actors {
			decide(l, "a.example", address(n<<8&0xffffff|n>>16), 1)
		}
		b.StartTimer()
		l.Sync(b.Context())
		require.NoError(b, failed)
	}
}
