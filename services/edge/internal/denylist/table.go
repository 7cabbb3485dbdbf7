package denylist

import (
	"hash/maphash"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ccnq/ccnq/pkg/wire"
)

// keepEnded is how long an ended block is kept, so that an older message about
// it does not revive it.
const keepEnded = 10 * time.Minute

// Table holds blocks by address and range. Make one with [NewTable]. Its
// methods are safe for concurrent use.
type Table struct {
	seed maphash.Seed // secret: who chooses addresses cannot make them collide
	now  atomic.Pointer[view]

	mu   sync.Mutex // held by writers
	next *view      // a view that is being built; live changes go to both
}

// view is one state of the table.
type view struct {
	families [2]family

	// Below is for writers only.
	ipEnds, rangeEnds ends
	version           int64 // the greatest that was applied
	generation        string
}

// family holds the blocks of IPv4 or of IPv6.
type family struct {
	ips series
	// ranges are by length, counted in 128 bits; lengths are those in use.
	ranges  [129]series
	lengths atomic.Pointer[[]uint8]
}

func newView() *view {
	v := &view{ipEnds: ends{}, rangeEnds: ends{}}
	for i := range v.families {
		v.families[i].lengths.Store(new([]uint8))
	}
	return v
}

func (v *view) family(addr netip.Addr) *family {
	if addr.Is4() {
		return &v.families[0]
	}
	return &v.families[1]
}

// NewTable returns a table without blocks.
func NewTable() *Table {
	t := &Table{seed: maphash.MakeSeed()}
	t.now.Store(newView())
	return t
}

// Check returns whether addr is blocked at now, and until when: the latest end
// of its own block and of those of all ranges that hold it. Addr must be plain
// (unmapped, without a zone). It takes no lock, does not allocate, and costs one
// look-up for the address and one for each length that ranges of its family
// have, of which there are few.
func (t *Table) Check(addr netip.Addr, now time.Time) (until time.Time, blocked bool) {
	if !addr.IsValid() {
		return time.Time{}, false
	}
	f, k := t.now.Load().family(addr), keyOf(addr)
	end := f.ips.find(t.seed, k)
	for _, n := range *f.lengths.Load() {
		end = max(end, f.ranges[n].find(t.seed, k.masked(n)))
	}
	if end <= now.UnixMicro() {
		return time.Time{}, false
	}
	return time.UnixMicro(end), true
}

// change is one message about a block.
type change struct {
	scope  wire.Scope
	target netip.Prefix
	block  block
}

func newChange(scope wire.Scope, target netip.Prefix, b wire.Block) change {
	return change{scope, target, block{until: max(b.BlockedUntil.UnixMicro(), 1), version: b.Version}}
}

// put applies a change, unless a newer one of the same block is known. It
// reports whether readers see a difference.
func (t *Table) put(c change) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.next != nil {
		t.putIn(t.next, c)
	}
	return t.putIn(t.now.Load(), c)
}

func (t *Table) putIn(v *view, c change) bool {
	v.version = max(v.version, c.block.version)
	f := v.family(c.target.Addr())
	s, counts := f.series(c.scope, c.target), v.ends(c.scope)
	old, known, changed := s.put(t.seed, keyOf(c.target.Addr()), c.block)
	if changed {
		counts.change(old, known, c.block)
	}
	return changed
}

// series returns the table that a block belongs to, for writing.
func (f *family) series(scope wire.Scope, target netip.Prefix) *series {
	if scope == wire.ScopeIP {
		return &f.ips
	}
	n := uint8(target.Bits()) // 0..128
	if target.Addr().Is4() {
		n += 96
	}
	return f.length(n)
}

// length returns the table of ranges of a length, for writing.
func (f *family) length(n uint8) *series {
	lengths := *f.lengths.Load()
	if i, found := slices.BinarySearch(lengths, n); !found {
		lengths = slices.Insert(slices.Clone(lengths), i, n)
		f.lengths.Store(&lengths)
	}
	return &f.ranges[n]
}

func (v *view) ends(scope wire.Scope) ends {
	if scope == wire.ScopeIP {
		return v.ipEnds
	}
	return v.rangeEnds
}

// remove takes a block out, whatever its version.
func (t *Table) remove(scope wire.Scope, target netip.Prefix) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, v := range []*view{t.next, t.now.Load()} {
		if v == nil {
			continue
		}
		if old, known := v.family(target.Addr()).series(scope, target).drop(t.seed, keyOf(target.Addr())); known {
			v.ends(scope).add(old.until, -1)
		}
	}
}

// sweep takes out blocks that ended some minutes before now.
func (t *Table) sweep(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	v, before := t.now.Load(), now.Add(-keepEnded).UnixMicro()
	ips, ranges := v.ipEnds.endedBefore(before) > 0, v.rangeEnds.endedBefore(before) > 0
	for i := range v.families {
		f := &v.families[i]
		if ips {
			f.ips.sweep(t.seed, before, func(b block) { v.ipEnds.add(b.until, -1) })
		}
		if ranges {
			f.sweepRanges(t.seed, before, func(b block) { v.rangeEnds.add(b.until, -1) })
		}
	}
}

func (f *family) sweepRanges(seed maphash.Seed, before int64, each func(block)) {
	var left []uint8
	for _, n := range *f.lengths.Load() {
		f.ranges[n].sweep(seed, before, each)
		if f.ranges[n].now.Load() != nil {
			left = append(left, n)
		}
	}
	f.lengths.Store(&left)
}

// begin returns a new view, which receives every live change from now on.
func (t *Table) begin() *view {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.next = newView()
	return t.next
}

// fill applies changes to the view that is being built, and to nothing else.
func (t *Table) fill(v *view, changes []change) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range changes {
		t.putIn(v, c)
	}
}

// abandon forgets the view that is being built, if any.
func (t *Table) abandon() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.next = nil
}

// swap makes the view that was built the one that readers see.
func (t *Table) swap(v *view, generation string, version int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	v.generation = generation
	v.version = max(v.version, version)
	t.next = nil
	t.now.Store(v)
}

// merge adds what the view that was built knows to the one that readers see,
// and takes nothing out.
func (t *Table) merge(v *view) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.next = nil
	now := t.now.Load()
	for i := range v.families {
		from, to := &v.families[i], &now.families[i]
		from.ips.all(func(k key, b block) { t.mergeOne(&to.ips, now.ipEnds, k, b) })
		for _, n := range *from.lengths.Load() {
			s := to.length(n)
			from.ranges[n].all(func(k key, b block) { t.mergeOne(s, now.rangeEnds, k, b) })
		}
	}
}

func (t *Table) mergeOne(s *series, counts ends, k key, b block) {
	if old, known, changed := s.put(t.seed, k, b); changed {
		counts.change(old, known, b)
	}
}

// state is what a mark is compared with.
type state struct {
	generation  string
	version     int64
	ips, ranges count // in force
}

// state returns the state at a time of what readers see.
func (t *Table) state(at time.Time) state { return t.stateOf(t.now.Load(), at) }

func (t *Table) stateOf(v *view, at time.Time) state {
	t.mu.Lock()
	defer t.mu.Unlock()
	return state{
		generation: v.generation, version: v.version,
		ips: v.ipEnds.inForce(at.UnixMicro()), ranges: v.rangeEnds.inForce(at.UnixMicro()),
	}
}
