package tally

import (
	"net/netip"
	"time"

	"github.com/ccnq/ccnq/pkg/wire"
	"github.com/ccnq/ccnq/services/denylist/internal/store"
)

// Batch is a batch of denied events, summed up. It is not safe for concurrent
// use.
type Batch struct {
	// Addresses has each address once, in the order of their first event.
	Addresses []Address
	// Positions are the new positions of the outboxes of the batch.
	Positions map[string]Position
	// Result counts records, denials and clamped addresses.
	Result store.Result

	entries []entry
	index   map[netip.Addr]int32
	ranges  map[RangeDay]*Range
	runs    map[netip.Prefix]*[]Run
}

// Position is the last event of an outbox.
type Position struct {
	// Seq is its number in the outbox.
	Seq uint64
	// Seen is when the stream received it.
	Seen time.Time
}

// Address is one address of a batch.
type Address struct {
	IP netip.Addr
	// Days are the counts of the address. Before [Batch.Decide] the store puts
	// in all that it has of the days of the batch, and of the days in their
	// windows all that are exceeded.
	Days []Row

	runs []Run
}

// Row is the count of one address on one day.
type Row struct {
	Day Day
	// Group is the range that the row counts for.
	Group netip.Prefix
	// Before is the count before the batch, 0 if there was no row.
	Before int64

	// Add is the number of denials in the batch. If it is 0, the row does not
	// change, and the fields below are empty.
	Add               int64
	FirstSeq, LastSeq uint64
	// Samples are new samples: of denial 1, 2, 4, 8 and so on of the day, as
	// long as there are no more than [store.MaxSamples].
	Samples []wire.DenialSample
}

// RangeDay names a range on one day.
type RangeDay struct {
	Group netip.Prefix
	Day   Day
}

// Range is how many addresses of a range have a count for a day.
type Range struct {
	// Addresses is filled in by the store before [Batch.Decide]. A number above
	// the threshold may stand for any greater one.
	Addresses int

	runs *[]Run // of the range, whatever the day
}

// entry is one address of one event.
type entry struct {
	record *store.Record
	path   string
	group  netip.Prefix
	at     time.Time
	count  int64
	addr   int32
	day    Day
}

// Collect sums up the records, in their order. Applied returns the last applied
// number of an outbox, 0 for none. Records that count towards nothing
// ([wire.DenialReason.Counts]) only move the position.
func Collect(records []store.Record, applied func(outboxID string) uint64) *Batch {
	n := 0
	for i := range records {
		n += len(records[i].Denied.Addresses)
	}
	b := &Batch{
		Positions: make(map[string]Position),
		entries:   make([]entry, 0, n),
		index:     make(map[netip.Addr]int32, n),
		ranges:    make(map[RangeDay]*Range),
		runs:      make(map[netip.Prefix]*[]Run),
	}
	for i := range records {
		r := &records[i]
		d := &r.Denied
		last, ok := b.Positions[d.OutboxID]
		if !ok {
			last.Seq = applied(d.OutboxID)
		}
		if d.Seq <= last.Seq {
			b.Result.Skipped++
			continue
		}
		b.Result.Applied++
		b.Positions[d.OutboxID] = Position{Seq: d.Seq, Seen: store.Instant(r.At)}
		if !d.Reason.Counts() {
			continue
		}
		latest := r.At.Add(store.MaxAhead)
		for j := range d.Addresses {
			b.add(r, &d.Addresses[j], latest)
		}
	}
	return b
}

// add notes one address of a record.
func (b *Batch) add(r *store.Record, a *wire.DeniedAddress, latest time.Time) {
	at := a.Last
	if at.After(latest) {
		at = latest
		b.Result.Clamped++
	}
	at = store.Instant(at)
	i, ok := b.index[a.IP]
	if !ok {
		i = int32(len(b.Addresses))
		b.index[a.IP] = i
		b.Addresses = append(b.Addresses, Address{IP: a.IP})
	}
	b.entries = append(b.entries, entry{
		record: r, path: a.Path, group: a.Group, at: at, count: int64(a.Count), addr: i, day: DayOf(at),
	})
	b.Result.Denials += int64(a.Count)
}

// Find returns the address of the batch, or nil.
func (b *Batch) Find(ip netip.Addr) *Address {
	if i, ok := b.index[ip]; ok {
		return &b.Addresses[i]
	}
	return nil
}

// Span returns the first and the last day of the batch; ok is false if it is
// empty.
func (b *Batch) Span() (first, last Day, ok bool) {
	for i, e := range b.entries {
		if i == 0 || e.day < first {
			first = e.day
		}
		if i == 0 || e.day > last {
			last = e.day
		}
	}
	return first, last, len(b.entries) > 0
}

// Ranges returns the ranges and days that the batch counts in. The store fills
// them in after the addresses' days.
func (b *Batch) Ranges() map[RangeDay]*Range {
	for i := range b.entries {
		e := &b.entries[i]
		key := RangeDay{e.group, e.day}
		if row := b.Addresses[e.addr].row(e.day); row != nil {
			key.Group = row.Group
		}
		if b.ranges[key] != nil {
			continue
		}
		if b.runs[key.Group] == nil {
			b.runs[key.Group] = new([]Run)
		}
		b.ranges[key] = &Range{runs: b.runs[key.Group]}
	}
	return b.ranges
}

// row returns the row of a day, or nil.
func (a *Address) row(day Day) *Row {
	for i := range a.Days {
		if a.Days[i].Day == day {
			return &a.Days[i]
		}
	}
	return nil
}
