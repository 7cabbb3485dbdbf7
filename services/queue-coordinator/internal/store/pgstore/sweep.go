package pgstore

import (
	"context"
	"time"

	"github.com/ccnq/ccnq/services/queue-coordinator/internal/store"
	"github.com/ccnq/ccnq/services/queue-coordinator/internal/store/queuedb"
)

// Status implements [store.Store].
func (s *Store) Status(ctx context.Context, limits store.Limits, status store.Status) (store.StatusResult, error) {
	lease := status.Lease
	if lease <= 0 {
		lease = limits.Lease
	}
	var stale *time.Duration
	if status.Stale > 0 {
		stale = &status.Stale
	}
	events, err := s.sweep(ctx, "status", func(ctx context.Context, db queuedb.DBTX) ([]queuedb.QueueEvent, error) {
		return s.queries.EdgeStatus(ctx, db, queuedb.EdgeStatusParams{
			Edge: status.EdgeID, Epoch: status.Epoch, Lease: lease, Stale: stale,
			Part: int32(status.Part), Parts: int32(max(status.Parts, 1)),
			Waiting: status.Waiting, Active: status.Active,
			MaxServed: int32(limits.MaxServed), Now: s.now(),
		})
	})
	var r store.StatusResult
	for _, e := range events {
		switch e.Outcome {
		case outcomeListedPromoted:
			r.Promoted = append(r.Promoted, e.RequestID)
		case outcomeUnknown:
			r.Unknown = append(r.Unknown, e.RequestID)
		case outcomeFreed:
			r.Freed++
		}
	}
	return r, err
}

// PromoteWaiting implements [store.Store].
func (s *Store) PromoteWaiting(ctx context.Context, limits store.Limits) error {
	_, err := s.sweep(ctx, "promote waiting", func(ctx context.Context, db queuedb.DBTX) ([]queuedb.QueueEvent, error) {
		return s.queries.PromoteWaiting(ctx, db, queuedb.PromoteWaitingParams{
			MaxServed: int32(limits.MaxServed), Now: s.now(),
		})
	})
	return err
}

// ReclaimDead implements [store.Store].
func (s *Store) ReclaimDead(ctx context.Context, limits store.Limits) (store.Swept, error) {
	now, err := s.measured(ctx)
	if err != nil {
		return store.Swept{}, err
	}
	events, err := s.sweep(ctx, "reclaim dead edges", func(ctx context.Context, db queuedb.DBTX) ([]queuedb.QueueEvent, error) {
		return s.queries.ReclaimDeadEdges(ctx, db, queuedb.ReclaimDeadEdgesParams{
			MaxServed: int32(limits.MaxServed), Now: &now,
		})
	})
	return swept(events), err
}

// ReconcileStale implements [store.Store].
func (s *Store) ReconcileStale(ctx context.Context, limits store.Limits) (store.Swept, error) {
	now, err := s.measured(ctx)
	if err != nil {
		return store.Swept{}, err
	}
	events, err := s.sweep(ctx, "reconcile stale", func(ctx context.Context, db queuedb.DBTX) ([]queuedb.QueueEvent, error) {
		return s.queries.ReconcileStale(ctx, db, queuedb.ReconcileStaleParams{
			MaxServed: int32(limits.MaxServed), Stale: limits.StaleActive, Lease: limits.Lease, Now: &now,
		})
	})
	return swept(events), err
}

// measured returns the time by which leases are judged, from a round trip of
// its own. A statement that a frozen database runs only when it is woken would
// otherwise find every lease expired, since no edge could renew one meanwhile.
func (s *Store) measured(ctx context.Context) (time.Time, error) {
	if s.clock != nil {
		return s.clock(), nil
	}
	return guarded(ctx, s, "read the clock", s.queries.DatabaseTime)
}

// PruneIdle implements [store.Store].
func (s *Store) PruneIdle(ctx context.Context, age time.Duration) (int, error) {
	n, err := guarded(ctx, s, "prune idle groups", func(ctx context.Context, db queuedb.DBTX) (int64, error) {
		return s.queries.PruneIdleGroups(ctx, db, queuedb.PruneIdleGroupsParams{Idle: age, Now: s.now()})
	})
	return int(n), err
}

// Totals implements [store.Store].
func (s *Store) Totals(ctx context.Context) (store.Totals, error) {
	t, err := guarded(ctx, s, "totals", s.queries.QueueTotals)
	return store.Totals{Active: int(t.Active), Waiting: int(t.Waiting), Groups: int(t.Groups)}, err
}

// sweep runs one call that is not about a batch and hands out its promotions.
func (s *Store) sweep(ctx context.Context, name string,
	query func(context.Context, queuedb.DBTX) ([]queuedb.QueueEvent, error),
) ([]queuedb.QueueEvent, error) {
	events, err := guarded(ctx, s, name, query)
	if err == nil {
		s.handOut(events, nil)
	}
	return events, err
}

// guarded is run for a call that is not about a batch.
func guarded[T any](ctx context.Context, s *Store, name string,
	query func(context.Context, queuedb.DBTX) (T, error),
) (T, error) {
	var none T
	if err := s.enter(); err != nil {
		return none, err
	}
	defer s.calls.Done()
	limit := MaxCall
	if deadline, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(deadline))
	}
	out, err := run(ctx, s, name, limit, firstTry.lock, query)
	if err != nil {
		return none, public(err)
	}
	return out, nil
}

func swept(events []queuedb.QueueEvent) store.Swept {
	var s store.Swept
	for _, e := range events {
		switch e.Outcome {
		case outcomeFreed:
			s.Freed++
		case outcomeCorrected:
			s.Corrected++
		}
	}
	return s
}
