package edge

import (
	"errors"
	"io"
	"strings"
	"time"

	"github.com/ccnq/ccnq/pkg/config"
	"github.com/ccnq/ccnq/pkg/qos"
	"github.com/ccnq/ccnq/pkg/qos/redis"
)

// QoS are the load-aware limits of connect-qos, by its names. Its options
// httpBehindProxy and httpsBehindProxy are not here: the edge knows its clients
// already (CCNQ_CLIENT_IP_HEADER).
type QoS struct {
	Enabled       bool   `env:"CCNQ_QOS_ENABLED" envDefault:"false" doc:"switch the load-aware limits on"`
	Mode          string `env:"CCNQ_QOS_MODE" envDefault:"enforce" enum:"enforce,monitor" doc:"enforce, or monitor: decide and count, but refuse nobody"`
	FeedsDenylist bool   `env:"CCNQ_QOS_FEEDS_DENYLIST" envDefault:"false" doc:"refusals by these limits count towards blocks as those of the queue do; needs the queue and the denylist"`

	LagSource string        `env:"CCNQ_QOS_LAG_SOURCE" envDefault:"scheduler" enum:"scheduler,timer,origin" doc:"what tells how busy it is: how long the edge's own work waits for a processor, how late its timers are, or how much longer than usual the origin takes to begin its answers"`
	MinLag    config.Millis `env:"CCNQ_QOS_MIN_LAG_MS" envDefault:"70" doc:"lag up to which the max rates hold"`
	MaxLag    config.Millis `env:"CCNQ_QOS_MAX_LAG_MS" envDefault:"300" doc:"lag from which the min rates hold; in between they fall in a straight line"`

	MinHostRate   config.Number `env:"CCNQ_QOS_MIN_HOST_RATE" envDefault:"20" doc:"requests a second to one host at full lag; 0 switches the limit off"`
	MaxHostRate   config.Number `env:"CCNQ_QOS_MAX_HOST_RATE" envDefault:"40" doc:"requests a second to one host without lag"`
	MinIPRate     config.Number `env:"CCNQ_QOS_MIN_IP_RATE" envDefault:"0" doc:"requests a second of one address at full lag; 0 switches the limit off"`
	MaxIPRate     config.Number `env:"CCNQ_QOS_MAX_IP_RATE" envDefault:"0" doc:"requests a second of one address without lag"`
	MinSubnetRate config.Number `env:"CCNQ_QOS_MIN_SUBNET_RATE" envDefault:"0" doc:"requests a second of one subnet at full lag; 0 switches the limit off"`
	MaxSubnetRate config.Number `env:"CCNQ_QOS_MAX_SUBNET_RATE" envDefault:"0" doc:"requests a second of one subnet without lag"`
	SubnetBits    int           `env:"CCNQ_QOS_SUBNET_MASK_BITS" envDefault:"24" min:"20" max:"30" doc:"prefix that makes an IPv4 subnet; an IPv6 subnet is a /64"`
	UniqueIPs     config.Number `env:"CCNQ_QOS_MIN_SUBNET_UNIQUE_IPS" envDefault:"0.5" doc:"addresses of an IPv4 subnet that must have been seen before the subnet is refused: below 1 a share of the subnet, from 1 on a number; 1 lets the rate alone decide"`

	MaxHostRatio    config.Number `env:"CCNQ_QOS_MAX_HOST_RATIO" envDefault:"0" doc:"share of all requests that one host may have, up to 0.9; 0 is no limit"`
	IPViolation     config.Number `env:"CCNQ_QOS_MAX_IP_RATE_HOST_VIOLATION" envDefault:"0" doc:"of a host above its share refuse only the addresses above this rate; needs CCNQ_QOS_MIN_IP_RATE; 0 refuses all requests to the host"`
	SubnetViolation config.Number `env:"CCNQ_QOS_MAX_SUBNET_RATE_HOST_VIOLATION" envDefault:"0" doc:"the same for subnets; needs CCNQ_QOS_MIN_SUBNET_RATE"`

	HistorySize int           `env:"CCNQ_QOS_HISTORY_SIZE" envDefault:"200" min:"1" max:"10000000" doc:"hosts, addresses and subnets that are remembered, so many of each; those used longest ago are forgotten first"`
	MaxAge      config.Millis `env:"CCNQ_QOS_MAX_AGE_MS" envDefault:"10000" min:"1" max:"600000" doc:"how far back requests count"`

	HostWhitelist   config.List `env:"CCNQ_QOS_HOST_WHITELIST" envDefault:"localhost" doc:"hosts that are never limited; none is an empty list, as any client may send any of these names"`
	IPWhitelist     config.List `env:"CCNQ_QOS_IP_WHITELIST" doc:"addresses that are never limited; CCNQ_QUEUE_ALLOWLIST takes ranges too"`
	SubnetWhitelist config.List `env:"CCNQ_QOS_SUBNET_WHITELIST" doc:"subnets that are never limited as a whole, by an address of theirs or in CIDR notation"`

	Status        int           `env:"CCNQ_QOS_ERROR_STATUS_CODE" envDefault:"503" min:"400" max:"599" doc:"status of a refusal"`
	Delay         config.Millis `env:"CCNQ_QOS_ERROR_RESPONSE_DELAY_MS" envDefault:"0" max:"20000" doc:"how long a refusal is held back; at most 1,024 are at a time"`
	DestroySocket bool          `env:"CCNQ_QOS_DESTROY_SOCKET" envDefault:"true" doc:"close the connection of a refused client, unless it is one of a proxy"`
	Compat        bool          `env:"CCNQ_QOS_COMPAT" envDefault:"false" doc:"decide as connect-qos 5.7.0 does, defects included"`

	Cluster QoSCluster
}

// QoSCluster makes the edges count together. The limits of the cluster are used by
// the edge if they meet in Redis, and by the denylist service if they meet there by
// way of NATS.
type QoSCluster struct {
	Store           string        `env:"CCNQ_QOS_CLUSTER" envDefault:"off" enum:"off,nats,redis" doc:"where edges count together: nowhere, in the denylist service by way of NATS, or in Redis"`
	Interval        config.Millis `env:"CCNQ_QOS_CLUSTER_SYNC_INTERVAL_MS" envDefault:"2000" min:"100" max:"600000" doc:"how often an edge tells what it let pass, and learns who is above a limit of the cluster"`
	MaxActors       int           `env:"CCNQ_QOS_CLUSTER_MAX_TRACKED_ACTORS" envDefault:"50000" min:"1" max:"1000000" doc:"hosts, addresses and subnets that are counted for the cluster, so many of each; those with the most requests stay"`
	IPRate          config.Number `env:"CCNQ_QOS_CLUSTER_MAX_IP_RATE" envDefault:"0" doc:"requests a second of one address over all edges; 0 is no limit"`
	SubnetRate      config.Number `env:"CCNQ_QOS_CLUSTER_MAX_SUBNET_RATE" envDefault:"0" doc:"requests a second of one subnet over all edges; 0 is no limit"`
	HostRatio       config.Number `env:"CCNQ_QOS_CLUSTER_MAX_HOST_RATIO" envDefault:"0" doc:"share of all requests of the cluster that one host may have; 0 is no limit"`
	IPViolation     config.Number `env:"CCNQ_QOS_CLUSTER_MAX_IP_RATE_HOST_VIOLATION" envDefault:"0" doc:"of a host above its share in the cluster refuse only the addresses above this rate at one edge; needs CCNQ_QOS_MIN_IP_RATE; 0 refuses all requests to the host"`
	SubnetViolation config.Number `env:"CCNQ_QOS_CLUSTER_MAX_SUBNET_RATE_HOST_VIOLATION" envDefault:"0" doc:"the same for subnets; needs CCNQ_QOS_MIN_SUBNET_RATE"`
	UniqueIPs       config.Number `env:"CCNQ_QOS_CLUSTER_MIN_SUBNET_UNIQUE_IPS" envDefault:"0.5" doc:"addresses of an IPv4 subnet that one edge must have seen before the subnet is refused everywhere: below 1 a share of the subnet, from 1 on a number; 1 lets the rate alone decide"`
	RedisURL        string        `env:"CCNQ_QOS_CLUSTER_REDIS_URL" secret:"true" doc:"address of Redis or Valkey, redis://user:password@host:port/db, or rediss:// for TLS; addr=host:port after a question mark, once or more, names nodes of a Redis Cluster"`
	RedisPrefix     string        `env:"CCNQ_QOS_CLUSTER_REDIS_KEY_PREFIX" envDefault:"qos:" doc:"what the keys in Redis begin with; none is nothing"`
}

// The places where edges count together.
const (
	clusterNATS  = "nats"
	clusterRedis = "redis"
)

// emptyValue is how a variable that has a default is given as empty: an empty variable
// is not set.
const emptyValue = "none"

// hostWhitelist is not nil.
func (q QoS) hostWhitelist() []string {
	if len(q.HostWhitelist) == 1 && q.HostWhitelist[0] == emptyValue {
		return []string{}
	}
	return q.HostWhitelist
}

func (c QoSCluster) redisPrefix() string {
	if c.RedisPrefix == emptyValue {
		return ""
	}
	return c.RedisPrefix
}

// redisStore makes the store of edges that meet in Redis, and the client that it has.
// It does not connect. The errors name the variables that are wrong, and have nothing
// secret.
func (c QoSCluster) redisStore() (qos.ClusterStore, io.Closer, []string) {
	var problems []string
	client, err := redis.Open(c.RedisURL)
	if err != nil {
		problems = append(problems, "CCNQ_QOS_CLUSTER_REDIS_URL: "+err.Error())
	}
	store, err := redis.New(client, c.redisPrefix())
	if err != nil {
		problems = append(problems, "CCNQ_QOS_CLUSTER_REDIS_KEY_PREFIX: "+err.Error())
	}
	if len(problems) > 0 {
		if client != nil {
			_ = client.Close()
		}
		return nil, nil, problems
	}
	return store, client, nil
}

// ClusterOnNATS reports whether edges count together by way of NATS, which needs the
// denylist service.
func (c Config) ClusterOnNATS() bool { return c.QoS.Enabled && c.QoS.Cluster.Store == clusterNATS }

// clustered reports whether edges count together.
func (q QoS) clustered() bool {
	return q.Cluster.Store == clusterNATS || q.Cluster.Store == clusterRedis
}

// cluster are the settings of the cluster as package qos takes them, but for the
// store.
func (q QoS) cluster() *qos.ClusterOptions {
	c := q.Cluster
	options := &qos.ClusterOptions{
		SyncInterval: c.Interval.Duration(), MaxTrackedActors: c.MaxActors,
		MaxIPRate: c.IPRate.Float(), MaxSubnetRate: c.SubnetRate.Float(), MaxHostRatio: c.HostRatio.Float(),
		MaxIPRateHostViolation: c.IPViolation.Float(), MaxSubnetRateHostViolation: c.SubnetViolation.Float(),
	}
	if unique := c.UniqueIPs.Float(); !q.Compat {
		options.MinSubnetUniqueIPs = &unique
	}
	return options
}

// limiter are the settings as package qos takes them.
func (q QoS) limiter() qos.Options {
	minLag, maxLag, maxAge := q.MinLag.Duration(), q.MaxLag.Duration(), q.MaxAge.Duration()
	minHost, maxHost, unique := q.MinHostRate.Float(), q.MaxHostRate.Float(), q.UniqueIPs.Float()
	options := qos.Options{
		MinLag: &minLag, MaxLag: &maxLag,
		MinHostRate: &minHost, MaxHostRate: &maxHost,
		MinIPRate: q.MinIPRate.Float(), MaxIPRate: q.MaxIPRate.Float(),
		MinSubnetRate: q.MinSubnetRate.Float(), MaxSubnetRate: q.MaxSubnetRate.Float(),
		SubnetMaskBits: &q.SubnetBits, MinSubnetUniqueIPs: &unique,
		MaxHostRatio: q.MaxHostRatio.Float(), MaxIPRateHostViolation: q.IPViolation.Float(),
		MaxSubnetRateHostViolation: q.SubnetViolation.Float(),
		HistorySize:                &q.HistorySize, MaxAge: &maxAge,
		HostWhitelist: q.hostWhitelist(), IPWhitelist: q.IPWhitelist, SubnetWhitelist: q.SubnetWhitelist,
		ErrorResponseDelay: q.Delay.Duration(),
		Compat:             q.Compat,
	}
	if q.Compat {
		options.MinSubnetUniqueIPs = nil // it came after the version that Compat follows
	}
	return options
}

// qosNames are the variables of the options that a limiter can complain of.
var qosNames = map[string]string{ //nolint:gosec // no credentials
	"MinLag": "CCNQ_QOS_MIN_LAG_MS", "MinHostRate": "CCNQ_QOS_MIN_HOST_RATE", "MinIPRate": "CCNQ_QOS_MIN_IP_RATE",
	"MinSubnetRate": "CCNQ_QOS_MIN_SUBNET_RATE", "MinSubnetUniqueIPs": "CCNQ_QOS_MIN_SUBNET_UNIQUE_IPS",
	"HostWhitelist": "CCNQ_QOS_HOST_WHITELIST", "IPWhitelist": "CCNQ_QOS_IP_WHITELIST",
	"SubnetWhitelist": "CCNQ_QOS_SUBNET_WHITELIST",
}

// validateQoS checks the limits, also while they are off.
func (c *Config) validateQoS() []string {
	var problems []string
	if q := c.QoS; q.Enabled && q.FeedsDenylist && !(c.Queue.Enabled && c.Denylist.Enabled) {
		problems = append(problems, "CCNQ_QOS_FEEDS_DENYLIST: needs CCNQ_QUEUE_ENABLED and CCNQ_QUEUE_DENYLIST_ENABLED")
	}
	cluster := c.QoS.Cluster
	if cluster.UniqueIPs == 0 {
		problems = append(problems, "CCNQ_QOS_CLUSTER_MIN_SUBNET_UNIQUE_IPS: 0 is not a positive number")
	}
	if cluster.Store == clusterRedis {
		problems = append(problems, cluster.validateRedis()...)
	}
	options := c.QoS.limiter()
	options.Lag = noLag{} // starts no goroutine
	limiter, err := qos.New(options)
	if err != nil {
		return append(problems, qosProblem(err))
	}
	_ = limiter.Close()
	return problems
}

// validateRedis checks what is needed to meet in Redis.
func (c QoSCluster) validateRedis() []string {
	if c.RedisURL == "" {
		return []string{"CCNQ_QOS_CLUSTER_REDIS_URL: required when CCNQ_QOS_CLUSTER is redis"}
	}
	_, client, problems := c.redisStore()
	if client != nil {
		_ = client.Close()
	}
	return problems
}

// qosProblem puts an error of package qos into the words of the environment.
func qosProblem(err error) string {
	option, ok := errors.AsType[*qos.OptionError](err)
	if !ok {
		return "CCNQ_QOS_ENABLED: " + err.Error()
	}
	name := qosNames[option.Option]
	if name == "" {
		name = option.Option
	}
	return name + ": " + strings.NewReplacer(
		"MaxLag", "CCNQ_QOS_MAX_LAG_MS", "MaxHostRate", "CCNQ_QOS_MAX_HOST_RATE", "MaxIPRate", "CCNQ_QOS_MAX_IP_RATE",
		"MaxSubnetRate", "CCNQ_QOS_MAX_SUBNET_RATE",
	).Replace(option.Problem)
}

// noLag is the lag source of a limiter that is only validated.
type noLag struct{}

// Lag is 0.
func (noLag) Lag() time.Duration { return 0 }
