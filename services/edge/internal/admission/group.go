package admission

import (
	"hash/maphash"
	"net/netip"
	"sync"
	"time"

	"github.com/ccnq/ccnq/pkg/wire"
)

// group is what the edge knows about one client network: how many places it
// holds, whether the network's line is known to be full, and who of it waits
// for this edge's own count.
type group struct {
	table  *groupTable
	prefix netip.Prefix
	bucket wire.Bucket

	pins int // guarded by the table's shard

	mu   sync.Mutex
	held int

	// The memo of a full group. Once it was found full, one request asks at a
	// time and the others await its answer, so that a flood on a full group
	// costs the coordinators a few messages a second.
	fullUntil  time.Time
	retryAfter time.Duration
	rejected   time.Time // the last time; zero since the last admission
	probe      *probe    // not nil while the one that asks has no answer
	changes    uint64    // places seen to get free

	line line
}

// probe is one question that others await. The fields are written before
// answered is closed.
type probe struct {
	answered   chan struct{}
	err        error         // nobody decided; for those who await it too
	full       bool          // rejected
	current    bool          // with full: nothing is known to have changed since it was asked
	retryAfter time.Duration // with full
}

// approach says how a newcomer of a group goes about asking.
type approach struct {
	full       bool          // refused, without asking
	retryAfter time.Duration // with full
	await      *probe        // not nil: somebody asks
	probe      *probe        // not nil: this one asks for others too
	changes    uint64
}

// approach is followed by learned when it neither refuses nor awaits. One that
// asks alone awaits nobody.
func (gr *group) approach(now time.Time, alone bool) approach {
	gr.mu.Lock()
	defer gr.mu.Unlock()
	switch {
	case now.Before(gr.fullUntil):
		return approach{full: true, retryAfter: gr.retryAfter}
	case alone || gr.rejected.IsZero():
		return approach{changes: gr.changes}
	case gr.probe != nil:
		return approach{await: gr.probe}
	}
	gr.probe = &probe{answered: make(chan struct{})}
	return approach{probe: gr.probe, changes: gr.changes}
}

// learned notes the answer to what was asked after an approach. A place that
// got free since then may have been taken into account by the coordinator or
// not, so such an answer makes no memo.
func (gr *group) learned(a approach, reply wire.AdmitReply, err error, now time.Time) {
	gr.mu.Lock()
	defer gr.mu.Unlock()
	current := gr.changes == a.changes
	switch {
	case err != nil:
	case reply.Decision == wire.Admitted:
		gr.rejected = time.Time{}
	case reply.Decision == wire.Rejected:
		gr.rejected = now
		gr.retryAfter = retryAfter(reply)
		if current {
			gr.fullUntil = now.Add(min(time.Duration(reply.FullForMS)*time.Millisecond, maxMemo))
		}
	}
	if a.probe == nil {
		return
	}
	if err == nil {
		a.probe.full, a.probe.current = reply.Decision == wire.Rejected, current
		a.probe.retryAfter = gr.retryAfter
	} else {
		a.probe.err = err
	}
	gr.probe = nil
	close(a.probe.answered)
}

const (
	// maxMemo bounds the belief in a full group, whatever a coordinator says.
	maxMemo = 100 * time.Millisecond
	// forgetAfter is how long an unused group is kept after a rejection.
	forgetAfter = time.Second
)

func retryAfter(reply wire.AdmitReply) time.Duration {
	if reply.RetryAfterMS == 0 {
		return defaultRetryAfter
	}
	return time.Duration(reply.RetryAfterMS) * time.Millisecond
}

func (gr *group) hold() {
	gr.mu.Lock()
	gr.held++
	gr.mu.Unlock()
}

func (gr *group) unhold() {
	gr.mu.Lock()
	gr.held--
	gr.held += gr.line.grant(gr.held)
	gr.mu.Unlock()
}

// idle reports whether the group may be forgotten.
func (gr *group) idle(now time.Time) bool {
	gr.mu.Lock()
	defer gr.mu.Unlock()
	return now.Sub(gr.rejected) > forgetAfter
}

func (gr *group) pin() {
	s := gr.table.shardOf(gr.prefix)
	s.mu.Lock()
	gr.pins++
	s.mu.Unlock()
}

// unpin forgets the group with its last user, unless it was found full just
// now; then the sweep of the table removes it.
func (gr *group) unpin() {
	s := gr.table.shardOf(gr.prefix)
	s.mu.Lock()
	defer s.mu.Unlock()
	gr.pins--
	if gr.pins == 0 && gr.idle(time.Now()) {
		delete(s.byPrefix, gr.prefix)
	}
}

// groupTable finds groups by prefix. It holds those that have a ticket, a
// request that is deciding, or a rejection that is younger than a second.
type groupTable struct {
	seed  maphash.Seed
	shard [shards]groupShard
}

type groupShard struct {
	mu       sync.Mutex
	byPrefix map[netip.Prefix]*group
}

func (gt *groupTable) init() {
	gt.seed = maphash.MakeSeed()
	for i := range gt.shard {
		gt.shard[i].byPrefix = make(map[netip.Prefix]*group)
	}
}

func (gt *groupTable) shardOf(prefix netip.Prefix) *groupShard {
	return &gt.shard[maphash.Comparable(gt.seed, prefix)%shards]
}

// full reports whether a memo says that the group is full.
func (gt *groupTable) full(prefix netip.Prefix, now time.Time) (time.Duration, bool) {
	s := gt.shardOf(prefix)
	s.mu.Lock()
	gr := s.byPrefix[prefix]
	s.mu.Unlock()
	if gr == nil {
		return 0, false
	}
	gr.mu.Lock()
	defer gr.mu.Unlock()
	return gr.retryAfter, now.Before(gr.fullUntil)
}

// freed ends the memo of a group: one of its places, or a place in its line,
// got free or is about to. A group that is not in the table has no memo.
func (gt *groupTable) freed(prefix netip.Prefix) {
	s := gt.shardOf(prefix)
	s.mu.Lock()
	gr := s.byPrefix[prefix]
	s.mu.Unlock()
	if gr == nil {
		return
	}
	gr.mu.Lock()
	gr.fullUntil = time.Time{}
	gr.changes++
	gr.mu.Unlock()
}

// pin returns the group of a prefix, to be unpinned.
func (gt *groupTable) pin(prefix netip.Prefix) *group {
	s := gt.shardOf(prefix)
	s.mu.Lock()
	defer s.mu.Unlock()
	gr := s.byPrefix[prefix]
	if gr == nil {
		gr = &group{
			table:  gt,
			prefix: prefix,
			bucket: wire.Bucket{Kind: wire.KindGroup, Key: prefix.String()},
		}
		s.byPrefix[prefix] = gr
	}
	gr.pins++
	return gr
}

// sweep forgets groups that nobody uses and nobody was rejected from lately.
func (gt *groupTable) sweep(now time.Time) {
	for i := range gt.shard {
		s := &gt.shard[i]
		s.mu.Lock()
		for prefix, gr := range s.byPrefix {
			if gr.pins == 0 && gr.idle(now) {
				delete(s.byPrefix, prefix)
			}
		}
		s.mu.Unlock()
	}
}
