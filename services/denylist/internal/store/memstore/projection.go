package memstore

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/ccnq/ccnq/pkg/wire"
	"github.com/ccnq/ccnq/services/denylist/internal/store"
	"github.com/ccnq/ccnq/services/denylist/internal/store/tally"
)

// projection is what is made of the stream. There are two during a rebuild.
type projection struct {
	checkpoint store.Checkpoint
	addresses  map[netip.Addr][]count
	ranges     map[tally.RangeDay]int // the number of addresses with a count
	positions  map[string]tally.Position
	blocks     map[wire.Scope]*blocks
	newest     int64 // version of the replayed changes
}

// count is the count of one address on one day.
type count struct {
	day               tally.Day
	group             netip.Prefix
	denials           int64
	firstSeq, lastSeq uint64
	samples           []wire.DenialSample
}

// blocks are those of one scope.
type blocks struct {
	byTarget map[string]block
	sorted   []string // nil if it has to be made
}

type block struct {
	wire.BlockChange
	changed time.Time // of the last change, by the store's clock
}

func newProjection() *projection {
	return &projection{
		addresses: make(map[netip.Addr][]count),
		ranges:    make(map[tally.RangeDay]int),
		positions: make(map[string]tally.Position),
		blocks: map[wire.Scope]*blocks{
			wire.ScopeIP:    {byTarget: make(map[string]block)},
			wire.ScopeRange: {byTarget: make(map[string]block)},
		},
	}
}

// applied returns the last applied number of an outbox.
func (p *projection) applied(outboxID string) uint64 { return p.positions[outboxID].Seq }

// load fills a batch with what was counted before.
func (p *projection) load(b *tally.Batch) {
	for i := range b.Addresses {
		a := &b.Addresses[i]
		for _, c := range p.addresses[a.IP] {
			a.Days = append(a.Days, tally.Row{Day: c.day, Group: c.group, Before: c.denials})
		}
	}
	for key, r := range b.Ranges() {
		r.Addresses = p.ranges[key]
	}
}

// save keeps the counts and positions of a batch.
func (p *projection) save(b *tally.Batch) {
	for i := range b.Addresses {
		a := &b.Addresses[i]
		for j := range a.Days {
			if row := &a.Days[j]; row.Add > 0 {
				p.add(a.IP, row)
			}
		}
	}
	maps.Copy(p.positions, b.Positions)
}

func (p *projection) add(ip netip.Addr, row *tally.Row) {
	days := p.addresses[ip]
	i := slices.IndexFunc(days, func(c count) bool { return c.day == row.Day })
	if i < 0 {
		p.ranges[tally.RangeDay{Group: row.Group, Day: row.Day}]++
		p.addresses[ip] = append(days, count{
			day: row.Day, group: row.Group, denials: row.Add,
			firstSeq: row.FirstSeq, lastSeq: row.LastSeq, samples: row.Samples,
		})
		return
	}
	c := &days[i]
	c.denials += row.Add
	c.lastSeq = row.LastSeq
	c.samples = append(c.samples, row.Samples...)
}

// remove forgets the counts of an address that drop says yes to, and returns
// how many.
func (p *projection) remove(ip netip.Addr, drop func(*count) bool) int {
	days := p.addresses[ip]
	kept := days[:0]
	for i := range days {
		c := days[i]
		if !drop(&c) {
			kept = append(kept, c)
			continue
		}
		key := tally.RangeDay{Group: c.group, Day: c.day}
		if p.ranges[key]--; p.ranges[key] == 0 {
			delete(p.ranges, key)
		}
	}
	removed := len(days) - len(kept)
	clear(days[len(kept):])
	if len(kept) == 0 {
		delete(p.addresses, ip)
	} else {
		p.addresses[ip] = kept
	}
	return removed
}

// forgive removes all counts of an address or of a range.
func (p *projection) forgive(scope wire.Scope, target netip.Prefix) int {
	every := func(*count) bool { return true }
	if scope == wire.ScopeIP {
		return p.remove(target.Addr(), every)
	}
	removed := 0
	for ip := range p.addresses {
		if target.Contains(ip) {
			removed += p.remove(ip, every)
		}
	}
	return removed
}

// block returns the block of the target, or one that has not begun.
func (p *projection) block(scope wire.Scope, target string) wire.BlockChange {
	if b, ok := p.blocks[scope].byTarget[target]; ok {
		return b.BlockChange
	}
	return wire.BlockChange{Scope: scope, Target: target}
}

func (p *projection) put(b wire.BlockChange, now time.Time) {
	of := p.blocks[b.Scope]
	if _, ok := of.byTarget[b.Target]; !ok {
		of.sorted = nil
	}
	b.KeepCounts = false
	of.byTarget[b.Target] = block{BlockChange: b, changed: now}
}

func (p *projection) drop(scope wire.Scope, target string) {
	delete(p.blocks[scope].byTarget, target)
	p.blocks[scope].sorted = nil
}

// targets returns the targets of a scope in the order of their bytes.
func (b *blocks) targets() []string {
	if b.sorted == nil {
		b.sorted = slices.Sorted(maps.Keys(b.byTarget))
	}
	return b.sorted
}
