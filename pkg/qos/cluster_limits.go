package qos

import (
	"math"
	"net/netip"
	"time"
)

// ClusterLimits are the limits of a cluster, and the arithmetic of its windows. All
// stores share it.
//
// Time is cut into windows, counted from the Unix epoch. What counts is a sliding
// sum: the hits of this window, and of those of the previous one the part that a
// window which ends now would still cover, as if they had come evenly.
type ClusterLimits struct {
	// Window is the length of a window: Options.MaxAge.
	Window time.Duration
	// MaxTrackedActors is how many keys of a kind a window keeps: those with the
	// most hits.
	MaxTrackedActors int
	// MaxIPRate, MaxSubnetRate and MaxHostRatio are as in ClusterOptions; 0 is off.
	MaxIPRate, MaxSubnetRate, MaxHostRatio float64
	// RequiredIPs is how many addresses of an IPv4 subnet a single node must have
	// tracked before the subnet can be blocked; 1 is no condition.
	RequiredIPs int
	// Compat is Options.Compat.
	Compat bool
}

// ClusterCounts are the hits of one window over all nodes.
type ClusterCounts struct {
	IPs, Subnets, Hosts map[string]float64
	Total               float64
	// UniqueIPs is how many addresses of a subnet the node that tracked the most of
	// them has tracked.
	UniqueIPs map[string]float64
}

// WindowAt is the number of the window at a time, and the part of the previous one
// that counts: 1 at the start of a window, and almost 0 at its end.
func (l *ClusterLimits) WindowAt(t time.Time) (number int64, previousWeight float64) {
	now, length := float64(t.UnixMilli()), millis(l.Window)
	return int64(math.Floor(now / length)), 1 - math.Mod(now, length)/length
}

// Any reports whether there is any limit.
func (l *ClusterLimits) Any() bool {
	return l.MaxIPRate > 0 || l.MaxSubnetRate > 0 || l.MaxHostRatio > 0
}

// IPThreshold and SubnetThreshold are from how many hits on an address or subnet
// is blocked.
func (l *ClusterLimits) IPThreshold() float64 { return l.threshold(l.MaxIPRate) }

// SubnetThreshold is IPThreshold for a subnet.
func (l *ClusterLimits) SubnetThreshold() float64 { return l.threshold(l.MaxSubnetRate) }

func (l *ClusterLimits) threshold(rate float64) float64 {
	return math.Ceil(float64(rate * (millis(l.Window) / 1000)))
}

// MinTotal is how many hits all hosts must have before one can be in violation, as
// for Options.MaxHostRatio. With Compat a single one is enough, so that in an
// idle cluster its host is in violation.
func (l *ClusterLimits) MinTotal() float64 {
	if l.Compat {
		return 0
	}
	return math.Ceil(l.MaxHostRatio * 100 * 10)
}

// Sliding is the sliding sum.
func Sliding(current, previous, previousWeight float64) float64 {
	return current + float64(previous*previousWeight)
}

// Blocklists says who is above the limits at a time, given the counts of its window
// and of the one before.
func (l *ClusterLimits) Blocklists(now time.Time, current, previous *ClusterCounts) *Blocklists {
	_, weight := l.WindowAt(now)
	lists := &Blocklists{}
	if l.MaxIPRate > 0 {
		threshold := l.IPThreshold()
		eachSum(current.IPs, previous.IPs, weight, func(key string, sum float64) {
			if sum >= threshold {
				lists.IPs = append(lists.IPs, key)
			}
		})
	}
	if l.MaxSubnetRate > 0 {
		threshold := l.SubnetThreshold()
		eachSum(current.Subnets, previous.Subnets, weight, func(key string, sum float64) {
			if sum >= threshold && l.diverse(key, current.UniqueIPs[key], previous.UniqueIPs[key], weight) {
				lists.Subnets = append(lists.Subnets, key)
			}
		})
	}
	if total := Sliding(current.Total, previous.Total, weight); l.MaxHostRatio > 0 && total > 0 && total >= l.MinTotal() {
		eachSum(current.Hosts, previous.Hosts, weight, func(key string, sum float64) {
			if sum/total > l.MaxHostRatio {
				lists.Hosts = append(lists.Hosts, key)
			}
		})
	}
	return lists
}

// diverse reports whether a subnet has shown enough addresses. One that is not
// IPv4 need not.
func (l *ClusterLimits) diverse(subnet string, current, previous, weight float64) bool {
	if l.RequiredIPs <= 1 {
		return true
	}
	addr, err := netip.ParseAddr(subnet)
	return err != nil || !addr.Is4() || max(current, math.Floor(float64(previous*weight))) >= float64(l.RequiredIPs)
}

// eachSum calls do with every key and its sliding sum.
func eachSum(current, previous map[string]float64, weight float64, do func(key string, sum float64)) {
	for key, n := range current {
		do(key, Sliding(n, previous[key], weight))
	}
	for key, n := range previous {
		if _, ok := current[key]; !ok {
			do(key, Sliding(0, n, weight))
		}
	}
}
