package qos

import (
	"context"
	"math"
	"time"
)

// ClusterOptions make nodes count together, so that requests spread over them meet
// the limits too. Every SyncInterval a node publishes what it tracked since, and
// learns who is above a limit of the cluster. No request waits for that. While the
// store does not answer, the last blocklists stay in force, the limits of the node
// go on, and hits are kept until they can be published.
//
// A request counts for the cluster when it is tracked, even where the limits of
// the node are off: refused and whitelisted ones do not count.
type ClusterOptions struct {
	// Store is where nodes meet. Required.
	Store ClusterStore
	// SyncInterval is how often to sync. Default 2 s.
	SyncInterval time.Duration
	// MaxTrackedActors is how many hosts, addresses and subnets each are counted
	// between two syncs, and kept in a window of the cluster. Default 50,000.
	MaxTrackedActors int

	// MaxIPRate and MaxSubnetRate limit an address and a subnet, in requests per
	// second over all nodes. Those at the limit are blocked. Default 0: off.
	MaxIPRate, MaxSubnetRate float64
	// MaxHostRatio is the share of all requests of the cluster above which a host
	// is in violation. From 1 on it never is. Default 0: off.
	MaxHostRatio float64
	// MaxIPRateHostViolation and MaxSubnetRateHostViolation soften such a violation
	// as the fields of the same names in Options do: by the rate on this node, so
	// that they need MinIPRate and MinSubnetRate of Options. Default 0: none.
	MaxIPRateHostViolation, MaxSubnetRateHostViolation float64
	// MinSubnetUniqueIPs is how many addresses of an IPv4 subnet a single node must
	// have tracked in a window before MaxSubnetRate can block the subnet: a share or
	// a number, as in Options. Default 0.5, and 1 with Compat. A subnet whose history
	// begins or is evicted (Options.HistorySize) meanwhile is told of with the addresses
	// since then alone, so it may be blocked later than it should, never sooner.
	MinSubnetUniqueIPs *float64

	// OnSync is called after each sync that was not stopped by an error.
	OnSync func(SyncStats)
	// OnError is called with each error of the store; the limiter goes on.
	// Neither it nor OnSync may call Sync or Close.
	OnError func(error)
}

// A ClusterStore adds up the hits of all nodes. One limiter calls it from one
// goroutine at a time, with the same limits each time.
type ClusterStore interface {
	// Publish counts a batch. After an error the same batch is given to it again,
	// unchanged and with the same ID, until there is none, so that a store that
	// remembers IDs counts it once. (With Compat its hits return in another batch,
	// as in connect-qos, and may count twice.) A batch is the store's to keep, but
	// not to change.
	Publish(ctx context.Context, limits *ClusterLimits, batch *Batch) error
	// Blocklists returns who is above the limits now, or nil if that is not known
	// anew. Lists may come with an error that does not concern them: they take
	// effect, and the error is told to OnError.
	//
	// A store that hears of new lists at other times hands them to
	// [Limiter.SetBlocklists].
	Blocklists(ctx context.Context, limits *ClusterLimits, now time.Time) (*Blocklists, error)
}

// Batch is what one node tracked between two syncs.
type Batch struct {
	// ID is unique among all batches of all nodes.
	ID string
	// Window is the number of the window in which the batch was made.
	Window int64
	// Hits, at most MaxTrackedActors of a kind, in any order. It may happen that a key
	// is there twice.
	IPs, Subnets, Hosts []Hits
	// Total is the hits of all hosts, those beyond MaxTrackedActors included.
	Total int64
	// UniqueIPs is, for the subnets that were hit, how many of their addresses this
	// node has tracked so far in window UniqueWindow, which is Window or an earlier
	// one. Empty unless limits ask for more than one address.
	UniqueIPs    []Hits
	UniqueWindow int64
}

// Empty reports whether there is nothing to publish.
func (b *Batch) Empty() bool {
	return len(b.IPs) == 0 && len(b.Subnets) == 0 && len(b.Hosts) == 0 && b.Total == 0
}

// Hits is how often a key was tracked.
type Hits struct {
	// Key is an address, the first address of a subnet, or a host, as it is counted.
	// Addresses are in canonical text (RFC 5952); with Compat they may be any text.
	Key string
	N   int64
}

// Blocklists are the keys that the cluster has above a limit. They are not changed
// once handed over.
type Blocklists struct {
	IPs, Subnets []string // blocked
	Hosts        []string // in violation
}

// SyncStats tell of one sync.
type SyncStats struct {
	// Lengths of the blocklists.
	BlockedIPs, BlockedSubnets, HostViolations int
	// Keys that were published.
	PublishedIPs, PublishedSubnets, PublishedHosts int
	// Took is the time for all of it.
	Took time.Duration
}

// Defaults of ClusterOptions.
const (
	defaultSyncInterval     = 2 * time.Second
	defaultMaxTrackedActors = 50_000
)

// clusterSettings are ClusterOptions with the defaults filled in.
type clusterSettings struct {
	store     ClusterStore
	interval  time.Duration
	limits    ClusterLimits
	overrides overrides
	uniqueIPs float64
	onSync    func(SyncStats)
	onError   func(error)
}

// settings fills in the defaults. s has those of the limiter.
func (o *ClusterOptions) settings(s *settings) *clusterSettings {
	c := &clusterSettings{
		store:    o.Store,
		interval: o.SyncInterval,
		limits: ClusterLimits{
			Window:           duration(s.maxAge),
			MaxTrackedActors: o.MaxTrackedActors,
			MaxIPRate:        o.MaxIPRate,
			MaxSubnetRate:    o.MaxSubnetRate,
			MaxHostRatio:     o.MaxHostRatio,
			Compat:           s.compat,
		},
		overrides: overrides{o.MaxIPRateHostViolation, o.MaxSubnetRateHostViolation},
		uniqueIPs: uniqueIPs(o.MinSubnetUniqueIPs, s.compat),
		onSync:    o.OnSync,
		onError:   o.OnError,
	}
	c.limits.RequiredIPs = RequiredIPs(c.uniqueIPs, s.maskBits)
	if c.interval == 0 {
		c.interval = defaultSyncInterval
	}
	if c.limits.MaxTrackedActors == 0 {
		c.limits.MaxTrackedActors = defaultMaxTrackedActors
	}
	if s.compat {
		// What makes no sense is the default there.
		if c.interval < 0 {
			c.interval = defaultSyncInterval
		}
		if c.limits.MaxTrackedActors < 0 {
			c.limits.MaxTrackedActors = defaultMaxTrackedActors
		}
		if s.maxAge <= 0 {
			c.limits.Window = 10 * time.Second
		}
		for _, limit := range []*float64{
			&c.limits.MaxIPRate, &c.limits.MaxSubnetRate, &c.limits.MaxHostRatio, &c.overrides.ip, &c.overrides.subnet,
		} {
			if !(*limit > 0) {
				*limit = 0
			}
		}
	}
	return c
}

// validate returns an *OptionError for the first thing that is wrong.
func (c *clusterSettings) validate() error {
	fail := func(option, format string, args ...any) error {
		return optionError("Cluster."+option, format, args...)
	}
	numbers := []struct {
		option string
		value  float64
	}{
		{"MaxIPRate", c.limits.MaxIPRate}, {"MaxSubnetRate", c.limits.MaxSubnetRate},
		{"MaxHostRatio", c.limits.MaxHostRatio},
		{"MaxIPRateHostViolation", c.overrides.ip}, {"MaxSubnetRateHostViolation", c.overrides.subnet},
	}
	for _, n := range numbers {
		switch {
		case math.IsNaN(n.value) || math.IsInf(n.value, 0):
			return fail(n.option, "%v is not a finite number", n.value)
		case n.value < 0:
			return fail(n.option, "%v is negative", n.value)
		}
	}
	switch {
	case c.store == nil:
		return fail("Store", "is missing")
	case c.interval < 0:
		return fail("SyncInterval", "%v is negative", c.interval)
	case c.limits.MaxTrackedActors < 0:
		return fail("MaxTrackedActors", "%d is negative", c.limits.MaxTrackedActors)
	case !(c.uniqueIPs > 0) || math.IsInf(c.uniqueIPs, 0):
		return fail("MinSubnetUniqueIPs", "%v is not a positive number", c.uniqueIPs)
	}
	return nil
}
