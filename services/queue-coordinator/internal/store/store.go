package store

import (
	"context"
	"errors"
	"time"

	"github.com/ccnq/ccnq/pkg/wire"
)

// Errors of single items, see [AdmitResult], [CancelResult] and [Store.Release].
// A failure of the store itself is any other error.
var (
	// ErrBusy means that somebody else kept the item's group locked until the
	// item's deadline.
	ErrBusy = errors.New("group is locked by another transaction")
	// ErrExpired means that the item's deadline passed before the store
	// decided. The decision may still have taken effect.
	ErrExpired = errors.New("deadline passed")
	// ErrForeign means that the request belongs to another edge or to another
	// bucket.
	ErrForeign = errors.New("request belongs to another edge or bucket")
	// ErrClosed means that the store has been closed.
	ErrClosed = errors.New("store is closed")
	// ErrAnswer means that the store answered, and said of the item what it
	// never should: a fault in its code, not a store that is away.
	ErrAnswer = errors.New("unexpected answer of the store")
)

// Store is the state of the admission queue. All methods are safe for
// concurrent use, also by several coordinators on one database.
//
// Methods that take several items report each of them through done: exactly
// once for each index, from any goroutine, possibly at the same time and, for
// an item whose group somebody else has locked, after the method has returned.
// Done must not block. One bad item never fails the others.
//
// Whoever is promoted is handed to the function that the store was made with
// ([PromotedFunc]), after the commit and before the call's own results.
type Store interface {
	// Admit decides for each item: admitted, queued or rejected. It is
	// idempotent: for a request that it knows it returns the decision in
	// force. Items of one group are decided in the order given, after the
	// items that assert a place. It renews the edges' leases.
	Admit(ctx context.Context, limits Limits, items []AdmitItem, done func(i int, r AdmitResult))

	// Cancel takes waiting requests back and leaves active ones alone. It
	// renews the edges' leases.
	Cancel(ctx context.Context, limits Limits, items []Item, done func(i int, r CancelResult))

	// Close waits until every item has been reported, ends the store's
	// goroutines, and lets later calls fail with [ErrClosed]. It may be called
	// twice.
	Close()

	// PromoteWaiting promotes wherever there is room and somebody waits. It is
	// needed when a limit was raised; everything else promotes by itself.
	PromoteWaiting(ctx context.Context, limits Limits) error

	// PruneIdle forgets groups that have had nobody active or waiting for
	// longer than age, and returns how many.
	PruneIdle(ctx context.Context, age time.Duration) (int, error)

	// ReclaimDead frees everything that belongs to edges whose lease has
	// expired, then forgets those edges. The caller decides when it may be
	// called: not while the coordinator was cut off from the edges, and for
	// one lease after.
	ReclaimDead(ctx context.Context, limits Limits) (Swept, error)

	// ReconcileStale frees active requests that are older than
	// [Limits.StaleActive] and whose edge has no live lease, and corrects
	// counts that differ from the requests that are really there. Requests
	// whose edge has no lease at all get one, so that ReclaimDead finds them
	// if the edge stays silent.
	ReconcileStale(ctx context.Context, limits Limits) (Swept, error)

	// Release gives places back, of active and of waiting requests. Releasing
	// what is not there, or is another edge's, has no effect and is no error.
	// It renews the edges' leases.
	Release(ctx context.Context, limits Limits, items []Item, done func(i int, err error))

	// Status renews the lease of an edge, says how the store differs from
	// what the edge listed, and frees what the edge does not know.
	Status(ctx context.Context, limits Limits, status Status) (StatusResult, error)

	// Totals returns the sums over all groups. They are exact but cost a scan
	// of the groups: for metrics, not for decisions.
	Totals(ctx context.Context) (Totals, error)
}

// PromotedFunc receives requests that have been promoted. It is called from
// any goroutine, also at the same time, and must not block.
type PromotedFunc func([]Promotion)

// Limits are the coordinator's settings that decisions depend on. Coordinators
// of one database must agree on them.
type Limits struct {
	// MaxServed is the number of active requests of a group, at least 1.
	MaxServed int
	// MaxPending is the number of waiting requests of a group, at least 0.
	MaxPending int
	// Lease is how long an edge's requests outlive its last message, unless
	// its status says otherwise; above 0.
	Lease time.Duration
	// StaleActive is the age from which an active request without a live
	// lease is taken for abandoned; above 0.
	StaleActive time.Duration
}

// Item names one request.
type Item struct {
	ID wire.RequestID
	// Group is the key of the request's bucket.
	Group string
	// EdgeID is the edge that the request belongs to.
	EdgeID string
	// Deadline is when the caller stops waiting for the result. Zero means
	// that only the call's context and the store's own bound (see the
	// implementation) limit the item.
	Deadline time.Time
	// Received is when the message with this item came in; it only returns in
	// [Promotion.Freed]. It may be zero.
	Received time.Time
}

// AdmitItem asks for a place for one request.
type AdmitItem struct {
	Item
	// Mode defaults to [wire.ModeWait] when empty.
	Mode wire.Mode
}

// AdmitResult is the decision for one [AdmitItem].
type AdmitResult struct {
	// Decision is empty if Err is set.
	Decision wire.Decision
	// FullFor is set for a rejection only: how long the edge may refuse the
	// group by itself, 0 if that is not known, else whole milliseconds up to
	// [MaxFullFor].
	FullFor time.Duration
	Err     error
}

// CancelResult is what one request was when it was cancelled.
type CancelResult struct {
	// Was is empty if Err is set.
	Was wire.Was
	Err error
}

// Promotion is a request that waited and now holds a place.
type Promotion struct {
	ID     wire.RequestID
	Group  string
	EdgeID string
	// Freed is the earliest Received of the items of this group in the call
	// that promoted; zero when no message freed the place.
	Freed time.Time
}

// Status is one part of what an edge says it has.
type Status struct {
	EdgeID string
	// Epoch grows with every status of the edge. A status with an epoch that
	// is older than one seen before frees nothing.
	Epoch int64
	// Lease is the new length of the edge's lease; 0 means [Limits.Lease].
	Lease time.Duration
	// Stale is the age from which a request of this edge that is not listed
	// is freed; 0 frees nothing.
	Stale time.Duration
	// Part of Parts: only requests of this part are listed and freed, see
	// [wire.RequestID.Part]. Parts 0 means 1.
	Part, Parts int
	// Waiting and Active list the requests that the edge has.
	Waiting, Active []wire.RequestID
}

// StatusResult says how the store differs from a [Status].
type StatusResult struct {
	// Promoted were listed as waiting and are active.
	Promoted []wire.RequestID
	// Unknown were listed and are not in the store, or were listed as active
	// and still wait.
	Unknown []wire.RequestID
	// Freed is the number of requests that the edge did not list.
	Freed int
}

// Swept says what a sweep did.
type Swept struct {
	// Freed is the number of requests that were removed.
	Freed int
	// Corrected is the number of groups whose counts were wrong.
	Corrected int
}

// Totals are sums over all groups.
type Totals struct {
	Active, Waiting, Groups int
}
