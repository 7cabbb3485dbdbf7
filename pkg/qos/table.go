package qos

import (
	"hash/maphash"
	"math"
	"sync"
	"sync/atomic"
)

// shardCount is how many locks a table has.
const shardCount = 32

// table is the history of one kind of actor: at most size keys, of which the one
// used longest ago is evicted.
//
// The keys are spread over shards with a lock each. Every use of a key is
// stamped, and a key is evicted by its stamp, so that the table as a whole
// forgets in the order of a single list. With several goroutines at work it may
// hold as many keys more than size as there are decisions under way.
type table struct {
	rates    rates
	required float64
	maxAge   int64 // ms
	capacity int32 // of a history
	listed   index // the whitelist
	size     int64

	// For subnets: how many addresses must be seen, and how many there are. sighted
	// says that it is noted which were seen.
	uniqueIPs, addresses int
	sighted              bool

	tally *tally // what the cluster is told; nil if there is none

	seed   maphash.Seed
	count  atomic.Int64
	shards [shardCount]shard
}

type shard struct {
	mu    sync.Mutex
	index index
	queue queue
	total int64 // hits since the cluster was told
	// horizon is queue.horizon, for eviction to look at without the lock.
	horizon atomic.Uint64
	_       [64]byte // keeps neighbours off this cache line
}

// entry is a key with its history. It fills two lines of memory.
type entry struct {
	key       key
	stamp     uint64 // of its last use
	history   history
	sightings *sightings
	hits      int64 // since the cluster was told, if the tally has admitted the key
}

// moment is what one decision sees of the world.
type moment struct {
	now      int64 // ms
	lagRatio float64
	stamp    uint64 // of look-ups; tracking has the next one
}

func newTable(s *settings, r rates, override float64, whitelist []key) *table {
	t := &table{
		rates:    r,
		required: r.required(s.maxAge),
		maxAge:   int64(math.Floor(s.maxAge)),
		capacity: r.capacity(override, s.maxAge),
		size:     int64(s.historySize),
		seed:     maphash.MakeSeed(),
	}
	for _, k := range whitelist {
		hash := k.hash(t.seed)
		if t.listed.find(hash, &k) == nil {
			t.listed.insert(hash, &entry{key: k})
		}
	}
	for i := range t.shards {
		t.shards[i].horizon.Store(math.MaxUint64)
	}
	return t
}

// cell is the place of one key in a table, locked from open to close. One without
// a shard is that of a key whose history is not kept: it is never bad. One without a
// table is that of a key which is whitelisted.
type cell struct {
	table  *table
	shard  *shard
	hash   uint64
	listed bool   // the key is whitelisted
	entry  *entry // nil if there is no history yet
}

// knows reports whether the table has anything to say about a key.
func (t *table) knows() bool { return t.rates.min != 0 || t.listed.used > 0 }

// open locks the shard of a key. Two cells of one table may not be open at once.
func (t *table) open(k *key) cell {
	off := t.rates.min == 0
	if off && t.listed.used == 0 {
		return cell{table: t}
	}
	hash := k.hash(t.seed)
	if t.listed.find(hash, k) != nil {
		return cell{listed: true}
	}
	if off {
		return cell{table: t}
	}
	s := &t.shards[hash%shardCount]
	s.mu.Lock()
	return cell{table: t, shard: s, hash: hash}
}

// find looks up the key that the cell was opened for.
func (c *cell) find(k *key) {
	if c.shard != nil {
		c.entry = c.shard.index.find(c.hash, k)
	}
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
	e.stamp = m.stamp
	now := max(m.now, e.history.newest) // another goroutine may have a later time
	rate := 0.0
	if float64(e.history.count) >= c.table.required {
		e.history.prune(now, c.table.maxAge)
	}
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

// track adds a request to the history of the key, which is the one given to open. place
// is that of the address in its subnet, or -1.
func (c *cell) track(m moment, k *key, place int) {
	if c.shard == nil {
		if c.table != nil && c.table.tally != nil {
			c.table.tally.add(k, 1, place)
		}
		return
	}
	if c.entry == nil {
		c.entry = &entry{key: k.clone(), stamp: m.stamp + 1}
		c.shard.insert(c.hash, c.entry)
		c.table.count.Add(1)
		if c.table.tally != nil {
			c.entry.hits = c.table.tally.remove(k)
		}
	} else {
		c.entry.stamp = m.stamp + 1
	}
	h := &c.entry.history
	if h.count >= c.table.capacity {
		h.pop()
	}
	h.push(max(m.now, h.newest), c.table.maxAge)
	if place >= 0 && c.table.sighted {
		c.sight(uint16(place))
	}
	if c.table.tally != nil {
		c.hit(1)
	}
}

// name is the text of the key, and whether it is in memory of its own.
func (c *cell) name(text string) (name string, owned bool) {
	if c.entry == nil {
		return text, false
	}
	return c.entry.key.text, true
}

// sight notes which address of the subnet was tracked.
func (c *cell) sight(number uint16) {
	now := c.entry.history.newest
	if c.entry.sightings == nil {
		c.entry.sightings = &sightings{base: now}
	}
	c.entry.sightings.touch(number, c.table.addresses, now, c.table.maxAge)
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
		victim, horizon, next := &t.shards[0], uint64(math.MaxUint64), uint64(math.MaxUint64)
		for i := range t.shards {
			switch h := t.shards[i].horizon.Load(); {
			case h < horizon:
				victim, horizon, next = &t.shards[i], h, horizon
			case h < next:
				next = h
			}
		}
		if victim.removeBefore(next, t) {
			return
		}
	}
}

// insert adds an entry whose key is not there.
func (s *shard) insert(hash uint64, e *entry) {
	s.index.insert(hash, e)
	s.queue.push(e)
	s.horizon.Store(s.queue.horizon())
}

// removeBefore removes the entry used longest ago, if its stamp is not above next,
// and reports whether it did. Either way the horizon becomes the true one.
func (s *shard) removeBefore(next uint64, t *table) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue.settle()
	remove := len(s.queue) > 0 && s.queue.horizon() <= next
	if remove {
		e := s.queue.pop()
		s.index.remove(e.key.hash(t.seed), e)
		s.queue.settle()
		if e.hits > 0 {
			t.tally.put(&e.key, e.hits)
		}
	}
	s.horizon.Store(s.queue.horizon())
	return remove
}
