package qos

import (
	"hash/maphash"
	"math"
	"sync"
	"sync/atomic"
)

// shardCount is how many locks a table has.
const shardCount = 32

// table is the history of one kind of actor: a list of at most size keys, of
// which the one used longest ago is evicted.
//
// The keys are spread over shards with a lock each. Every use of a key is
// stamped, and a key is evicted by its stamp, so that the table as a whole
// forgets in the order of a single list. With several goroutines at work it may
// hold as many keys more than size as there are decisions under way.
type table struct {
	rates    rates
	required float64
	maxAge   int64 // ms
	capacity int   // of a history
	listed   map[key]struct{}
	size     int64

	// For subnets: how many addresses must be seen, and how many there are.
	uniqueIPs, addresses int

	seed   maphash.Seed
	count  atomic.Int64
	shards [shardCount]shard
}

type shard struct {
	mu             sync.Mutex
	index          map[key]*entry
	newest, oldest *entry
	// horizon is the stamp of the oldest entry, for eviction to look at without
	// the lock; math.MaxUint64 if there is none.
	horizon atomic.Uint64
	_       [64]byte // keeps neighbours off this cache line
}

// entry is a key in its shard's list.
type entry struct {
	key          key
	newer, older *entry
	stamp        uint64
	history      history
	sightings    *sightings
}

// moment is what one decision sees of the world.
type moment struct {
	now      int64 // ms
	lagRatio float64
	stamp    uint64 // of look-ups; tracking has the next one
}

func newTable(s *settings, r rates, override float64, listed map[key]struct{}) *table {
	t := &table{
		rates:    r,
		required: r.required(s.maxAge),
		maxAge:   int64(math.Floor(s.maxAge)),
		capacity: r.capacity(override, s.maxAge),
		listed:   listed,
		size:     int64(s.historySize),
		seed:     maphash.MakeSeed(),
	}
	for i := range t.shards {
		t.shards[i].index = make(map[key]*entry)
		t.shards[i].horizon.Store(math.MaxUint64)
	}
	return t
}

func (t *table) whitelisted(k key) bool {
	if len(t.listed) == 0 {
		return false
	}
	_, ok := t.listed[k]
	return ok
}

// cell is the place of one key in a table, locked from open to close. The zero
// cell is that of a key whose history is not kept: it is never bad.
type cell struct {
	table *table
	shard *shard
	entry *entry // nil if there is no history yet
}

func (t *table) open(k key) cell {
	if t.rates.min == 0 || t.whitelisted(k) {
		return cell{}
	}
	s := &t.shards[maphash.Comparable(t.seed, k)%shardCount]
	s.mu.Lock()
	return cell{table: t, shard: s, entry: s.index[k]}
}

func (c *cell) close() {
	if c.shard != nil {
		c.shard.mu.Unlock()
	}
}

// bad reports whether the key is above the limit of r, and makes it the one most
// recently used. With gated, a subnet must also have shown enough addresses.
func (c *cell) bad(m moment, r rates, gated bool) bool {
	e := c.entry
	if e == nil || c.table.required == 0 {
		return false
	}
	c.shard.touch(e, m.stamp)
	now := max(m.now, e.history.newest) // another goroutine may have a later time
	e.history.prune(now, c.table.maxAge)
	rate := 0.0
	if float64(e.history.count) >= c.table.required {
		rate = e.history.rate(now)
	}
	if !(rate > r.limit(m.lagRatio)) {
		return false
	}
	if gated && c.table.uniqueIPs > 1 {
		return e.sightings != nil && e.sightings.enough(c.table.uniqueIPs, now, c.table.maxAge)
	}
	return true
}

// track adds a request to the history of the key, which is the one given to open.
func (c *cell) track(m moment, k key) {
	if c.shard == nil {
		return
	}
	if c.entry == nil {
		c.entry = c.shard.insert(k.clone(), m.stamp+1)
		c.table.count.Add(1)
	} else {
		c.shard.touch(c.entry, m.stamp+1)
	}
	h := &c.entry.history
	if h.count >= c.table.capacity {
		h.pop()
	}
	h.push(max(m.now, h.newest))
}

// sight notes which address of the subnet was tracked.
func (c *cell) sight(m moment, host uint16) {
	if c.shard == nil || c.table.uniqueIPs <= 1 {
		return
	}
	now := c.entry.history.newest
	if c.entry.sightings == nil {
		c.entry.sightings = &sightings{first: host, at: now}
		return
	}
	c.entry.sightings.touch(host, c.table.addresses, now)
}

// shrink evicts what is too much. No cell of the table may be open.
func (t *table) shrink() {
	for {
		n := t.count.Load()
		if n <= t.size {
			return
		}
		if t.count.CompareAndSwap(n, n-1) {
			t.evict()
		}
	}
}

// evict removes the key used longest ago.
func (t *table) evict() {
	for {
		victim, horizon := &t.shards[0], uint64(math.MaxUint64)
		for i := range t.shards {
			if h := t.shards[i].horizon.Load(); h < horizon {
				victim, horizon = &t.shards[i], h
			}
		}
		victim.mu.Lock()
		e := victim.oldest
		if e != nil {
			victim.unlink(e)
			delete(victim.index, e.key)
		}
		victim.mu.Unlock()
		if e != nil {
			return
		}
	}
}

// touch makes an entry the one most recently used.
func (s *shard) touch(e *entry, stamp uint64) {
	e.stamp = stamp
	if s.newest != e {
		s.unlink(e)
		s.push(e)
	} else if s.oldest == e {
		s.horizon.Store(stamp)
	}
}

func (s *shard) insert(k key, stamp uint64) *entry {
	e := &entry{key: k, stamp: stamp}
	s.index[k] = e
	s.push(e)
	return e
}

func (s *shard) push(e *entry) {
	e.older = s.newest
	if s.newest != nil {
		s.newest.newer = e
	} else {
		s.oldest = e
		s.horizon.Store(e.stamp)
	}
	s.newest = e
}

func (s *shard) unlink(e *entry) {
	if e.newer != nil {
		e.newer.older = e.older
	} else {
		s.newest = e.older
	}
	if e.older != nil {
		e.older.newer = e.newer
	} else {
		s.oldest = e.newer
		if s.oldest != nil {
			s.horizon.Store(s.oldest.stamp)
		} else {
			s.horizon.Store(math.MaxUint64)
		}
	}
	e.newer, e.older = nil, nil
}
