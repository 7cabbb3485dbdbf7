package qos

// index finds entries by key. Entries whose hashes are equal, which is rare, are
// chained.
type index map[uint64]*entry

func (x index) find(hash uint64, k *key) *entry {
	e := x[hash]
	for e != nil && e.key != *k {
		e = e.chained
	}
	return e
}

// insert adds an entry whose key is not there.
func (x index) insert(e *entry) {
	e.chained = x[e.hash]
	x[e.hash] = e
}

// remove takes out an entry that is there.
func (x index) remove(e *entry) {
	first := x[e.hash]
	switch {
	case first != e:
		for first.chained != e {
			first = first.chained
		}
		first.chained = e.chained
	case e.chained != nil:
		x[e.hash] = e.chained
	default:
		delete(x, e.hash)
	}
}
