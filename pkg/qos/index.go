package qos

// index finds entries by key. It is a hash table with linear probing: before the
// entry itself a look-up reads one line of memory, where Go's map reads several,
// and such reads are most of what a decision costs.
type index struct {
	slots []slot // its length is 0 or a power of two
	used  int
}

type slot struct {
	hash  uint64
	entry *entry // nil if the slot is free
}

// minSlots is the length of the first table.
const minSlots = 8

// home is where the search for a hash begins. The low bits have chosen the shard
// already.
func (x *index) home(hash uint64) int { return int(hash>>32) & (len(x.slots) - 1) }

func (x *index) find(hash uint64, k *key) *entry {
	if len(x.slots) == 0 {
		return nil
	}
	for i := x.home(hash); ; i = (i + 1) & (len(x.slots) - 1) {
		s := &x.slots[i]
		if s.entry == nil || s.hash == hash && s.entry.key == *k {
			return s.entry
		}
	}
}

// insert adds an entry whose key is not there.
func (x *index) insert(hash uint64, e *entry) {
	if 4*x.used >= 3*len(x.slots) {
		old := x.slots
		x.slots = make([]slot, max(minSlots, 2*len(old)))
		for _, s := range old {
			if s.entry != nil {
				x.put(s)
			}
		}
	}
	x.put(slot{hash, e})
	x.used++
}

func (x *index) put(s slot) {
	i := x.home(s.hash)
	for x.slots[i].entry != nil {
		i = (i + 1) & (len(x.slots) - 1)
	}
	x.slots[i] = s
}

// remove takes out an entry that is there, and moves those behind it up, so that
// no search meets the gap before what it looks for.
func (x *index) remove(hash uint64, e *entry) {
	mask := len(x.slots) - 1
	gap := x.home(hash)
	for x.slots[gap].entry != e {
		gap = (gap + 1) & mask
	}
	for i := (gap + 1) & mask; x.slots[i].entry != nil; i = (i + 1) & mask {
		// What began its search behind the gap stays.
		if (i-x.home(x.slots[i].hash))&mask >= (i-gap)&mask {
			x.slots[gap] = x.slots[i]
			gap = i
		}
	}
	x.slots[gap] = slot{}
	x.used--
}
