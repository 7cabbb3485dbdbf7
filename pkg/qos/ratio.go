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
	// maxOldHosts bounds the hosts whose older requests count, with Compat.
	maxOldHosts = 1 << 16
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
	counts map[string]int    // of judge
	old    map[string]int    // requests before the minute, with Compat
	names  map[string]string // hosts in memory of their own, at most 2 * need
}

type hit struct {
	at   int64 // ms
	host string
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
		counts: make(map[string]int),
		old:    make(map[string]int),
		names:  make(map[string]string),
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

// track counts a request for a host. owned says that the text is not a part of
// anything larger, which would be kept in memory with it.
func (r *ratio) track(host string, owned bool, now int64) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !owned {
		host = r.own(host)
	}
	end := r.head + r.used
	if end >= r.need {
		end -= r.need
	}
	r.hits[end] = hit{now, host}
	r.used++
	r.prune(now)
	if r.used >= r.need {
		r.judge(now)
	}
}

// own is the host in memory of its own.
func (r *ratio) own(host string) string {
	if name, ok := r.names[host]; ok {
		return name
	}
	if len(r.names) >= 2*r.need {
		clear(r.names)
	}
	host = strings.Clone(host)
	r.names[host] = host
	return host
}

// prune drops hits that are older than the window.
func (r *ratio) prune(now int64) {
	for r.used > 0 && now-r.hits[r.head].at > ratioWindow {
		if r.compat {
			r.keep(r.hits[r.head].host)
		}
		r.hits[r.head] = hit{}
		if r.head++; r.head == r.need {
			r.head = 0
		}
		r.used--
	}
}

// keep counts a request that is no longer among the hits.
func (r *ratio) keep(host string) {
	if _, ok := r.old[host]; ok || len(r.old) < maxOldHosts {
		r.old[host]++
	}
}

// judge publishes who is in violation, and begins anew. The ring is full.
func (r *ratio) judge(now int64) {
	limit := int(math.Round(float64(r.used) * r.share))
	for _, h := range r.hits {
		r.counts[h.host]++
	}
	for host, n := range r.old {
		r.counts[host] += n
	}
	var over map[string]struct{}
	for host, n := range r.counts {
		if n > limit {
			if over == nil {
				over = make(map[string]struct{})
			}
			over[host] = struct{}{}
		}
	}
	clear(r.counts)
	clear(r.old)
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
