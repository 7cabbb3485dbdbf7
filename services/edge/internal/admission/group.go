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

	// The memo of a full group. While narrow, one request asks at a time and
	// the others await its answer, so that a flood on a full group costs the
	// coordinators a few messages a second.
	fullUntil  time.Time
	retryAfter time.Duration
	narrow     bool
	probe      chan struct{} // closed when the one that asks has its answer
	changes    uint64        // places seen to get free

	line line
}

// approach says how a newcomer of a group goes about asking.
type approach struct {
	full       bool          // refused, without asking
	retryAfter time.Duration // with full
	await      chan struct{} // not nil: somebody asks; look again afterwards
	probe      bool          // this one asks for others too
	changes    uint64
}

// approach is followed by learned when it neither refuses nor awaits.
func (gr *group) approach(now time.Time) approach {
	gr.mu.Lock()
	defer gr.mu.Unlock()
	switch {
	case now.Before(gr.fullUntil):
		return approach{full: true, retryAfter: gr.retryAfter}
	case gr.probe != nil:
		return approach{await: gr.probe}
	case gr.narrow:
		gr.probe = make(chan struct{})
		return approach{probe: true, changes: gr.changes}
	}
	return approach{changes: gr.changes}
}

// learned notes the answer to what was asked after an approach. A place that
// got free since then may have been taken into account by the coordinator or
// not, so such an answer makes no memo.
func (gr *group) learned(a approach, reply wire.AdmitReply, err error, now time.Time) {
	gr.mu.Lock()
	defer gr.mu.Unlock()
	if a.probe {
		close(gr.probe)
		gr.probe = nil
	}
	switch {
	case err != nil || reply.Decision == wire.Admitted:
		gr.narrow = false
	case reply.Decision == wire.Rejected:
		gr.narrow = true
		gr.retryAfter = retryAfter(reply)
		if gr.changes == a.changes {
			gr.fullUntil = now.Add(min(time.Duration(reply.FullForMS)*time.Millisecond, maxMemo))
		}
	}
}

// maxMemo bounds the belief in a full group, whatever a coordinator says.
const maxMemo = 100 * time.Millisecond

func retryAfter(reply wire.AdmitReply) time.Duration {
	if reply.RetryAfterMS == 0 {
		return defaultRetryAfter
	}
	return time.Duration(reply.RetryAfterMS) * time.Millisecond
}

// freed ends the memo: a place of this group got free, or is about to.
func (gr *group) freed() {
	gr.mu.Lock()
	gr.fullUntil = time.Time{}
	gr.changes++
	gr.mu.Unlock()
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
	return !now.Before(gr.fullUntil)
}

func (gr *group) pin() {
	s := gr.table.shardOf(gr.prefix)
	s.mu.Lock()
	gr.pins++
	s.mu.Unlock()
}

// unpin forgets the group with its last user, but for a memo, which the sweep
// of the table removes.
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
// request that is deciding, or a memo that is younger than a second.
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

// sweep forgets memos that ran out.
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
