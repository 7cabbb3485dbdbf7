package clusterqos

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ccnq/ccnq/pkg/qos"
	"github.com/ccnq/ccnq/pkg/wire"
)

const (
	// sourceIdle is how long the last number of a source is remembered that sends
	// nothing, and maxSources how many sources are.
	sourceIdle = time.Hour
	maxSources = 1_024
)

// counts are the hits of the present window and of the one before. They are a
// function of the stream alone. All methods are safe for concurrent use.
type counts struct {
	limits qos.ClusterLimits

	mu                sync.Mutex
	number            int64 // of the current window; 0 before the first message
	current, previous *qos.ClusterCounts
	sources           map[source]applied
}

// source is one life of an edge. The id of the edge is what NATS let it use.
type source struct{ edge, name string }

type applied struct {
	seq  uint64
	seen time.Time // on the server's clock
}

func newCounts(limits qos.ClusterLimits) *counts {
	return &counts{limits: limits, current: noCounts(), previous: noCounts(), sources: map[source]applied{}}
}

func noCounts() *qos.ClusterCounts {
	return &qos.ClusterCounts{
		IPs: map[string]float64{}, Subnets: map[string]float64{}, Hosts: map[string]float64{}, UniqueIPs: map[string]float64{},
	}
}

// add counts a message that the stream took at a time, unless it has been counted.
func (c *counts) add(edge string, at time.Time, h *wire.QoSHits) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	from := source{edge, h.Source}
	if h.Seq <= c.sources[from].seq {
		return false
	}
	if _, ok := c.sources[from]; !ok && len(c.sources) >= maxSources {
		c.forget(at)
	}
	c.sources[from] = applied{h.Seq, at}
	number, _ := c.limits.WindowAt(at)
	c.roll(number)
	w := c.current
	if number < c.number {
		w = c.previous
	}
	sum(w.IPs, h.IPs)
	sum(w.Subnets, h.Subnets)
	sum(w.Hosts, h.Hosts)
	w.Total += float64(h.Total)
	c.sight(number-h.UniqueWindowsAgo, h.UniqueIPs)
	c.trim(w)
	return true
}

// roll makes number the current window, or the one before it.
func (c *counts) roll(number int64) {
	switch number {
	case c.number, c.number - 1:
		return
	case c.number + 1:
		c.previous = c.current
	default: // silence, or the server's clock went far back
		c.previous = noCounts()
	}
	c.current, c.number = noCounts(), number
}

// sight keeps, of each subnet, the most addresses that one edge has tracked.
func (c *counts) sight(number int64, unique wire.QoSCounts) {
	var w *qos.ClusterCounts
	switch number {
	case c.number:
		w = c.current
	case c.number - 1:
		w = c.previous
	default:
		return
	}
	for i := range unique {
		key := unique[i].Key
		n, ok := w.UniqueIPs[key]
		if !ok {
			key = strings.Clone(key) // not a part of the message
		}
		w.UniqueIPs[key] = max(n, float64(unique[i].N))
	}
}

func sum(into map[string]float64, hits wire.QoSCounts) {
	for i := range hits {
		key := hits[i].Key
		n, ok := into[key]
		if !ok {
			key = strings.Clone(key) // not a part of the message
		}
		into[key] = n + float64(hits[i].N)
	}
}

// trim keeps the most active keys of a window, once there are twice as many as are
// to be kept, and of both windows the addresses seen in subnets that have hits.
func (c *counts) trim(w *qos.ClusterCounts) {
	keep := c.limits.MaxTrackedActors
	for _, m := range []map[string]float64{w.IPs, w.Subnets, w.Hosts} {
		if len(m) > 2*keep {
			trimTo(m, keep)
		}
	}
	// What was seen in one window may decide about hits of the other.
	for _, w := range []*qos.ClusterCounts{c.current, c.previous} {
		if len(w.UniqueIPs) <= 4*keep {
			continue
		}
		for key := range w.UniqueIPs {
			_, now := c.current.Subnets[key]
			_, before := c.previous.Subnets[key]
			if !now && !before {
				delete(w.UniqueIPs, key)
			}
		}
	}
}

// trimTo keeps the n keys with the most hits. Among equals the greater text stays, as
// in Redis, so that all processes keep the same.
func trimTo(m map[string]float64, n int) {
	type count struct {
		key  string
		hits float64
	}
	all := make([]count, 0, len(m))
	for key, hits := range m {
		all = append(all, count{key, hits})
	}
	slices.SortFunc(all, func(a, b count) int {
		return cmp.Or(cmp.Compare(b.hits, a.hits), strings.Compare(b.key, a.key))
	})
	for _, c := range all[n:] {
		delete(m, c.key)
	}
}

// forget makes room for another source: those that have been silent go, or the one
// that has been for longest.
func (c *counts) forget(now time.Time) {
	var oldest source
	for s, a := range c.sources {
		if now.Sub(a.seen) > sourceIdle {
			delete(c.sources, s)
		} else if o, ok := c.sources[oldest]; !ok || a.seen.Before(o.seen) {
			oldest = s
		}
	}
	if len(c.sources) >= maxSources {
		delete(c.sources, oldest)
	}
}

// lists says who is above the limits at a time on the server's clock, sorted.
func (c *counts) lists(now time.Time) *qos.Blocklists {
	c.mu.Lock()
	defer c.mu.Unlock()
	number, _ := c.limits.WindowAt(now)
	current, previous := c.current, c.previous
	switch {
	case number == c.number:
	case number < c.number:
		// The estimate of the time is behind: the window has begun at least.
		now = time.UnixMilli(int64(math.Ceil(float64(c.number) * float64(c.limits.Window) / float64(time.Millisecond))))
	case number == c.number+1:
		current, previous = noCounts(), c.current
	default:
		current, previous = noCounts(), noCounts()
	}
	lists := c.limits.Blocklists(now, current, previous)
	slices.Sort(lists.IPs)
	slices.Sort(lists.Subnets)
	slices.Sort(lists.Hosts)
	return lists
}

// sizes are the numbers of keys in the current window.
func (c *counts) sizes() (ips, subnets, hosts int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.current.IPs), len(c.current.Subnets), len(c.current.Hosts)
}
