package guard

import (
	"context"
	"time"

	"github.com/ccnq/ccnq/services/queue-coordinator/internal/store"
)

// The operations as they stand in metrics.
const (
	opAdmit     = "admit"
	opCancel    = "cancel"
	opPromote   = "promote"
	opPrune     = "prune"
	opReclaim   = "reclaim"
	opReconcile = "reconcile"
	opRelease   = "release"
	opStatus    = "status"
	opTotals    = "totals"
)

var operations = []string{opAdmit, opCancel, opPromote, opPrune, opReclaim, opReconcile, opRelease, opStatus, opTotals}

// Admit implements [store.Store].
func (s *Store) Admit(ctx context.Context, limits store.Limits, items []store.AdmitItem, done func(int, store.AdmitResult)) {
	if s.down.Load() {
		for i := range items {
			done(i, store.AdmitResult{Err: ErrUnavailable})
		}
		return
	}
	defer s.observe(opAdmit, time.Now())
	s.opts.Store.Admit(ctx, limits, items, func(i int, r store.AdmitResult) {
		s.judge(r.Err)
		done(i, r)
	})
}

// Cancel implements [store.Store].
func (s *Store) Cancel(ctx context.Context, limits store.Limits, items []store.Item, done func(int, store.CancelResult)) {
	if s.down.Load() {
		for i := range items {
			done(i, store.CancelResult{Err: ErrUnavailable})
		}
		return
	}
	defer s.observe(opCancel, time.Now())
	s.opts.Store.Cancel(ctx, limits, items, func(i int, r store.CancelResult) {
		s.judge(r.Err)
		done(i, r)
	})
}

// Release implements [store.Store].
func (s *Store) Release(ctx context.Context, limits store.Limits, items []store.Item, done func(int, error)) {
	if s.down.Load() {
		for i := range items {
			done(i, ErrUnavailable)
		}
		return
	}
	defer s.observe(opRelease, time.Now())
	s.opts.Store.Release(ctx, limits, items, func(i int, err error) {
		s.judge(err)
		done(i, err)
	})
}

// Status implements [store.Store].
func (s *Store) Status(ctx context.Context, limits store.Limits, status store.Status) (store.StatusResult, error) {
	return guarded(s, opStatus, func() (store.StatusResult, error) { return s.opts.Store.Status(ctx, limits, status) })
}

// PromoteWaiting implements [store.Store].
func (s *Store) PromoteWaiting(ctx context.Context, limits store.Limits) error {
	_, err := guarded(s, opPromote, func() (struct{}, error) {
		return struct{}{}, s.opts.Store.PromoteWaiting(ctx, limits)
	})
	return err
}

// PruneIdle implements [store.Store].
func (s *Store) PruneIdle(ctx context.Context, age time.Duration) (int, error) {
	return guarded(s, opPrune, func() (int, error) { return s.opts.Store.PruneIdle(ctx, age) })
}

// ReclaimDead implements [store.Store].
func (s *Store) ReclaimDead(ctx context.Context, limits store.Limits) (store.Swept, error) {
	return guarded(s, opReclaim, func() (store.Swept, error) { return s.opts.Store.ReclaimDead(ctx, limits) })
}

// ReconcileStale implements [store.Store].
func (s *Store) ReconcileStale(ctx context.Context, limits store.Limits) (store.Swept, error) {
	return guarded(s, opReconcile, func() (store.Swept, error) { return s.opts.Store.ReconcileStale(ctx, limits) })
}

// Totals implements [store.Store].
func (s *Store) Totals(ctx context.Context) (store.Totals, error) {
	return guarded(s, opTotals, func() (store.Totals, error) { return s.opts.Store.Totals(ctx) })
}

// guarded makes a call that concerns the store as a whole.
func guarded[R any](s *Store, op string, call func() (R, error)) (R, error) {
	if s.down.Load() {
		var none R
		return none, ErrUnavailable
	}
	defer s.observe(op, time.Now())
	r, err := call()
	s.judge(err)
	return r, err
}

func (s *Store) observe(op string, start time.Time) {
	s.seconds[op].Observe(time.Since(start).Seconds())
}
