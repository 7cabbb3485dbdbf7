package pgstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ccnq/ccnq/pkg/wire"
	"github.com/ccnq/ccnq/services/queue-coordinator/internal/store"
	"github.com/ccnq/ccnq/services/queue-coordinator/internal/store/queuedb"
)

// Outcomes of a queue_event, see db/migrations/00001_queue.sql.
const (
	outcomeActive         = "active"
	outcomeAdmitted       = "admitted"
	outcomeBusy           = "busy"
	outcomeCorrected      = "corrected"
	outcomeForeign        = "foreign"
	outcomeFreed          = "freed"
	outcomeGone           = "gone"
	outcomeListedPromoted = "listed_promoted"
	outcomePending        = "pending"
	outcomePromoted       = "promoted"
	outcomeQueued         = "queued"
	outcomeRejected       = "rejected"
	outcomeUnknown        = "unknown"
)

// kind is what a batch does with its items.
type kind int

const (
	release kind = iota
	cancel
	admit
	kinds
)

func (k kind) String() string { return [...]string{"release", "cancel", "admit"}[k] }

// op is one item of a batch, of any kind.
type op struct {
	store.Item
	mode   wire.Mode // admit only
	index  int       // in the caller's items
	report func(index int, r result)
}

func (o *op) fail(err error) { o.report(o.index, result{err: err}) }

// batch is a number of ops of one kind.
type batch struct {
	kind   kind
	limits store.Limits
	ops    []op
}

func (b *batch) fail(err error) {
	for i := range b.ops {
		b.ops[i].fail(err)
	}
}

// expire removes the ops whose deadline has passed and reports err for them.
func (b *batch) expire(now time.Time, err error) {
	kept := b.ops[:0]
	for i := range b.ops {
		if now.Before(b.ops[i].Deadline) {
			kept = append(kept, b.ops[i])
		} else {
			b.ops[i].fail(err)
		}
	}
	b.ops = kept
}

// soonest returns the first deadline.
func (b *batch) soonest() time.Time {
	first := b.ops[0].Deadline
	for i := range b.ops {
		if b.ops[i].Deadline.Before(first) {
			first = b.ops[i].Deadline
		}
	}
	return first
}

// round takes the next transaction off the batch: at most [MaxBatch] ops, in
// order, with distinct request ids. The map tells the index of each.
func (b *batch) round() (batch, map[wire.RequestID]int) {
	index := make(map[wire.RequestID]int, min(len(b.ops), MaxBatch))
	whole := len(b.ops) <= MaxBatch
	for i := range b.ops {
		index[b.ops[i].ID] = i
	}
	next := batch{kind: b.kind, limits: b.limits}
	if whole && len(index) == len(b.ops) {
		next.ops, b.ops = b.ops, nil
		return next, index
	}
	clear(index)
	var later []op
	for _, o := range b.ops {
		if _, twice := index[o.ID]; twice || len(next.ops) == MaxBatch {
			later = append(later, o)
			continue
		}
		index[o.ID] = len(next.ops)
		next.ops = append(next.ops, o)
	}
	b.ops = later
	return next, index
}

// result is what became of one op.
type result struct {
	outcome string
	fullFor time.Duration
	err     error
}

func (r result) admit() store.AdmitResult {
	switch {
	case r.err != nil:
		return store.AdmitResult{Err: r.err}
	case r.outcome == outcomeAdmitted:
		return store.AdmitResult{Decision: wire.Admitted}
	case r.outcome == outcomeQueued:
		return store.AdmitResult{Decision: wire.Queued}
	case r.outcome == outcomeRejected:
		return store.AdmitResult{Decision: wire.Rejected, FullFor: r.fullFor}
	case r.outcome == outcomeForeign:
		return store.AdmitResult{Err: store.ErrForeign}
	}
	return store.AdmitResult{Err: unexpected(r.outcome)}
}

func (r result) cancel() store.CancelResult {
	switch {
	case r.err != nil:
		return store.CancelResult{Err: r.err}
	case r.outcome == outcomePending:
		return store.CancelResult{Was: wire.WasPending}
	case r.outcome == outcomeActive:
		return store.CancelResult{Was: wire.WasActive}
	case r.outcome == outcomeGone:
		return store.CancelResult{Was: wire.WasGone}
	}
	return store.CancelResult{Err: unexpected(r.outcome)}
}

func unexpected(outcome string) error {
	return fmt.Errorf("%w: outcome %q of a queue function", store.ErrAnswer, outcome)
}

// submit brings each op of the batch to a report. Ops of groups that somebody
// else has locked may be reported after it returned.
func (s *Store) submit(ctx context.Context, b batch) {
	if err := s.enter(); err != nil {
		b.fail(err)
		return
	}
	defer s.calls.Done()
	latest := time.Now().Add(MaxCall)
	for i := range b.ops {
		if d := &b.ops[i].Deadline; d.IsZero() || d.After(latest) {
			*d = latest
		}
	}
	b = s.slow.divert(b)
	for {
		b.expire(time.Now(), store.ErrExpired)
		if len(b.ops) == 0 {
			return
		}
		next, index := b.round()
		s.attempt(ctx, next, index, &b)
	}
}

// attempt makes one transaction of the batch. Ops that ran out of time with
// others go back to rest, for the others' sake.
func (s *Store) attempt(ctx context.Context, b batch, index map[wire.RequestID]int, rest *batch) {
	events, err := s.call(ctx, b, firstTry)
	if errors.Is(err, errLocked) {
		events, err = s.call(ctx, b, secondTry)
	}
	switch {
	case err == nil:
		s.slow.add(s.deliver(b, index, events))
	case errors.Is(err, errLocked):
		s.slow.add(b)
	case errors.Is(err, errTimeout) && ctx.Err() == nil && !time.Now().Before(b.soonest()):
		rest.ops = append(b.ops, rest.ops...)
	default:
		b.fail(err)
	}
}

// deliver hands out the promotions, then reports each op. It returns the ops
// whose groups are locked, unreported.
func (s *Store) deliver(b batch, index map[wire.RequestID]int, events []queuedb.QueueEvent) (busy batch) {
	busy = batch{kind: b.kind, limits: b.limits}
	s.handOut(events, b.ops)
	const silent = "" // what release says of an item that is not busy
	results := make([]result, len(b.ops))
	for _, e := range events {
		switch e.Outcome {
		case outcomePromoted, outcomeFreed:
			continue
		}
		if i, ok := index[e.RequestID]; ok {
			results[i] = result{outcome: e.Outcome, fullFor: time.Duration(e.FullForMs) * time.Millisecond}
		}
	}
	for i, r := range results {
		switch {
		case r.outcome == outcomeBusy:
			busy.ops = append(busy.ops, b.ops[i])
		case r.outcome == silent && b.kind != release:
			b.ops[i].fail(unexpected(silent))
		default:
			b.ops[i].report(b.ops[i].index, r)
		}
	}
	return busy
}

// handOut gives the promotions among the events to the store's owner. Ops are
// those of the call, to tell when the message came that freed a place.
func (s *Store) handOut(events []queuedb.QueueEvent, ops []op) {
	var promoted []store.Promotion
	for _, e := range events {
		if e.Outcome == outcomePromoted {
			promoted = append(promoted, store.Promotion{ID: e.RequestID, Group: e.IpGroup, EdgeID: e.EdgeID})
		}
	}
	if len(promoted) == 0 {
		return
	}
	received := make(map[string]time.Time, len(ops))
	for i := range ops {
		if t, ok := received[ops[i].Group]; !ok || ops[i].Received.Before(t) {
			received[ops[i].Group] = ops[i].Received
		}
	}
	for i := range promoted {
		promoted[i].Freed = received[promoted[i].Group]
	}
	s.promoted(promoted)
}
