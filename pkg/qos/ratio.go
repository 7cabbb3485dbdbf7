package qos

import (
	"math"
	"strings"
	"sync"
	"sync/atomic"
)

const (
	// ratioWindow is how long a request counts towards the share of its host, and
	// how long a host stays in violation, in ms.
	ratioWindow = 60_000
	// maxCompatHosts bounds the hosts that are counted with Compat, where a count
	// outlives its minute.
	maxCompatHosts = 1 << 16
)

// ratio finds hosts that have too large a share of the requests: after every need
// requests within a minute it judges the hosts of those, and begins anew.
type ratio struct {
	share  float64
	need   int
	compat bool // counts and violations do not expire

	violations atomic.Pointer[violations]

	mu     sync.Mutex
	hits   []hit // a ring of need, oldest at head
	head   int
	used   int
	counts map[string]*hostCount
}

type hit struct {
	at   int64 // ms
	host *hostCount
}

type hostCount struct {
	name string
	n    int
}

// violations is never changed once published.
type violations struct {
	hosts map[string]struct{}
	until int64 // ms
}

// newRatio returns nil if there is no limit.
func newRatio(share float64, compat bool) *ratio {
	if share == 0 {
		return nil
	}
	need := int(math.Ceil(float64(share*100) * 10))
	return &ratio{
		share:  share,
		need:   need,
		compat: compat,
		hits:   make([]hit, need),
		counts: make(map[string]*hostCount),
	}
}

// violates reports whether the host had too large a share when it was last judged.
func (r *ratio) violates(host string, now int64) bool {
	if r == nil {
		return false
	}
	v := r.violations.Load()
	if v == nil || now > v.until {
		return false
	}
	_, ok := v.hosts[host]
	return ok
}

// track counts a request for a host.
func (r *ratio) track(host string, now int64) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	count := r.counts[host]
	if count == nil {
		count = &hostCount{name: strings.Clone(host)}
		if len(r.counts) < maxCompatHosts {
			r.counts[count.name] = count
		}
	}
	count.n++
	r.hits[(r.head+r.used)%r.need] = hit{now, count}
	r.used++
	r.prune(now)
	if r.used >= r.need {
		r.judge(now)
	}
}

// prune drops hits that are older than the window, and their counts with them.
func (r *ratio) prune(now int64) {
	for r.used > 0 && now-r.hits[r.head].at > ratioWindow {
		old := r.hits[r.head].host
		r.hits[r.head] = hit{}
		r.head = (r.head + 1) % r.need
		r.used--
		if r.compat {
			continue
		}
		if old.n--; old.n == 0 {
			delete(r.counts, old.name)
		}
	}
}

// judge publishes who is in violation, and begins anew. Counts of hosts that were
// seen in this round stay, at 0, so that the next one need not make them again.
func (r *ratio) judge(now int64) {
	limit := int(math.Round(float64(r.used) * r.share))
	var over map[string]struct{}
	for name, count := range r.counts {
		if count.n > limit {
			if over == nil {
				over = make(map[string]struct{})
			}
			over[name] = struct{}{}
		}
		if count.n == 0 {
			delete(r.counts, name)
		}
		count.n = 0
	}
	clear(r.hits)
	r.head, r.used = 0, 0
	if over == nil {
		r.violations.Store(nil)
		return
	}
	until := int64(math.MaxInt64)
	if !r.compat {
		until = now + ratioWindow
	}
	r.violations.Store(&violations{hosts: over, until: until})
}
