package memstore

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ccnq/ccnq/pkg/wire"
	"github.com/ccnq/ccnq/services/denylist/internal/store"
	"github.com/ccnq/ccnq/services/denylist/internal/store/tally"
)

// Store is the projection in memory. Make one with [New].
type Store struct {
	settings store.Settings
	clock    func() time.Time

	mu          sync.Mutex
	leader      leader
	live        *projection
	rebuild     *projection // nil unless one has begun
	rebuiltBy   int64       // the epoch that began it
	changes     []store.Change
	version     int64
	published   int64
	quarantined []store.Quarantined
}

type leader struct {
	holder string
	epoch  int64
	until  time.Time
}

// New returns an empty store. A nil clock is the real one.
func New(settings store.Settings, clock func() time.Time) *Store {
	if clock == nil {
		clock = time.Now
	}
	return &Store{settings: settings, clock: clock, live: newProjection()}
}

func (s *Store) now() time.Time { return store.Instant(s.clock()) }

// Lead implements [store.Store].
func (s *Store) Lead(_ context.Context, holder string, ttl time.Duration) (int64, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if s.leader.holder != holder {
		if s.leader.until.After(now) {
			return 0, false, nil
		}
		s.leader.epoch++
		s.leader.holder = holder
	}
	s.leader.until = now.Add(ttl)
	return s.leader.epoch, true, nil
}

// Resign implements [store.Store].
func (s *Store) Resign(_ context.Context, epoch int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.leads(epoch); err != nil {
		return err
	}
	s.leader.until = s.now()
	return nil
}

// leads checks the epoch. The caller holds the mutex.
func (s *Store) leads(epoch int64) error {
	if s.leader.epoch != epoch || !s.leader.until.After(s.now()) {
		return store.ErrNotLeader
	}
	return nil
}

// Checkpoint implements [store.Store].
func (s *Store) Checkpoint(context.Context) (store.Checkpoint, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.live.checkpoint, nil
}

// Apply implements [store.Store].
func (s *Store) Apply(_ context.Context, epoch int64, expected store.Checkpoint, batch store.Batch) (store.Result, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.leads(epoch); err != nil {
		return store.Result{}, err
	}
	if at := s.live.checkpoint; !at.Same(expected) {
		return store.Result{}, fmt.Errorf("%w: it is %d, not %d", store.ErrCheckpoint, at.Seq, expected.Seq)
	}
	if err := batch.Check(s.live.checkpoint); err != nil {
		return store.Result{}, err
	}
	b := tally.Collect(batch.Records, s.live.applied)
	s.live.load(b)
	blocks := b.Decide(s.settings)
	s.live.save(b)
	for _, due := range blocks {
		next := s.live.block(due.Scope, due.Target)
		if tally.Extend(&next, due.Runs, s.settings.BlockFor(due.Scope)) {
			s.set(store.KindBlocked, next, false)
			b.Result.Changes++
		}
	}
	s.live.checkpoint.Seq = batch.Next.Seq
	for _, q := range batch.Quarantined {
		q.Payload = slices.Clone(q.Payload[:min(len(q.Payload), store.MaxPayload)])
		s.quarantined = append(s.quarantined, q)
	}
	return b.Result, nil
}

// Reset implements [store.Store].
func (s *Store) Reset(_ context.Context, epoch int64, created time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.leads(epoch); err != nil {
		return err
	}
	s.live.checkpoint = store.Checkpoint{Created: store.Instant(created)}
	return nil
}

// Quarantined returns the messages that were moved aside, for tests.
func (s *Store) Quarantined() []store.Quarantined {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.quarantined)
}

// set makes a block what it is to be, and notes the change. The caller holds
// the mutex.
func (s *Store) set(kind store.Kind, b wire.BlockChange, keepCounts bool) wire.BlockChange {
	b = s.note(kind, b, keepCounts)
	s.live.put(b, s.now())
	return b
}

// note adds a change and returns it with its version.
func (s *Store) note(kind store.Kind, b wire.BlockChange, keepCounts bool) wire.BlockChange {
	s.version++
	b.Version = s.version
	change := store.Change{Kind: kind, At: s.now(), BlockChange: b}
	change.KeepCounts = keepCounts
	s.changes = append(s.changes, change)
	return b
}

var _ store.Store = (*Store)(nil)
