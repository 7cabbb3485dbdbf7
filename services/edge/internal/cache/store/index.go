package store

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	indexShards = 256
	pageSlots   = 4096
	// maxSkips bounds the entries that one eviction passes over because they
	// were used.
	maxSkips = 1024
	// doomed is the bit of slot.pins that says that the entry is gone from the
	// index: whoever takes the last pin away disposes of it.
	doomed = 1 << 31
)

// index says what the file holds. It has no pointer for each entry, so the
// garbage collector does not look at it.
//
// A slot's fields change only under both mu and the lock of its shard, so that
// either is enough to read them. pins and used are atomic.
type index struct {
	shards [indexShards]shard
	pages  atomic.Pointer[[]*[pageSlots]slot]

	mu      sync.Mutex // taken before a shard's
	free    uint32     // first of the unused slots, linked by next
	grown   uint32     // slots that were ever used; slot 0 never is
	newest  uint32
	oldest  uint32
	hand    uint32 // where the search for a victim goes on
	entries int
	bytes   int64    // on disk, of all slots in use
	dead    []remove // what is to be deleted from the file
	deadSum int64    // what the file gains by it
}

type shard struct {
	mu    sync.RWMutex
	slots map[Key]uint32
}

// slot is one entry.
type slot struct {
	key        Key
	id         uint64 // of its record
	base       uint64 // of its first chunk; 0 means that the record holds the body
	name       uint64 // hash of the name
	host       uint32 // hash of the name's first part
	size       uint32 // of the body
	disk       uint32 // about what it takes in the file
	until      uint32 // Unix time in seconds
	gen        uint32 // purges before this one do not concern it
	prev, next uint32 // towards newest and oldest
	pins       atomic.Uint32
	used       atomic.Uint32 // read since the hand was here
}

// remove is a record to be deleted, or chunks, or both.
type remove struct {
	id     uint64 // 0: none
	base   uint64
	chunks uint32
	disk   uint32 // about what the file gains
}

func newIndex() *index {
	x := &index{grown: 1}
	for i := range x.shards {
		x.shards[i].slots = make(map[Key]uint32)
	}
	x.pages.Store(new([]*[pageSlots]slot))
	return x
}

func (x *index) shard(key Key) *shard { return &x.shards[key[0]] }

func (x *index) at(i uint32) *slot { return &(*x.pages.Load())[i/pageSlots][i%pageSlots] }

// found is what a reader needs of a slot.
type found struct {
	slot     uint32
	id, base uint64
	size     uint32
	pinned   bool
}

// find looks a key up, and pins the entry if its body is in chunks.
func (x *index) find(key Key) (found, bool) {
	sh := x.shard(key)
	sh.mu.RLock()
	defer sh.mu.RUnlock()
	i, ok := sh.slots[key]
	if !ok {
		return found{}, false
	}
	s := x.at(i)
	if s.used.Load() == 0 {
		s.used.Store(1)
	}
	f := found{slot: i, id: s.id, base: s.base, size: s.size, pinned: s.base != 0}
	if f.pinned {
		s.pins.Add(1)
	}
	return f, true
}

// unpin ends what find began. It reports whether chunks can go by it.
func (x *index) unpin(i uint32) bool {
	if x.at(i).pins.Add(^uint32(0)) != doomed {
		return false
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.dispose(i)
	return true
}

// put makes a slot for an entry, in place of what has its key. The caller holds
// mu.
func (x *index) put(s *slot) uint32 {
	x.drop(s.key)
	i := x.take()
	sh := x.shard(s.key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	t := x.at(i)
	t.key, t.id, t.base, t.name, t.host = s.key, s.id, s.base, s.name, s.host
	t.size, t.disk, t.until, t.gen = s.size, s.disk, s.until, s.gen
	t.pins.Store(0)
	t.used.Store(0)
	t.prev, t.next = 0, x.newest
	if x.newest != 0 {
		x.at(x.newest).prev = i
	} else {
		x.oldest = i
	}
	x.newest = i
	sh.slots[s.key] = i
	x.entries++
	x.bytes += int64(s.disk)
	return i
}

// amend gives the entry of a key, which is there, a new record; its chunks
// stay. The caller holds mu.
func (x *index) amend(s *slot) {
	sh := x.shard(s.key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	t := x.at(sh.slots[s.key])
	x.bury(remove{id: t.id})
	x.bytes += int64(s.disk) - int64(t.disk)
	t.id, t.disk, t.until = s.id, s.disk, s.until
}

// take returns an unused slot.
func (x *index) take() uint32 {
	if i := x.free; i != 0 {
		x.free = x.at(i).next
		return i
	}
	if pages := *x.pages.Load(); int(x.grown) >= len(pages)*pageSlots {
		pages = append(slices.Clip(pages), new([pageSlots]slot)) // a copy: readers have the old one
		x.pages.Store(&pages)
	}
	x.grown++
	return x.grown - 1
}

// holds says whether a key's entry is the version id. The caller holds mu.
func (x *index) holds(key Key, id uint64) (uint32, bool) {
	sh := x.shard(key)
	sh.mu.RLock()
	defer sh.mu.RUnlock()
	i, ok := sh.slots[key]
	return i, ok && x.at(i).id == id
}

// drop removes a key. The caller holds mu.
func (x *index) drop(key Key) bool {
	sh := x.shard(key)
	sh.mu.Lock()
	i, ok := sh.slots[key]
	if ok {
		delete(sh.slots, key)
	}
	sh.mu.Unlock()
	if ok {
		x.remove(i)
	}
	return ok
}

// dropVersion removes a key if it holds the version id.
func (x *index) dropVersion(key Key, id uint64) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if _, ok := x.holds(key, id); ok {
		return x.drop(key)
	}
	return false
}

// remove unlinks a slot that no key leads to any more. Its record is deleted
// at once, so that it does not come back after a crash; its chunks when nobody
// reads them any more.
func (x *index) remove(i uint32) {
	s := x.at(i)
	if x.hand == i {
		x.hand = s.prev
	}
	if s.prev != 0 {
		x.at(s.prev).next = s.next
	} else {
		x.newest = s.next
	}
	if s.next != 0 {
		x.at(s.next).prev = s.prev
	} else {
		x.oldest = s.prev
	}
	x.entries--
	x.bury(remove{id: s.id})
	if s.pins.Or(doomed) == 0 {
		x.dispose(i)
	}
}

// dispose frees a slot that nobody reads. The caller holds mu.
func (x *index) dispose(i uint32) {
	s := x.at(i)
	r := remove{disk: s.disk}
	if s.base != 0 {
		r.base, r.chunks = s.base, uint32(chunksOf(int64(s.size)))
	}
	x.bury(r)
	x.bytes -= int64(s.disk)
	s.next, x.free = x.free, i
}

// evict removes an entry that was not read for long: the oldest that was not
// read since the hand passed it last (SIEVE). Entries that were only seen once
// go first, and a reader moves nothing. The caller holds mu.
func (x *index) evict() bool {
	i := x.hand
	for range maxSkips {
		if i == 0 {
			i = x.oldest
		}
		if i == 0 {
			return false
		}
		s := x.at(i)
		if s.used.Load() == 0 {
			break
		}
		s.used.Store(0)
		i = s.prev
	}
	if i == 0 {
		i = x.oldest
	}
	x.hand = x.at(i).prev
	return x.drop(x.at(i).key)
}

// bury notes what is to be deleted. The caller holds mu.
func (x *index) bury(all ...remove) {
	for _, r := range all {
		x.dead = append(x.dead, r)
		x.deadSum += int64(r.disk)
	}
}

// takeDead returns what is to be deleted, at most n removals. The caller holds
// mu.
func (x *index) takeDead(n int) []remove {
	n = min(n, len(x.dead))
	dead := x.dead[:n:n]
	if x.dead = x.dead[n:]; len(x.dead) == 0 {
		x.dead = nil
	}
	for _, r := range dead {
		x.deadSum -= int64(r.disk)
	}
	return dead
}

// scan calls visit for every entry, and removes those for which it returns
// true. It holds the lock for one page of slots at a time.
func (x *index) scan(visit func(*slot) bool) (removed int) {
	for first := uint32(0); ; first += pageSlots {
		x.mu.Lock()
		if first >= x.grown {
			x.mu.Unlock()
			return removed
		}
		for i := max(first, 1); i < min(first+pageSlots, x.grown); i++ {
			s := x.at(i)
			if j, ok := x.holds(s.key, s.id); ok && i == j && visit(s) {
				x.drop(s.key)
				removed++
			}
		}
		x.mu.Unlock()
	}
}

// expired says whether an entry's time is over.
func (s *slot) expired(now time.Time) bool { return int64(s.until) < now.Unix() }

// count returns the number of entries and about what they take in the file.
func (x *index) count() (entries int, bytes int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.entries, x.bytes
}
