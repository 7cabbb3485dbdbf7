package qos

import (
	"hash/maphash"
	"math/bits"
	"sync"
	"sync/atomic"
)

// tally is the hits of one kind of actor since they were last taken, for the cluster.
// At most limit keys have any. Those whose history is kept have them there, in their
// entries of the table, since the processor has those at hand; the tally itself has the
// others. A key without hits is kept until the next time, so that an actor who goes
// on costs no memory anew.
type tally struct {
	limit int64
	// addresses is how many addresses a subnet has, if they are to be told apart. Each
	// subnet has a bit for each of them then, which stay over several takes.
	addresses int

	seed   maphash.Seed
	used   atomic.Int64 // keys with hits, in entries too
	shards [shardCount]tallyShard
}

type tallyShard struct {
	mu     sync.Mutex
	counts map[key]*count
	total  int64  // hits, those of keys beyond the limit included
	epoch  uint64 // of the addresses that count
	_      [64]byte
}

type count struct {
	hits  int64
	epoch uint64   // of seen
	seen  []uint64 // a bit per address of the subnet
}

func newTally(limit, addresses int) *tally {
	t := &tally{limit: int64(limit), addresses: addresses, seed: maphash.MakeSeed()}
	for i := range t.shards {
		t.shards[i].counts = make(map[key]*count)
	}
	return t
}

// add counts n hits. number is that of the address in its subnet, -1 if it is not
// known.
func (t *tally) add(k *key, n int64, number int) {
	s := &t.shards[k.hash(t.seed)%shardCount]
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total += n
	c := s.counts[*k]
	if c == nil || c.hits == 0 {
		if !t.admit() {
			return
		}
		if c == nil {
			c = &count{}
			s.counts[k.clone()] = c
		}
	}
	c.hits += n
	if t.addresses > 0 && number >= 0 {
		c.see(number, t.addresses, s.epoch)
	}
}

// admit reports whether one more key may have hits, and counts it if so.
func (t *tally) admit() bool {
	if t.used.Add(1) > t.limit {
		t.used.Add(-1)
		return false
	}
	return true
}

// put takes over the hits of a key that was admitted and is not here. The key has
// memory of its own.
func (t *tally) put(k *key, hits int64) {
	s := &t.shards[k.hash(t.seed)%shardCount]
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[*k] = &count{hits: hits}
}

// remove gives the hits of a key away, 0 if there are none.
func (t *tally) remove(k *key) int64 {
	s := &t.shards[k.hash(t.seed)%shardCount]
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.counts[*k]
	if c == nil {
		return 0
	}
	delete(s.counts, *k)
	return c.hits
}

// see notes an address. Those of another epoch are forgotten.
func (c *count) see(number, addresses int, epoch uint64) {
	if c.seen == nil {
		c.seen = make([]uint64, (addresses+63)/64)
	}
	if c.epoch != epoch {
		clear(c.seen)
		c.epoch = epoch
	}
	c.seen[number/64] |= 1 << (number % 64)
}

func (c *count) unique() int64 {
	n := 0
	for _, word := range c.seen {
		n += bits.OnesCount64(word)
	}
	return int64(n)
}

// taken is what was in a tally.
type taken struct {
	hits, unique []keyHits
	total        int64
}

type keyHits struct {
	key key
	n   int64
}

// take empties the tally into out. With roll, addresses begin to be counted anew after it.
func (t *tally) take(out *taken, roll bool) {
	for i := range t.shards {
		t.shards[i].take(out, roll, 2*t.limit/shardCount)
	}
	t.used.Add(-int64(len(out.hits)))
}

// take is that of a shard, which keeps subnets without hits, but with addresses seen,
// while it has not more than idle keys.
func (s *tallyShard) take(out *taken, roll bool, idle int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, c := range s.counts {
		switch {
		case c.hits > 0:
			out.hits = append(out.hits, keyHits{k, c.hits})
			if c.seen != nil && c.epoch == s.epoch {
				out.unique = append(out.unique, keyHits{k, c.unique()})
			}
			c.hits = 0
		case c.seen == nil || c.epoch != s.epoch || roll || int64(len(s.counts)) > idle:
			delete(s.counts, k)
		}
	}
	out.total += s.total
	s.total = 0
	if roll {
		s.epoch++
	}
}
