package redis_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ccnq/ccnq/pkg/qos"
	"github.com/ccnq/ccnq/pkg/qos/redis"
	"github.com/ccnq/ccnq/pkg/qos/redis/redistest"
	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// goldenDir holds recordings of several connect-qos 5.7.0 and a Redis.
// CCNQ_GOLDEN_CLUSTER_DIR names another folder with files of the same format.
func goldenDir() string {
	if dir := os.Getenv("CCNQ_GOLDEN_CLUSTER_DIR"); dir != "" {
		return dir
	}
	return filepath.Join("testdata", "golden")
}

type goldenScenario struct {
	Name    string
	Seed    int
	Nodes   int
	Options goldenOptions
	Prefix  *string `json:"redis_key_prefix"`
	Base    int64   `json:"base_ms"`
	Steps   []goldenStep
}

// wholeNumber is a number that Go has as an int. One that is not whole, which only an untyped
// language can be given, is 0.
type wholeNumber int

func (w *wholeNumber) UnmarshalJSON(data []byte) error {
	var number float64
	if err := json.Unmarshal(data, &number); err != nil {
		return err
	}
	if *w = wholeNumber(number); float64(*w) != number {
		*w = 0
	}
	return nil
}

// goldenOptions are the options of connect-qos by their own names.
type goldenOptions struct {
	MinLag                     *float64     `json:"minLag"`
	MaxLag                     *float64     `json:"maxLag"`
	MinHostRate                *float64     `json:"minHostRate"`
	MaxHostRate                *float64     `json:"maxHostRate"`
	MinIPRate                  float64      `json:"minIpRate"`
	MaxIPRate                  float64      `json:"maxIpRate"`
	MinSubnetRate              float64      `json:"minSubnetRate"`
	MaxSubnetRate              float64      `json:"maxSubnetRate"`
	SubnetMaskBits             *wholeNumber `json:"subnetMaskBits"`
	MinSubnetUniqueIPs         *float64     `json:"minSubnetUniqueIps"`
	MaxHostRatio               float64      `json:"maxHostRatio"`
	MaxIPRateHostViolation     float64      `json:"maxIpRateHostViolation"`
	MaxSubnetRateHostViolation float64      `json:"maxSubnetRateHostViolation"`
	HistorySize                *wholeNumber `json:"historySize"`
	MaxAge                     *float64     `json:"maxAge"`
	HostWhitelist              []string     `json:"hostWhitelist"`
	IPWhitelist                []string     `json:"ipWhitelist"`
	SubnetWhitelist            []string     `json:"subnetWhitelist"`
	HTTPBehindProxy            bool         `json:"httpBehindProxy"`
	HTTPSBehindProxy           bool         `json:"httpsBehindProxy"`
	ErrorStatusCode            *wholeNumber `json:"errorStatusCode"`
	ErrorResponseDelay         float64      `json:"errorResponseDelay"`
	Prefix                     *string      `json:"redis_key_prefix"`
	Cluster                    struct {
		SyncInterval               float64  `json:"syncIntervalMs"`
		MaxTrackedActors           int      `json:"maxTrackedActors"`
		MaxIPRate                  float64  `json:"clusterMaxIpRate"`
		MaxSubnetRate              float64  `json:"clusterMaxSubnetRate"`
		MaxHostRatio               float64  `json:"clusterMaxHostRatio"`
		MaxIPRateHostViolation     float64  `json:"clusterMaxIpRateHostViolation"`
		MaxSubnetRateHostViolation float64  `json:"clusterMaxSubnetRateHostViolation"`
		MinSubnetUniqueIPs         *float64 `json:"clusterMinSubnetUniqueIps"`
	} `json:"cluster"`
}

func duration(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }

func optionalDuration(ms *float64) *time.Duration {
	if ms == nil {
		return nil
	}
	return new(duration(*ms))
}

func (g goldenOptions) options() qos.Options {
	c := g.Cluster
	return qos.Options{
		MinLag: optionalDuration(g.MinLag), MaxLag: optionalDuration(g.MaxLag),
		MinHostRate: g.MinHostRate, MaxHostRate: g.MaxHostRate,
		MinIPRate: g.MinIPRate, MaxIPRate: g.MaxIPRate,
		MinSubnetRate: g.MinSubnetRate, MaxSubnetRate: g.MaxSubnetRate,
		SubnetMaskBits: (*int)(g.SubnetMaskBits), MinSubnetUniqueIPs: g.MinSubnetUniqueIPs,
		MaxHostRatio:               g.MaxHostRatio,
		MaxIPRateHostViolation:     g.MaxIPRateHostViolation,
		MaxSubnetRateHostViolation: g.MaxSubnetRateHostViolation,
		HistorySize:                (*int)(g.HistorySize), MaxAge: optionalDuration(g.MaxAge),
		HostWhitelist: g.HostWhitelist, IPWhitelist: g.IPWhitelist, SubnetWhitelist: g.SubnetWhitelist,
		HTTPBehindProxy: g.HTTPBehindProxy, HTTPSBehindProxy: g.HTTPSBehindProxy,
		ErrorStatusCode: (*int)(g.ErrorStatusCode), ErrorResponseDelay: duration(g.ErrorResponseDelay),
		Cluster: &qos.ClusterOptions{
			SyncInterval:     time.Hour, // steps say when
			MaxTrackedActors: c.MaxTrackedActors,
			MaxIPRate:        c.MaxIPRate, MaxSubnetRate: c.MaxSubnetRate, MaxHostRatio: c.MaxHostRatio,
			MaxIPRateHostViolation: c.MaxIPRateHostViolation, MaxSubnetRateHostViolation: c.MaxSubnetRateHostViolation,
			MinSubnetUniqueIPs: c.MinSubnetUniqueIPs,
		},
		Compat: true,
	}
}

type goldenStep struct {
	At         int64 `json:"at_ms"`
	Op         string
	Node       int
	Host       string
	RemoteAddr string  `json:"remote_addr"`
	Lag        float64 `json:"lag_ms"`
	N          *int64
	Every      int64 `json:"every_ms"`
	Arg        string
	Track      *bool
	Type, Key  string
	Value      string
	Fault      *struct{ Stage, Mode string }
	Expect     json.RawMessage // a reason, a boolean or a goldenSync
	ExpectRuns [][2]any        `json:"expect_runs"`
	Redis      map[string]goldenKey
}

type goldenSync struct {
	IPs       []string `json:"blocked_ips"`
	Subnets   []string `json:"blocked_subnets"`
	Hosts     []string `json:"host_violations"`
	Pipelines []struct {
		Kind     string
		Commands int
	}
	OnSync *struct {
		IPs       int                            `json:"blockedIps"`
		Subnets   int                            `json:"blockedSubnets"`
		Hosts     int                            `json:"hostViolations"`
		Published struct{ IP, Subnet, Host int } `json:"publishedDeltas"`
	} `json:"on_sync"`
	OnErrorCalls int `json:"on_error_calls"`
}

type goldenKey struct {
	Type  string
	TTL   int
	ZSet  [][2]any
	Value string
}

// fleet is the nodes of a scenario.
type fleet struct {
	t      *testing.T
	client goredis.UniversalClient // without faults
	clock  time.Time
	lag    time.Duration
	nodes  []*node
}

type node struct {
	limiter *qos.Limiter
	faults  *faults
	stats   *qos.SyncStats // of the last sync, nil if there was none
	errors  int
}

func (f *fleet) Lag() time.Duration { return f.lag }

// faults are a hook of a client that spoils pipelines.
type faults struct {
	stage, mode string
	pipelines   []string // the kinds that were sent
}

var errFault = errors.New("fault of the test")

func (f *faults) DialHook(next goredis.DialHook) goredis.DialHook          { return next }
func (f *faults) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook { return next }

func (f *faults) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return func(ctx context.Context, commands []goredis.Cmder) error {
		kind := map[string]string{
			"zincrby": "publish", "incrby": "publish", "zrange": "read", "get": "read", "unlink": "cleanup",
		}[commands[0].Name()]
		if kind == "" {
			return next(ctx, commands) // the greeting of a new connection
		}
		f.pipelines = append(f.pipelines, kind)
		if kind != f.stage {
			return next(ctx, commands)
		}
		if f.mode == "apply_then_reject" {
			_ = next(ctx, commands) // also "no such key" is an answer
		}
		return errFault
	}
}

func TestGoldenCluster(t *testing.T) {
	t.Parallel()
	paths, err := filepath.Glob(filepath.Join(goldenDir(), "*.json"))
	require.NoError(t, err)
	require.NotEmpty(t, paths, "no file in %s", goldenDir())
	server := redistest.Start(t, "databases", strconv.Itoa(len(paths)))
	// The server must outlive the parallel tests.
	t.Run("files", func(t *testing.T) {
		for db, path := range paths {
			t.Run(strings.TrimSuffix(filepath.Base(path), ".json"), func(t *testing.T) {
				t.Parallel()
				data, err := os.ReadFile(path)
				require.NoError(t, err)
				decoder := json.NewDecoder(bytes.NewReader(data))
				decoder.DisallowUnknownFields()
				var scenarios []goldenScenario
				require.NoError(t, decoder.Decode(&scenarios))
				require.NotEmpty(t, scenarios)
				for _, s := range scenarios {
					// A parallel subtest would share the database.
					t.Run(s.Name, func(t *testing.T) { runScenario(t, fmt.Sprintf("%s/%d", server.URL, db), s) })
				}
			})
		}
	})
}

func runScenario(t *testing.T, address string, s goldenScenario) {
	t.Helper()
	f := &fleet{t: t, client: open(t, address), clock: time.UnixMilli(s.Base)}
	require.NoError(t, f.client.FlushDB(t.Context()).Err())
	prefix := redis.DefaultPrefix
	for _, given := range []*string{s.Prefix, s.Options.Prefix} {
		if given != nil {
			prefix = *given
		}
	}
	for range s.Nodes {
		f.nodes = append(f.nodes, f.newNode(address, prefix, s.Options.options()))
	}
	for i, step := range s.Steps {
		f.clock = time.UnixMilli(s.Base + step.At)
		f.lag = duration(step.Lag)
		require.Less(t, step.Node, len(f.nodes))
		f.do(i, step, f.nodes[step.Node])
		if step.Redis != nil {
			require.Equal(t, step.Redis, f.content(), "step %d: Redis", i)
		}
	}
}

func (f *fleet) newNode(address, prefix string, o qos.Options) *node {
	n := &node{faults: &faults{}}
	client := open(f.t, address)
	client.AddHook(n.faults)
	store, err := redis.New(client, prefix)
	require.NoError(f.t, err)
	o.Cluster.Store = store
	o.Cluster.OnSync = func(stats qos.SyncStats) { n.stats = &stats }
	o.Cluster.OnError = func(error) { n.errors++ }
	o.Now = func() time.Time { return f.clock }
	o.Lag = f
	n.limiter, err = qos.New(o)
	require.NoError(f.t, err)
	f.t.Cleanup(func() { require.NoError(f.t, n.limiter.Close()) })
	return n
}

func (f *fleet) do(i int, step goldenStep, n *node) {
	f.t.Helper()
	ctx := f.t.Context()
	count := int64(1)
	if step.N != nil {
		count = *step.N
	}
	switch step.Op {
	case "request":
		f.request(i, step, n, count)
	case "hit":
		kind, ok := map[string]qos.Kind{"host": qos.Host, "ip": qos.IP, "subnet": qos.Subnet}[step.Type]
		require.True(f.t, ok, "unknown type %q", step.Type)
		n.limiter.AddHits(kind, step.Key, count)
	case "isBadHost", "isBadIp", "isBadSubnet":
		var want bool
		require.NoError(f.t, json.Unmarshal(step.Expect, &want))
		query := map[string]func(string, bool) bool{
			"isBadHost": n.limiter.IsBadHost, "isBadIp": n.limiter.IsBadIP, "isBadSubnet": n.limiter.IsBadSubnet,
		}[step.Op]
		require.Equal(f.t, want, query(step.Arg, step.Track == nil || *step.Track), "step %d", i)
	case "redis_set":
		require.NoError(f.t, f.client.Set(ctx, step.Key, step.Value, 0).Err())
	case "redis_del":
		require.NoError(f.t, f.client.Del(ctx, step.Key).Err())
	case "stop":
		require.NoError(f.t, n.limiter.Close())
	case "sync":
		f.sync(i, step, n)
	default:
		require.Failf(f.t, "unknown operation", "%q", step.Op)
	}
}

func (f *fleet) request(i int, step goldenStep, n *node, count int64) {
	f.t.Helper()
	var want []any
	if step.ExpectRuns == nil {
		var reason any
		require.NoError(f.t, json.Unmarshal(step.Expect, &reason))
		want = slices.Repeat([]any{reason}, int(count))
	}
	for _, run := range step.ExpectRuns {
		want = append(want, slices.Repeat([]any{run[1]}, int(run[0].(float64)))...)
	}
	require.Len(f.t, want, int(count))
	start := f.clock
	var got []any
	for k := range count {
		f.clock = start.Add(time.Duration(k*step.Every) * time.Millisecond)
		r := &http.Request{Method: http.MethodGet, Host: step.Host, RemoteAddr: net.JoinHostPort(step.RemoteAddr, "49152"), Header: http.Header{}}
		got = append(got, string(n.limiter.Decide(n.limiter.Actor(r))))
	}
	require.Equal(f.t, want, got, "step %d", i)
}

func (f *fleet) sync(i int, step goldenStep, n *node) {
	f.t.Helper()
	var want goldenSync
	decoder := json.NewDecoder(bytes.NewReader(step.Expect))
	decoder.DisallowUnknownFields()
	require.NoError(f.t, decoder.Decode(&want))
	n.stats, n.errors = nil, 0
	*n.faults = faults{}
	if step.Fault != nil {
		n.faults.stage, n.faults.mode = step.Fault.Stage, step.Fault.Mode
	}
	n.limiter.Sync(f.t.Context())

	var kinds []string
	for _, p := range want.Pipelines {
		kinds = append(kinds, p.Kind)
	}
	require.Equal(f.t, kinds, n.faults.pipelines, "step %d", i)
	lists := n.limiter.Blocklists()
	require.Equal(f.t, want.IPs, sorted(lists.IPs), "step %d: addresses", i)
	require.Equal(f.t, want.Subnets, sorted(lists.Subnets), "step %d: subnets", i)
	require.Equal(f.t, want.Hosts, sorted(lists.Hosts), "step %d: hosts", i)
	require.Equal(f.t, want.OnErrorCalls, n.errors, "step %d: errors", i)
	if want.OnSync == nil {
		require.Nil(f.t, n.stats, "step %d", i)
		return
	}
	require.NotNil(f.t, n.stats, "step %d", i)
	n.stats.Took = 0
	o := want.OnSync
	require.Equal(f.t, qos.SyncStats{
		BlockedIPs: o.IPs, BlockedSubnets: o.Subnets, HostViolations: o.Hosts,
		PublishedIPs: o.Published.IP, PublishedSubnets: o.Published.Subnet, PublishedHosts: o.Published.Host,
	}, *n.stats, "step %d", i)
}

func sorted(keys []string) []string { return append([]string{}, slices.Sorted(slices.Values(keys))...) }

// content is all that Redis has.
func (f *fleet) content() map[string]goldenKey {
	f.t.Helper()
	ctx := f.t.Context()
	keys, err := f.client.Keys(ctx, "*").Result()
	require.NoError(f.t, err)
	all := make(map[string]goldenKey)
	for _, name := range keys {
		var k goldenKey
		k.Type, err = f.client.Type(ctx, name).Result()
		require.NoError(f.t, err)
		ttl, err := f.client.Do(ctx, "TTL", name).Int()
		require.NoError(f.t, err)
		k.TTL = ttl
		if k.Type == "string" {
			k.Value, err = f.client.Get(ctx, name).Result()
			require.NoError(f.t, err)
		} else {
			members, err := f.client.ZRangeWithScores(ctx, name, 0, -1).Result()
			require.NoError(f.t, err)
			for _, z := range members {
				k.ZSet = append(k.ZSet, [2]any{z.Member, z.Score})
			}
		}
		all[name] = k
	}
	return all
}
