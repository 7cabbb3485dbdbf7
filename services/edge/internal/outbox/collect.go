package outbox

import (
	"encoding/binary"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ccnq/ccnq/pkg/wire"
)

const (
	shards        = 64
	secondsPerDay = 24 * 60 * 60
	// keepEntries is how many entries of a shard are kept for the next interval
	// although the current one needs far fewer.
	keepEntries = 256
)

// collector sums up refused requests by address until they are cut.
type collector struct {
	limit    int64        // of addresses held
	held     atomic.Int64 // addresses held now
	overflow atomic.Int64 // requests that found no room, since the start
	invalid  atomic.Int64 // requests without a proper address, since the start
	shards   [shards]shard
}

// shard holds the addresses of one part of the address space.
type shard struct {
	mu    sync.Mutex
	now   interval
	spare interval // for the next interval; belongs to whoever cuts
	_     [64]byte // no cache line shared with the next one
}

// interval is what one shard has collected.
type interval struct {
	index   map[key]int32
	entries []entry
	paths   []byte // of all entries, one after the other
}

// key is one address refused in one way on one day: no entry spans midnight,
// whenever the interval is cut.
type key struct {
	addr netip.Addr
	day  int32 // since 1970, UTC
	kind Kind
}

type entry struct {
	key
	group       netip.Prefix
	count       int
	first, last int64 // Unix nanoseconds
	path        int   // where it begins in paths
	pathBytes   int
}

func newCollector(limit int64) *collector {
	c := &collector{limit: limit}
	for i := range c.shards {
		c.shards[i].now.index, c.shards[i].spare.index = map[key]int32{}, map[key]int32{}
	}
	return c
}

func (c *collector) record(kind Kind, addr netip.Addr, group netip.Prefix, path string, at time.Time) {
	if !addr.IsValid() || addr.Is4In6() || addr.Zone() != "" || !group.Contains(addr) {
		c.invalid.Add(1)
		return
	}
	k := key{addr: addr, day: int32(at.Unix() / secondsPerDay), kind: kind} // days fit until the year 5,881,580
	now := at.UnixNano()
	s := &c.shards[shardOf(addr)]
	s.mu.Lock()
	defer s.mu.Unlock()
	if i, ok := s.now.index[k]; ok {
		e := &s.now.entries[i]
		e.count++
		e.first, e.last = min(e.first, now), max(e.last, now)
		return
	}
	if c.held.Add(1) > c.limit {
		c.held.Add(-1)
		c.overflow.Add(1)
		return
	}
	// The path is copied: it must not keep the request's memory. A query, which
	// may hold a secret, is never kept, whatever the caller hands in.
	path = path[:min(len(path), wire.MaxPath)]
	if i := strings.IndexByte(path, '?'); i >= 0 {
		path = path[:i]
	}
	s.now.index[k] = int32(len(s.now.entries)) // bounded by limit
	s.now.entries = append(s.now.entries, entry{
		key: k, group: group, count: 1, first: now, last: now, path: len(s.now.paths), pathBytes: len(path),
	})
	s.now.paths = append(s.now.paths, path...)
}

func shardOf(addr netip.Addr) uint64 {
	b := addr.As16()
	x := binary.LittleEndian.Uint64(b[:8]) ^ binary.LittleEndian.Uint64(b[8:])
	return x * 0x9E3779B97F4A7C15 >> 58 // the top six bits
}

// cut begins a new interval and calls each with the entries of the old one and
// their paths, which are only good during the call. One goroutine may cut.
func (c *collector) cut(each func(e *entry, path []byte)) {
	if c.held.Load() == 0 {
		return
	}
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		s.now, s.spare = s.spare, s.now
		s.mu.Unlock()
		old := &s.spare
		for j := range old.entries {
			e := &old.entries[j]
			each(e, old.paths[e.path:e.path+e.pathBytes])
		}
		c.held.Add(-int64(len(old.entries)))
		old.reset()
	}
}

// reset empties the interval and keeps its memory, unless that was made for far
// more.
func (v *interval) reset() {
	if cap(v.entries) > keepEntries && len(v.entries) < cap(v.entries)/8 {
		*v = interval{index: map[key]int32{}}
		return
	}
	clear(v.index)
	v.entries, v.paths = v.entries[:0], v.paths[:0]
}
