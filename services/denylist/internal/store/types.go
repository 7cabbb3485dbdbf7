package store

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/ccnq/ccnq/pkg/wire"
)

// Bounds of the projection.
const (
	// MaxAhead is how far ahead of the stream's time an event's time counts.
	MaxAhead = 5 * time.Minute
	// MaxSamples is the greatest number of samples of one address and day.
	// Sampled is the event with the first denial, then each that brings the
	// count to twice the last or more: so samples spread over the day, and most
	// events write none.
	MaxSamples = 16
	// MaxPayload is how many bytes of a quarantined event are kept.
	MaxPayload = 64 << 10
	// MaxQuarantined is how many quarantined events outlive a [Store.Prune].
	MaxQuarantined = 10_000
	// PositionRetention is how long the position of an outbox is kept that
	// sends nothing.
	PositionRetention = 180 * 24 * time.Hour
)

// Words of changes that no operator made.
const (
	// ReasonDenials is the reason of blocks that denials caused.
	ReasonDenials = "denials"
	// ReasonRebuild is the reason of changes that a rebuild made.
	ReasonRebuild = "rebuild"
	// ReasonSQL is the reason of changes by an operator's own SQL that gives none.
	ReasonSQL = "SQL"
	// ByDenylist is who changes blocks because of denials.
	ByDenylist = "denylist"
)

// Settings are the thresholds of cork-cache-n-queue. The configuration bounds
// them. A store takes every value: durations are kept within 0 and
// [wire.MaxBlock], and no end is later than [MaxEnd].
type Settings struct {
	// DailyThreshold is the number of denials, of one address on one day, from
	// which the day counts as exceeded.
	DailyThreshold int
	// WindowDays is the number of days that are looked at, the event's
	// included.
	WindowDays int
	// ExceedThreshold is the number of exceeded days in the window from which
	// an address is blocked.
	ExceedThreshold int
	// BlockDays is how long an address is blocked.
	BlockDays int
	// RangeIPThreshold is the number of denied addresses of a range on one day
	// above which the range is blocked.
	RangeIPThreshold int
	// RangeBlockHours is how long a range is blocked.
	RangeBlockHours int
	// PruneRetention is how long counts outlive the window, and blocks their
	// end.
	PruneRetention time.Duration
}

// DefaultSettings are the defaults of cork-cache-n-queue.
func DefaultSettings() Settings {
	return Settings{
		DailyThreshold: 25, WindowDays: 14, ExceedThreshold: 5, BlockDays: 30,
		RangeIPThreshold: 25, RangeBlockHours: 24, PruneRetention: 30 * 24 * time.Hour,
	}
}

// BlockFor is how long a denial blocks in the scope, 0 to [wire.MaxBlock].
func (s Settings) BlockFor(scope wire.Scope) time.Duration {
	if scope == wire.ScopeIP {
		return times(s.BlockDays, 24*time.Hour)
	}
	return times(s.RangeBlockHours, time.Hour)
}

// times multiplies without overflow and cuts at [wire.MaxBlock].
func times(n int, unit time.Duration) time.Duration {
	return time.Duration(min(max(int64(n), 0), int64(wire.MaxBlock/unit))) * unit
}

// MaxEnd is the latest end of a block: RFC 3339, which every reader speaks,
// has years of four digits.
var MaxEnd = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)

// End is the end of a block of length d that begins at t, capped at [MaxEnd].
func End(t time.Time, d time.Duration) time.Time {
	if end := t.Add(d); end.Before(MaxEnd) {
		return end
	}
	return MaxEnd
}

// Instant cuts a time to what a store keeps: whole microseconds, in UTC.
func Instant(t time.Time) time.Time { return t.Truncate(time.Microsecond).UTC() }

// Checkpoint is how far a stream has been applied.
type Checkpoint struct {
	// Created is when the stream was made, to the microsecond; zero before the
	// first [Store.Reset].
	Created time.Time
	// Seq is the sequence of the last message applied, 0 for none.
	Seq uint64
}

// Same reports whether two checkpoints name the same place of the same stream.
func (c Checkpoint) Same(o Checkpoint) bool { return c.Of(o.Created) && c.Seq == o.Seq }

// Of reports whether the checkpoint belongs to the stream that was made at
// created.
func (c Checkpoint) Of(created time.Time) bool { return Instant(c.Created).Equal(Instant(created)) }

// Record is a denied event and its place in the stream. Its Denied has passed
// [wire.Denied.Validate].
type Record struct {
	// Seq is its sequence in the stream, from 1.
	Seq uint64
	// At is when the stream received it.
	At time.Time
	// Edge is the id of the edge that sent it.
	Edge   string
	Denied wire.Denied
}

// Quarantined is a message of the stream that could not be understood.
type Quarantined struct {
	Seq     uint64
	At      time.Time
	Subject string
	// Why is the reason in words.
	Why string
	// Payload is cut to [MaxPayload] bytes.
	Payload []byte
}

// Batch is a piece of the stream: what lies between an expected checkpoint and
// Next.
type Batch struct {
	// Records are in the order of the stream.
	Records     []Record
	Quarantined []Quarantined
	// Next becomes the checkpoint. It is of the same stream as the expected
	// one and not before it, nor before any record.
	Next Checkpoint
}

// Check reports whether the batch may follow the checkpoint.
func (b Batch) Check(from Checkpoint) error {
	if !b.Next.Of(from.Created) {
		return fmt.Errorf("%w: the batch is of the stream made %s, the checkpoint of that made %s",
			ErrCheckpoint, Instant(b.Next.Created), Instant(from.Created))
	}
	seq := from.Seq
	for _, r := range b.Records {
		if r.Seq <= seq {
			return fmt.Errorf("%w: record %d comes after %d", ErrCheckpoint, r.Seq, seq)
		}
		seq = r.Seq
	}
	if b.Next.Seq < seq {
		return fmt.Errorf("%w: the batch ends at %d and has %d", ErrCheckpoint, b.Next.Seq, seq)
	}
	return nil
}

// Result says what a batch did.
type Result struct {
	// Applied and Skipped are numbers of records. Skipped ones had been
	// applied before.
	Applied, Skipped int
	// Denials is the number of denials counted.
	Denials int64
	// Clamped is the number of addresses whose time was too far ahead.
	Clamped int
	// Changes is the number of blocks that were made or extended.
	Changes int
}

// Add sums up results.
func (r *Result) Add(o Result) {
	r.Applied += o.Applied
	r.Skipped += o.Skipped
	r.Denials += o.Denials
	r.Clamped += o.Clamped
	r.Changes += o.Changes
}

// Order is what an operator asks for.
type Order struct {
	// Scope and Target are as [wire.ParseTargetText] returns them.
	Scope  wire.Scope
	Target netip.Prefix
	// Reason and By are the operator's words, [wire.MaxWords] bytes each.
	Reason, By string
}

// Text is the canonical text of the target.
func (o Order) Text() string { return wire.TargetText(o.Scope, o.Target) }

// Lifted says what [Store.Unblock] did.
type Lifted struct {
	// Lifted is false if there was no such block in force.
	Lifted bool
	// Forgiven is the number of counts, of one address and day each, that were
	// removed.
	Forgiven int
	// Version is that of the change, 0 if nothing changed.
	Version int64
}

// Kind says what a change did to a block.
type Kind string

// The kinds. Blocked is also a new end of a block that stays in force.
const (
	KindBlocked   Kind = "blocked"
	KindUnblocked Kind = "unblocked"
)

// Change is one change of one block.
type Change struct {
	Kind Kind
	// At is when it was made, by the store's clock.
	At time.Time
	wire.BlockChange
}

// Listing asks for blocks of one scope, in the order of the bytes of their
// targets.
type Listing struct {
	Scope wire.Scope
	// After is the last target of the page before; empty is the beginning.
	After string
	// Limit is the greatest number of blocks, at least 1.
	Limit int
	// InForceAt leaves out blocks that end at this time or before; zero leaves
	// out none.
	InForceAt time.Time
}

// Totals are numbers for metrics and for the mark.
type Totals struct {
	// IPs and Ranges are the numbers of blocks in force.
	IPs, Ranges int
	// Version is that of the newest change, 0 for none.
	Version int64
	// Published is what [Store.SetPublished] was told last.
	Published int64
}

// Explanation is what is known about an address.
type Explanation struct {
	// Blocks are those in force that hold the address.
	Blocks []wire.BlockChange
	// Days are the counts of the address, the latest first, and then those of
	// other addresses that led to a block of their range, with fewer samples.
	Days []wire.DenialDay
}

// Bounds of an [Explanation]; with them it fits into one message.
const (
	MaxDays         = 64
	MaxRangeDays    = 64
	MaxRangeSamples = 2
)

// Pruned says what [Store.Prune] removed.
type Pruned struct {
	Counts, Blocks, Changes, Positions, Quarantined int
	// More says that there is more to remove.
	More bool
}

// Event is one message of the stream for a rebuild: either a denial or a
// change of a block.
type Event struct {
	// Record is nil for a change.
	Record *Record
	// Change is that of a blocked or unblocked event; At is the event's time.
	Change *Change
}
