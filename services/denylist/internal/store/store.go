package store

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/ccnq/ccnq/pkg/wire"
)

// Errors that callers tell apart.
var (
	// ErrNotLeader means that the epoch is not that of the leader, or that its
	// time is over.
	ErrNotLeader = errors.New("another process leads, or the lease has ended")
	// ErrCheckpoint means that the projection is not where the caller thinks:
	// read the checkpoint again.
	ErrCheckpoint = errors.New("the checkpoint is another one")
	// ErrNoRebuild means that no rebuild of this epoch has begun.
	ErrNoRebuild = errors.New("no rebuild of this epoch has begun")
)

// Store is the projection. All methods are safe for concurrent use, also by
// several processes on one database. Methods with an epoch return
// [ErrNotLeader] unless it is that of the leader.
type Store interface {
	// Lead makes holder the leader for ttl from now, or renews that, unless
	// another holder leads. The epoch grows whenever the holder changes. The
	// clock is the store's. Holder must be unique for each process.
	Lead(ctx context.Context, holder string, ttl time.Duration) (epoch int64, ok bool, err error)

	// Resign ends the leadership of the epoch at once, if it is the current
	// one.
	Resign(ctx context.Context, epoch int64) error

	// Checkpoint returns how far the projection is.
	Checkpoint(ctx context.Context) (Checkpoint, error)

	// Apply counts a batch and decides blocks, all or nothing. It returns
	// [ErrCheckpoint] if the checkpoint is not the expected one, or the batch
	// does not follow it.
	Apply(ctx context.Context, epoch int64, expected Checkpoint, b Batch) (Result, error)

	// Reset sets the checkpoint to the beginning of the stream that was made
	// at created, and keeps everything else.
	Reset(ctx context.Context, epoch int64, created time.Time) error

	// Block blocks the target for d from now, at most [wire.MaxBlock], and
	// returns the block in force. A block that ends later stays as it is.
	Block(ctx context.Context, o Order, d time.Duration) (wire.BlockChange, error)

	// Unblock ends the block of exactly this target now. Unless keepCounts, it
	// forgives: it removes the counts of the address, or of all addresses of
	// the range, also if there was no block.
	Unblock(ctx context.Context, o Order, keepCounts bool) (Lifted, error)

	// Blocks returns one page.
	Blocks(ctx context.Context, l Listing) ([]wire.BlockChange, error)

	// Holding returns the blocks in force whose target contains p, addresses
	// first, then ranges from long prefixes to short ones.
	Holding(ctx context.Context, p netip.Prefix) ([]wire.BlockChange, error)

	// Explain says why an address is blocked, and what was counted.
	Explain(ctx context.Context, ip netip.Addr) (Explanation, error)

	// Changes returns up to limit changes with versions above after, in order.
	Changes(ctx context.Context, after int64, limit int) ([]Change, error)

	// SetPublished notes that all changes up to the version have been
	// published. A lower version than before has no effect.
	SetPublished(ctx context.Context, epoch, version int64) error

	// RaiseVersion makes every later version greater than atLeast. It is for a
	// store that was lost while readers know its versions.
	RaiseVersion(ctx context.Context, epoch, atLeast int64) error

	// Renew makes a change, without a difference, of up to limit blocks that
	// are in force and whose last change is before the time given, so that
	// they are published again. It returns how many.
	Renew(ctx context.Context, epoch int64, before time.Time, limit int) (int, error)

	// Totals returns sums over all blocks, in force at the time given. It
	// costs a scan.
	Totals(ctx context.Context, at time.Time) (Totals, error)

	// Prune removes a bounded number of: counts that left the window longer
	// than the retention ago, blocks that ended longer than that ago,
	// published changes of that age, positions of outboxes that are silent,
	// and quarantined events that are old or too many.
	Prune(ctx context.Context) (Pruned, error)

	// BeginRebuild begins to make the projection anew, aside. What exists
	// stays in force. A rebuild begun before is forgotten.
	BeginRebuild(ctx context.Context, epoch int64) error

	// Replay adds events, in the order of the stream, to the rebuild: denials
	// are counted and decide nothing, changes make and end blocks and forgive
	// as they did.
	Replay(ctx context.Context, epoch int64, events []Event) (Result, error)

	// FinishRebuild puts the rebuilt projection in the place of the old one,
	// with the checkpoint given, up to which denials were replayed. For blocks:
	//
	//   - One that comes back with the same end does not change.
	//   - One that is missing, or older than its event, comes back with the
	//     version of the event. That makes no change, since the event is in the
	//     stream: compare the readers' copies with the tables afterwards.
	//   - One that differs otherwise gets the end of the event, as a change.
	//   - One that no event holds in force ends now, as a change.
	//   - One with changes that have not been published stays as it is, and
	//     blocks that have ended are not made again.
	FinishRebuild(ctx context.Context, epoch int64, at Checkpoint) (Result, error)
}
