package edge

import (
	"bytes"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/pkg/config"
	"github.com/ccnq/ccnq/pkg/qos"
)

// load reads a configuration in which only the given variables are set.
func load(environ ...string) (Config, error) {
	var c Config
	err := config.Load(append([]string{"CCNQ_UPSTREAM_URL=http://127.0.0.1:1"}, environ...), &c)
	return c, err
}

func TestQoSDefaultsAreThoseOfConnectQoS(t *testing.T) {
	t.Parallel()
	c, err := load()
	require.NoError(t, err)
	require.False(t, c.QoS.Enabled)
	o := c.QoS.limiter()
	require.EqualValues(t, 70, o.MinLag.Milliseconds())
	require.EqualValues(t, 300, o.MaxLag.Milliseconds())
	require.InDelta(t, 20, *o.MinHostRate, 0)
	require.InDelta(t, 40, *o.MaxHostRate, 0)
	require.Zero(t, o.MinIPRate+o.MaxIPRate+o.MinSubnetRate+o.MaxSubnetRate+o.MaxHostRatio)
	require.Equal(t, 24, *o.SubnetMaskBits)
	require.InDelta(t, 0.5, *o.MinSubnetUniqueIPs, 0)
	require.Equal(t, 200, *o.HistorySize)
	require.EqualValues(t, 10_000, o.MaxAge.Milliseconds())
	require.Equal(t, []string{"localhost"}, o.HostWhitelist)
	require.Equal(t, 503, c.QoS.Status)
	require.True(t, c.QoS.DestroySocket)
	require.Zero(t, o.ErrorResponseDelay)

	c, err = load("CCNQ_QOS_COMPAT=true")
	require.NoError(t, err)
	require.Nil(t, c.QoS.limiter().MinSubnetUniqueIPs, "connect-qos 5.7.0 has no such gate")
}

func TestQoSProblemsNameTheVariable(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		environ []string
		want    string
	}{
		{[]string{"CCNQ_QOS_MIN_LAG_MS=300"}, "CCNQ_QOS_MIN_LAG_MS: 300 ms is not less than CCNQ_QOS_MAX_LAG_MS 300 ms"},
		{[]string{"CCNQ_QOS_MIN_HOST_RATE=50"}, "CCNQ_QOS_MIN_HOST_RATE: 50 is greater than CCNQ_QOS_MAX_HOST_RATE 40"},
		{[]string{"CCNQ_QOS_MIN_IP_RATE=1"}, "CCNQ_QOS_MIN_IP_RATE: 1 is greater than CCNQ_QOS_MAX_IP_RATE 0"},
		{[]string{"CCNQ_QOS_MIN_SUBNET_RATE=1.5"}, "CCNQ_QOS_MIN_SUBNET_RATE: 1.5 is greater than CCNQ_QOS_MAX_SUBNET_RATE 0"},
		{[]string{"CCNQ_QOS_MIN_SUBNET_UNIQUE_IPS=0"}, "CCNQ_QOS_MIN_SUBNET_UNIQUE_IPS: 0 is not a positive number"},
		{[]string{"CCNQ_QOS_IP_WHITELIST=10.0.0.1,x"}, `CCNQ_QOS_IP_WHITELIST: "x" is not an address`},
		{[]string{"CCNQ_QOS_SUBNET_WHITELIST=10.0.0.0/8"}, `CCNQ_QOS_SUBNET_WHITELIST: "10.0.0.0/8" is not a /24`},
		{[]string{"CCNQ_QOS_SUBNET_MASK_BITS=31"}, `CCNQ_QOS_SUBNET_MASK_BITS: "31" is not a whole number from 20 to 30`},
		{[]string{"CCNQ_QOS_ERROR_STATUS_CODE=200"}, `CCNQ_QOS_ERROR_STATUS_CODE: "200" is not a whole number from 400 to 599`},
		{[]string{"CCNQ_QOS_ERROR_RESPONSE_DELAY_MS=20001"}, `CCNQ_QOS_ERROR_RESPONSE_DELAY_MS: "20001" is not whole milliseconds of at most 20000`},
		{[]string{"CCNQ_QOS_LAG_SOURCE=node"}, `CCNQ_QOS_LAG_SOURCE: "node" is not one of scheduler, timer, origin`},
		{[]string{"CCNQ_QOS_MAX_HOST_RATE=-1"}, `CCNQ_QOS_MAX_HOST_RATE: "-1" is not a number of at least 0`},
		{[]string{"CCNQ_QOS_CLUSTER=redis"}, "CCNQ_QOS_CLUSTER_REDIS_URL: required when CCNQ_QOS_CLUSTER is redis"},
		{[]string{"CCNQ_QOS_CLUSTER=etcd"}, `CCNQ_QOS_CLUSTER: "etcd" is not one of off, nats, redis`},
		{[]string{"CCNQ_QOS_CLUSTER_MIN_SUBNET_UNIQUE_IPS=0"}, "CCNQ_QOS_CLUSTER_MIN_SUBNET_UNIQUE_IPS: 0 is not a positive number"},
		{
			[]string{"CCNQ_QOS_ENABLED=true", "CCNQ_QOS_FEEDS_DENYLIST=true"},
			"CCNQ_QOS_FEEDS_DENYLIST: needs CCNQ_QUEUE_ENABLED and CCNQ_QUEUE_DENYLIST_ENABLED",
		},
		{
			[]string{
				"CCNQ_QOS_ENABLED=true", "CCNQ_QOS_FEEDS_DENYLIST=true", "CCNQ_QUEUE_ENABLED=true", "CCNQ_QUEUE_RULES_FILE=r",
				"CCNQ_QUEUE_DENYLIST_ENABLED=false",
			},
			"CCNQ_QOS_FEEDS_DENYLIST: needs CCNQ_QUEUE_ENABLED and CCNQ_QUEUE_DENYLIST_ENABLED",
		},
	} {
		_, err := load(test.environ...)
		require.EqualError(t, err, "configuration: "+test.want, test.environ)
	}
	_, err := load("CCNQ_QOS_ENABLED=true", "CCNQ_QOS_FEEDS_DENYLIST=true", "CCNQ_QUEUE_ENABLED=true", "CCNQ_QUEUE_RULES_FILE=r")
	require.NoError(t, err)
}

// TestQoSClusterSettingsReachTheLimiter has a value of its own in each variable.
func TestQoSClusterSettingsReachTheLimiter(t *testing.T) {
	t.Parallel()
	c, err := load(
		"CCNQ_QOS_CLUSTER=nats", "CCNQ_QOS_CLUSTER_SYNC_INTERVAL_MS=1000", "CCNQ_QOS_CLUSTER_MAX_TRACKED_ACTORS=7",
		"CCNQ_QOS_CLUSTER_MAX_IP_RATE=1", "CCNQ_QOS_CLUSTER_MAX_SUBNET_RATE=2", "CCNQ_QOS_CLUSTER_MAX_HOST_RATIO=0.3",
		"CCNQ_QOS_CLUSTER_MAX_IP_RATE_HOST_VIOLATION=4", "CCNQ_QOS_CLUSTER_MAX_SUBNET_RATE_HOST_VIOLATION=5",
		"CCNQ_QOS_CLUSTER_MIN_SUBNET_UNIQUE_IPS=6",
	)
	require.NoError(t, err)
	require.False(t, c.ClusterOnNATS(), "the limits are off")
	require.True(t, c.QoS.clustered())
	require.Equal(t, &qos.ClusterOptions{
		SyncInterval: time.Second, MaxTrackedActors: 7, MaxIPRate: 1, MaxSubnetRate: 2, MaxHostRatio: 0.3,
		MaxIPRateHostViolation: 4, MaxSubnetRateHostViolation: 5, MinSubnetUniqueIPs: new(6.0),
	}, c.QoS.cluster())

	c, err = load()
	require.NoError(t, err)
	require.False(t, c.QoS.clustered())
	require.Equal(t, &qos.ClusterOptions{
		SyncInterval: 2 * time.Second, MaxTrackedActors: 50_000, MinSubnetUniqueIPs: new(0.5),
	}, c.QoS.cluster())
}

// TestRedisProblemsStopTheStart, in the one message about all that is wrong, and without
// the password.
func TestRedisProblemsStopTheStart(t *testing.T) {
	t.Parallel()
	for _, address := range []string{
		"http://user:hunter2@host", "redis://user:hunter2@host:x", "redis://user:hunter2@host:6379/x",
		"redis://user:hunter2@host:6379?addr=host", "redis://host:6379?password=hunter2",
	} {
		c, err := load("CCNQ_QOS_CLUSTER=redis", "CCNQ_QOS_CLUSTER_REDIS_URL="+address, "CCNQ_QOS_CLUSTER_REDIS_KEY_PREFIX={}")
		require.ErrorContains(t, err, "CCNQ_QOS_CLUSTER_REDIS_URL: redis: the address is not ", address)
		require.ErrorContains(t, err, `CCNQ_QOS_CLUSTER_REDIS_KEY_PREFIX: redis: key prefix "{}" has braces`)
		require.NotContains(t, err.Error(), "hunter2")

		// An edge that is made in another way says the same.
		var log bytes.Buffer
		c.QoS.Enabled = true
		_, err = New(c, Deps{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		require.ErrorContains(t, err, "CCNQ_QOS_CLUSTER_REDIS_URL")
		require.NotContains(t, err.Error()+log.String(), "hunter2")
	}
	_, err := load("CCNQ_QOS_CLUSTER=off", "CCNQ_QOS_CLUSTER_REDIS_KEY_PREFIX={}")
	require.NoError(t, err, "what is not used")
}

// TestNoneIsEmpty: what has a default cannot be switched off by an empty value, which is
// none.
func TestNoneIsEmpty(t *testing.T) {
	t.Parallel()
	c, err := load("CCNQ_QOS_HOST_WHITELIST=", "CCNQ_QOS_CLUSTER_REDIS_KEY_PREFIX=")
	require.NoError(t, err)
	require.Equal(t, []string{"localhost"}, c.QoS.limiter().HostWhitelist)
	require.Equal(t, "qos:", c.QoS.Cluster.redisPrefix())

	c, err = load("CCNQ_QOS_HOST_WHITELIST=none", "CCNQ_QOS_CLUSTER_REDIS_KEY_PREFIX=none")
	require.NoError(t, err)
	require.Equal(t, []string{}, c.QoS.limiter().HostWhitelist)
	require.Empty(t, c.QoS.Cluster.redisPrefix())
	options := c.QoS.limiter()
	options.Lag, options.MinHostRate, options.MaxHostRate = noLag{}, new(0.1), new(0.1) // one request
	limiter, err := qos.New(options)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, limiter.Close()) })
	require.False(t, limiter.IsBadHost("localhost", true))
	require.True(t, limiter.IsBadHost("localhost", true), "nobody gets by with a name")
}
