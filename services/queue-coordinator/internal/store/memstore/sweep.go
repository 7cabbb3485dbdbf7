package memstore

import (
	"context"
	"time"

	"github.com/ccnq/ccnq/services/queue-coordinator/internal/store"
)

// PromoteWaiting implements [store.Store].
func (s *Store) PromoteWaiting(_ context.Context, limits store.Limits) error {
	c := s.begin(limits)
	defer c.end()
	if c.closed {
		return store.ErrClosed
	}
	for _, g := range s.groups {
		c.promote(g, time.Time{})
	}
	return nil
}

// ReclaimDead implements [store.Store].
func (s *Store) ReclaimDead(_ context.Context, limits store.Limits) (store.Swept, error) {
	c := s.begin(limits)
	defer c.end()
	if c.closed {
		return store.Swept{}, store.ErrClosed
	}
	var swept store.Swept
	for id, e := range s.edges {
		if e.live(c.now) {
			continue
		}
		swept.Freed += len(e.requests)
		for r := range e.requests {
			c.free(r, time.Time{})
		}
		delete(s.edges, id)
	}
	return swept, nil
}

// ReconcileStale implements [store.Store]. Counts cannot be wrong here and
// every request has an edge, so it only frees.
func (s *Store) ReconcileStale(_ context.Context, limits store.Limits) (store.Swept, error) {
	c := s.begin(limits)
	defer c.end()
	if c.closed {
		return store.Swept{}, store.ErrClosed
	}
	var swept store.Swept
	for _, g := range s.groups {
		swept.Freed += c.reclaim(g)
	}
	return swept, nil
}

// PruneIdle implements [store.Store].
func (s *Store) PruneIdle(_ context.Context, age time.Duration) (int, error) {
	c := s.begin(store.Limits{})
	defer c.end()
	if c.closed {
		return 0, store.ErrClosed
	}
	pruned := 0
	oldest := c.now.Add(-age)
	for key, g := range s.groups {
		if g.active.n == 0 && g.waiting.n == 0 && g.lastActive.Before(oldest) {
			delete(s.groups, key)
			pruned++
		}
	}
	return pruned, nil
}

// Totals implements [store.Store].
func (s *Store) Totals(context.Context) (store.Totals, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return store.Totals{}, store.ErrClosed
	}
	t := store.Totals{Groups: len(s.groups)}
	for _, g := range s.groups {
		t.Active += g.active.n
		t.Waiting += g.waiting.n
	}
	return t, nil
}
