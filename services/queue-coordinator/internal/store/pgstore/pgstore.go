package pgstore

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/ccnq/ccnq/pkg/wire"
	"github.com/ccnq/ccnq/services/queue-coordinator/internal/store"
	"github.com/ccnq/ccnq/services/queue-coordinator/internal/store/queuedb"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// MaxCall bounds one call, and the wait of an item that has no deadline.
	MaxCall = 5 * time.Second
	// MaxBatch is the greatest number of items of one transaction, so that
	// locks are not held for long. Larger batches are split.
	MaxBatch = 1000
)

// Options are what a [Store] needs besides the database.
type Options struct {
	// Promoted receives promotions; nil discards them.
	Promoted store.PromotedFunc
	// Logger reports groups that somebody else has locked; nil discards.
	Logger *slog.Logger
	// Clock replaces the database's clock, for tests. Deadlines of items are
	// always compared with the real clock.
	Clock func() time.Time
}

// Store is the state in Postgres. Make one with [New].
type Store struct {
	pool     *pgxpool.Pool
	queries  *queuedb.Queries
	promoted store.PromotedFunc
	log      *slog.Logger
	clock    func() time.Time
	slow     slowLane

	mu     sync.Mutex // guards closed, and calls.Add against Close
	closed bool
	calls  sync.WaitGroup
}

// New returns a store on the schema that is first in the search path of the
// pool's connections. The schema must have been migrated (package db). The
// pool stays the caller's; it must outlive the store.
func New(pool *pgxpool.Pool, opts Options) *Store {
	s := &Store{
		pool:     pool,
		queries:  queuedb.New(),
		promoted: opts.Promoted,
		log:      opts.Logger,
		clock:    opts.Clock,
	}
	if s.promoted == nil {
		s.promoted = func([]store.Promotion) {}
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.slow.init(s)
	return s
}

// now is the time for the functions: nil lets the database tell it.
func (s *Store) now() *time.Time {
	if s.clock == nil {
		return nil
	}
	t := s.clock()
	return &t
}

// enter begins a call; the caller must call s.calls.Done unless it fails.
func (s *Store) enter() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return store.ErrClosed
	}
	s.calls.Add(1)
	return nil
}

// Close implements [store.Store]. Items in the slow lane get
// [store.ErrClosed] at once.
func (s *Store) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.slow.close()
	s.calls.Wait()
}

// Admit implements [store.Store].
func (s *Store) Admit(ctx context.Context, limits store.Limits, items []store.AdmitItem, done func(int, store.AdmitResult)) {
	report := func(i int, r result) { done(i, r.admit()) }
	ops := make([]op, len(items))
	for i, item := range items {
		ops[i] = op{Item: item.Item, mode: item.Mode, index: i, report: report}
		if item.Mode == "" {
			ops[i].mode = wire.ModeWait
		}
	}
	s.submit(ctx, batch{kind: admit, limits: limits, ops: ops})
}

// Cancel implements [store.Store].
func (s *Store) Cancel(ctx context.Context, limits store.Limits, items []store.Item, done func(int, store.CancelResult)) {
	report := func(i int, r result) { done(i, r.cancel()) }
	s.submit(ctx, batch{kind: cancel, limits: limits, ops: newOps(items, report)})
}

// Release implements [store.Store].
func (s *Store) Release(ctx context.Context, limits store.Limits, items []store.Item, done func(int, error)) {
	report := func(i int, r result) { done(i, r.err) }
	s.submit(ctx, batch{kind: release, limits: limits, ops: newOps(items, report)})
}

func newOps(items []store.Item, report func(int, result)) []op {
	ops := make([]op, len(items))
	for i, item := range items {
		ops[i] = op{Item: item, index: i, report: report}
	}
	return ops
}

var _ store.Store = (*Store)(nil)
