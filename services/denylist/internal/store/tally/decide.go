package tally

import (
	"math/bits"
	"net/netip"
	"time"

	"github.com/ccnq/ccnq/pkg/wire"
	"github.com/ccnq/ccnq/services/denylist/internal/store"
)

// Run is a row of denials that all block, each while the block of the one
// before is in force.
type Run struct{ First, Last time.Time }

// Block is a target that the batch blocks.
type Block struct {
	Scope  wire.Scope
	Target string
	Runs   []Run
}

// Count adds the batch to the rows of its addresses and decides nothing.
func (b *Batch) Count() {
	for i := range b.entries {
		b.count(&b.entries[i])
	}
}

// Decide adds the batch to the rows of its addresses, event by event, and
// returns what the events block, addresses first, each in the order of its
// first appearance. Store has filled in days and ranges.
func (b *Batch) Decide(s store.Settings) []Block {
	forIP, forRange := s.BlockFor(wire.ScopeIP), s.BlockFor(wire.ScopeRange)
	var order []netip.Prefix
	for i := range b.entries {
		e := &b.entries[i]
		a, row, fresh := b.count(e)
		if a.exceeded(s, e.day) >= s.ExceedThreshold {
			a.runs = extendRuns(a.runs, e.at, forIP)
		}
		r := b.ranges[RangeDay{row.Group, e.day}]
		if fresh {
			r.Addresses++
		}
		if r.Addresses > s.RangeIPThreshold {
			if *r.runs == nil {
				order = append(order, row.Group)
			}
			*r.runs = extendRuns(*r.runs, e.at, forRange)
		}
	}
	var blocks []Block
	for i := range b.Addresses {
		if a := &b.Addresses[i]; a.runs != nil {
			blocks = append(blocks, Block{wire.ScopeIP, a.IP.String(), a.runs})
		}
	}
	for _, group := range order {
		blocks = append(blocks, Block{wire.ScopeRange, group.String(), *b.runs[group]})
	}
	return blocks
}

// count adds one entry to its row, which is fresh if it did not exist.
func (b *Batch) count(e *entry) (a *Address, row *Row, fresh bool) {
	a = &b.Addresses[e.addr]
	row = a.row(e.day)
	if row == nil {
		a.Days = append(a.Days, Row{Day: e.day, Group: e.group})
		row, fresh = &a.Days[len(a.Days)-1], true
	}
	if row.Add == 0 {
		row.FirstSeq = e.record.Seq
	}
	row.LastSeq = e.record.Seq
	had := bits.Len64(uint64(row.Before + row.Add))
	row.Add += e.count
	if had < store.MaxSamples && bits.Len64(uint64(row.Before+row.Add)) > had {
		row.Samples = append(row.Samples, wire.DenialSample{
			At: e.at, Reason: e.record.Denied.Reason, Path: e.path, Edge: e.record.Edge,
		})
	}
	return a, row, fresh
}

// exceeded is the number of exceeded days in the window that ends with day.
func (a *Address) exceeded(s store.Settings, day Day) int {
	n := 0
	for i := range a.Days {
		row := &a.Days[i]
		in := row.Day <= day && int64(row.Day) > int64(day)-int64(s.WindowDays)
		if in && row.Before+row.Add >= int64(s.DailyThreshold) {
			n++
		}
	}
	return n
}

// extendRuns adds a denial that blocks for d. One that is not later than the
// last extends nothing.
func extendRuns(runs []Run, at time.Time, d time.Duration) []Run {
	if len(runs) > 0 {
		last := &runs[len(runs)-1]
		if !at.After(last.Last) {
			return runs
		}
		if at.Before(store.End(last.Last, d)) {
			last.Last = at
			return runs
		}
	}
	return append(runs, Run{at, at})
}

// Extend applies runs of denials, that block for d each, to a block. A block
// that does not exist is the zero value but for scope and target. It reports
// whether the block changed; version and operators' words are the store's.
func Extend(block *wire.BlockChange, runs []Run, d time.Duration) bool {
	changed := false
	for _, run := range runs {
		end := store.End(run.Last, d)
		if !end.After(block.BlockedUntil) {
			continue
		}
		if !block.BlockedUntil.After(run.First) {
			block.Since = run.First
		}
		block.BlockedUntil = end
		block.Reason, block.By = store.ReasonDenials, store.ByDenylist
		changed = true
	}
	return changed
}
