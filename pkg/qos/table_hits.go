package qos

// hit counts hits for the cluster. The cell has an entry.
func (c *cell) hit(n int64) {
	c.shard.total += n
	if c.entry.hits == 0 && !c.table.tally.admit() {
		return
	}
	c.entry.hits += n
}

// addHits counts hits of a key for the cluster, and not for its history. Those of a
// whitelisted key count only if listed says so.
func (t *table) addHits(k *key, n int64, listed bool) {
	if t.tally == nil {
		return
	}
	c := t.open(k)
	defer c.close()
	if c.listed && !listed {
		return
	}
	c.find(k)
	if c.entry != nil {
		c.hit(n)
	} else {
		t.tally.add(k, n, -1)
	}
}

// addTotal counts hits of keys that are not known.
func (t *table) addTotal(n int64) {
	s := &t.shards[0]
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total += n
}

// takeHits takes all hits since the last time. Of addresses it takes those seen since a
// time in ms; with roll they begin to be counted anew. A key whose history begins or ends
// meanwhile may be in it twice, with a part of its hits each.
func (t *table) takeHits(since int64, roll bool) taken {
	var out taken
	for i := range t.shards {
		t.shards[i].takeHits(&out, since)
	}
	t.tally.take(&out, roll)
	return out
}

func (s *shard) takeHits(out *taken, since int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range s.queue {
		e := q.entry
		if e.hits == 0 {
			continue
		}
		out.hits = append(out.hits, keyHits{e.key, e.hits})
		if e.sightings != nil {
			// Its hits may be of addresses seen before the window began, or of none.
			if n := e.sightings.countSince(since); n > 0 {
				out.unique = append(out.unique, keyHits{e.key, n})
			}
		}
		e.hits = 0
	}
	out.total += s.total
	s.total = 0
}
