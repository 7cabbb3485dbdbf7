package denylist

import (
	"encoding/binary"
	"hash/maphash"
	"math/bits"
	"net/netip"
	"sync/atomic"
)

// block is a block as the table keeps it.
type block struct {
	until   int64 // Unix microseconds, at least 1
	version int64
}

// key is an address, or a range's first one, in 128 bits; those of IPv4 are
// mapped. Tables never mix families or lengths.
type key struct{ hi, lo uint64 }

func keyOf(addr netip.Addr) key {
	b := addr.As16()
	return key{binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])}
}

// masked keeps the first n of the 128 bits.
func (k key) masked(n uint8) key {
	if n <= 64 {
		return key{k.hi &^ (^uint64(0) >> n), 0}
	}
	return key{k.hi, k.lo &^ (^uint64(0) >> (n - 64))}
}

// A slot is empty until its until is set, dead when its block was taken out.
const (
	empty = 0
	dead  = -1
)

// slot is one place of a [flat]. Its key is written once, before until is set
// for the first time, and never changes: who has seen until may read the key.
type slot struct {
	key
	until   atomic.Int64
	version int64 // for writers only
}

// flat is a hash table of blocks that is read without a lock while one writer
// changes it in place: a look-up touches one place of memory. Collisions go to
// the next slot. It never grows; [series] replaces it.
type flat struct {
	slots []slot
	used  int // slots with a key, dead ones too
	live  int
	// filter has a bit set for the hash of each key: most keys that are not in
	// the table, which are most keys that are asked for, are known by it. It is
	// small enough for a cache to keep.
	filter []atomic.Uint64
}

const (
	// least is the smallest number of slots.
	least = 16
	// slotsPerWord is how many slots share 64 bits of the filter: with half of
	// the slots used, one bit in nine is set.
	slotsPerWord = 16
)

func newFlat(blocks int) *flat {
	n := max(least, 2*blocks)
	return &flat{slots: make([]slot, n), filter: make([]atomic.Uint64, n/slotsPerWord+1)}
}

// bit returns the place of a hash in the filter. It uses other bits of the hash
// than start.
func (f *flat) bit(hash uint64) (word *atomic.Uint64, mask uint64) {
	i, _ := bits.Mul64(hash<<16, uint64(len(f.filter)))
	return &f.filter[i], 1 << (hash & 63)
}

// mayHold reports false if no key with that hash is in the table.
func (f *flat) mayHold(hash uint64) bool {
	word, mask := f.bit(hash)
	return word.Load()&mask != 0
}

// start is where the search for a hash begins.
func (f *flat) start(hash uint64) int {
	i, _ := bits.Mul64(hash, uint64(len(f.slots)))
	return int(i) // less than the number of slots
}

// find returns the slot of k, or the empty one where it would be. There always
// is an empty one.
func (f *flat) find(hash uint64, k key) *slot {
	for i := f.start(hash); ; {
		s := &f.slots[i]
		if s.until.Load() == empty || s.key == k {
			return s
		}
		if i++; i == len(f.slots) {
			i = 0
		}
	}
}

// insert puts a block into an empty slot.
func (f *flat) insert(s *slot, hash uint64, k key, b block) {
	s.key, s.version = k, b.version
	s.until.Store(b.until)
	word, mask := f.bit(hash)
	word.Or(mask) // from now on readers see it
	f.used++
	f.live++
}

// series is a table of blocks of one family and one length. Find may be called
// at any time, the other methods by one goroutine at a time.
type series struct{ now atomic.Pointer[flat] }

// find returns the end of the block of k, in Unix microseconds, or a number
// below 1.
func (s *series) find(seed maphash.Seed, k key) int64 {
	f := s.now.Load()
	if f == nil {
		return 0
	}
	hash := maphash.Comparable(seed, k)
	if !f.mayHold(hash) {
		return 0
	}
	return f.find(hash, k).until.Load()
}

// put applies a change, unless the block has one as new. It returns what was
// known before.
func (s *series) put(seed maphash.Seed, k key, b block) (old block, known, changed bool) {
	f := s.now.Load()
	if f == nil {
		f = newFlat(0)
		s.now.Store(f)
	}
	hash := maphash.Comparable(seed, k)
	place := f.find(hash, k)
	switch until := place.until.Load(); until {
	case empty:
		if 4*(f.used+1) > 3*len(f.slots) {
			f = s.rebuild(seed, f.live+1)
			place = f.find(hash, k)
		}
		f.insert(place, hash, k, b)
		return block{}, false, true
	case dead:
		place.version = b.version
		place.until.Store(b.until)
		f.live++
		return block{}, false, true
	default:
		old = block{until, place.version}
		if old.version >= b.version {
			return old, true, false
		}
		place.version = b.version
		place.until.Store(b.until)
		return old, true, true
	}
}

// drop takes out a block and returns it.
func (s *series) drop(seed maphash.Seed, k key) (old block, known bool) {
	f := s.now.Load()
	if f == nil {
		return block{}, false
	}
	place := f.find(maphash.Comparable(seed, k), k)
	until := place.until.Load()
	if until == empty || until == dead {
		return block{}, false
	}
	f.bury(place)
	return block{until, place.version}, true
}

func (f *flat) bury(s *slot) {
	s.until.Store(dead)
	f.live--
}

// sweep takes out what ended before a time and tells each of it. Memory that is
// hardly used is given back.
func (s *series) sweep(seed maphash.Seed, before int64, each func(block)) {
	f := s.now.Load()
	if f == nil {
		return
	}
	for i := range f.slots {
		place := &f.slots[i]
		if until := place.until.Load(); until > 0 && until < before {
			f.bury(place)
			each(block{until, place.version})
		}
	}
	switch {
	case f.live == 0:
		s.now.Store(nil)
	case len(f.slots) > least && 8*f.live < len(f.slots):
		s.rebuild(seed, f.live)
	}
}

// rebuild replaces the table by one that has room for that many blocks.
func (s *series) rebuild(seed maphash.Seed, blocks int) *flat {
	f := newFlat(blocks)
	s.all(func(k key, b block) {
		hash := maphash.Comparable(seed, k)
		f.insert(f.find(hash, k), hash, k, b)
	})
	s.now.Store(f)
	return f
}

// all calls each with every block.
func (s *series) all(each func(key, block)) {
	f := s.now.Load()
	if f == nil {
		return
	}
	for i := range f.slots {
		if until := f.slots[i].until.Load(); until > 0 {
			each(f.slots[i].key, block{until, f.slots[i].version})
		}
	}
}
