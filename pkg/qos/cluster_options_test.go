package qos

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestClusterLimitsArithmetic(t *testing.T) {
	t.Parallel()
	l := ClusterLimits{Window: 10 * time.Second, MaxIPRate: 1, MaxSubnetRate: 2, MaxHostRatio: 0.02, RequiredIPs: 3}
	at := func(ms int64) time.Time { return time.UnixMilli(170_000_000_0000 + ms) }
	number, weight := l.WindowAt(at(2500))
	require.EqualValues(t, 170_000_000, number)
	require.InDelta(t, 0.75, weight, 0)
	require.InDelta(t, 10, l.IPThreshold(), 0)
	require.InDelta(t, 20, l.SubnetThreshold(), 0)
	require.InDelta(t, 20, l.MinTotal(), 0)

	counts := func(n float64) *ClusterCounts {
		return &ClusterCounts{
			IPs:     map[string]float64{"192.0.2.1": n},
			Subnets: map[string]float64{"192.0.2.0": 2 * n, "2001:db8::": 2 * n},
			Hosts:   map[string]float64{"a.example": n, "b.example": 0.01 * n},
			Total:   2 * n, UniqueIPs: map[string]float64{"192.0.2.0": 3},
		}
	}
	all := &Blocklists{IPs: []string{"192.0.2.1"}, Subnets: []string{"192.0.2.0", "2001:db8::"}, Hosts: []string{"a.example"}}
	blocked := func(ms int64, current, previous *ClusterCounts) *Blocklists {
		lists := l.Blocklists(at(ms), current, previous)
		slices.Sort(lists.Subnets)
		return lists
	}
	require.Equal(t, all, blocked(0, counts(10), &ClusterCounts{}))
	require.Equal(t, &Blocklists{}, blocked(0, counts(9.9), &ClusterCounts{}))
	require.Equal(t, &Blocklists{IPs: all.IPs, Subnets: []string{"2001:db8::"}, Hosts: all.Hosts}, blocked(5000, &ClusterCounts{}, counts(20)),
		"half of three addresses is one")
	require.Equal(t, &Blocklists{}, blocked(5001, &ClusterCounts{}, counts(20)))
	require.Equal(t, all, blocked(5000, counts(5), counts(10)))

	l.Compat = true
	require.Equal(t, []string{"a.example"}, blocked(0, counts(0.5), &ClusterCounts{}).Hosts, "one request is all of the traffic")
	l = ClusterLimits{Window: time.Second}
	require.False(t, l.Any())
	require.Equal(t, &Blocklists{}, l.Blocklists(at(0), counts(1e9), counts(1e9)))
}

func TestNewNamesTheWrongClusterOption(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		options ClusterOptions
		message string
		compat  bool // an error there too
	}{
		{"store", ClusterOptions{}, "qos: Cluster.Store is missing", true},
		{"interval", ClusterOptions{SyncInterval: -1}, "qos: Cluster.SyncInterval -1ns is negative", false},
		{"cap", ClusterOptions{MaxTrackedActors: -1}, "qos: Cluster.MaxTrackedActors -1 is negative", false},
		{"address rate", ClusterOptions{MaxIPRate: -1}, "qos: Cluster.MaxIPRate -1 is negative", false},
		{"subnet rate", ClusterOptions{MaxSubnetRate: math.NaN()}, "qos: Cluster.MaxSubnetRate NaN is not a finite number", false},
		{"ratio", ClusterOptions{MaxHostRatio: math.Inf(1)}, "qos: Cluster.MaxHostRatio +Inf is not a finite number", true},
		{"override", ClusterOptions{MaxIPRateHostViolation: -2}, "qos: Cluster.MaxIPRateHostViolation -2 is negative", false},
		{"subnet override", ClusterOptions{MaxSubnetRateHostViolation: -2}, "qos: Cluster.MaxSubnetRateHostViolation -2 is negative", false},
		{"gate", ClusterOptions{MinSubnetUniqueIPs: new(0.0)}, "qos: Cluster.MinSubnetUniqueIPs 0 is not a positive number", true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if test.name != "store" {
				test.options.Store = &board{}
			}
			_, err := New(Options{Lag: &world{}, Cluster: &test.options})
			require.EqualError(t, err, test.message)
			l, err := New(Options{Lag: &world{}, Cluster: &test.options, Compat: true})
			require.Equal(t, test.compat, err != nil, "with Compat: %v", err)
			if err == nil {
				require.NoError(t, l.Close())
			}
		})
	}
}

func TestClusterDefaults(t *testing.T) {
	t.Parallel()
	for _, compat := range []bool{false, true} {
		l, _, store := newMember(t, Options{Compat: compat}, ClusterOptions{})
		l.Sync(t.Context())
		required := 128
		if compat {
			required = 1
		}
		require.Equal(t, ClusterLimits{Window: 10 * time.Second, MaxTrackedActors: 50_000, RequiredIPs: required, Compat: compat}, store.limits)
	}
	l, _, store := newMember(t, Options{Compat: true, MaxAge: new(-time.Second)}, ClusterOptions{})
	l.Sync(t.Context())
	require.Equal(t, 10*time.Second, store.limits.Window)
}
