package cache

import (
	"sync"

	"github.com/ccnq/ccnq/services/edge/internal/cache/rfc9111"
	"github.com/ccnq/ccnq/services/edge/internal/cache/store"
)

const (
	// invalidationShards and countsOfShard: a resource shares a lock with one in 64 others, and a count with one in
	// 4,096.
	invalidationShards = 64
	countsOfShard      = 64
)

// invalidations counts what unsafe requests make invalid, so that a response that was asked for before is not stored
// after. Resources share counts: an invalidation may keep a response to another request that is under way from being
// stored, and does no other harm. The zero value is ready. It is safe for concurrent use.
type invalidations struct {
	shard [invalidationShards]struct {
		mu     sync.Mutex
		counts [countsOfShard]uint64
	}
}

// count is to be read before a resource is asked for, and handed to [invalidations.unlessSince].
func (i *invalidations) count(key rfc9111.Key) uint64 {
	s := &i.shard[key[0]%invalidationShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts[key[1]%countsOfShard]
}

// add counts an invalidation of a resource, and calls remove.
func (i *invalidations) add(key rfc9111.Key, remove func()) {
	s := &i.shard[key[0]%invalidationShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[key[1]%countsOfShard]++
	remove()
}

// unlessSince calls keep if nothing has made a resource invalid since it had a count. Nothing does so meanwhile. It
// reports whether keep was called.
func (i *invalidations) unlessSince(key rfc9111.Key, count uint64, keep func()) bool {
	s := &i.shard[key[0]%invalidationShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.counts[key[1]%countsOfShard] != count {
		return false
	}
	keep()
	return true
}

// moment is when a response was asked for: what was purged or made invalid since then is not stored.
type moment struct {
	purges        store.Generation
	invalidations uint64
}

// moment is now, for a resource.
func (c *Cache) moment(key rfc9111.Key) moment {
	return moment{purges: c.store.Generation(), invalidations: c.invalid.count(key)}
}
