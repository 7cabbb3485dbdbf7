package memstore

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/ccnq/ccnq/pkg/wire"
	"github.com/ccnq/ccnq/services/denylist/internal/store"
)

// Changes implements [store.Store].
func (s *Store) Changes(_ context.Context, after int64, limit int) ([]store.Change, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rest := s.changes[s.firstAfter(after):]
	return slices.Clone(rest[:min(len(rest), limit)]), nil
}

// firstAfter is the index of the first change with a version above the one
// given.
func (s *Store) firstAfter(version int64) int {
	i, _ := slices.BinarySearchFunc(s.changes, version+1, func(c store.Change, v int64) int {
		return cmp.Compare(c.Version, v)
	})
	return i
}

// SetPublished implements [store.Store].
func (s *Store) SetPublished(_ context.Context, epoch, version int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.leads(epoch); err != nil {
		return err
	}
	s.published = max(s.published, version)
	return nil
}

// RaiseVersion implements [store.Store].
func (s *Store) RaiseVersion(_ context.Context, epoch, atLeast int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.leads(epoch); err != nil {
		return err
	}
	s.raise(atLeast)
	return nil
}

// raise makes later versions greater than atLeast. Versions that nobody drew
// are published if all others are.
func (s *Store) raise(atLeast int64) {
	if atLeast <= s.version {
		return
	}
	if s.published >= s.newest() {
		s.published = atLeast
	}
	s.version = atLeast
}

// newest is the version of the newest change.
func (s *Store) newest() int64 {
	if n := len(s.changes); n > 0 {
		return max(s.changes[n-1].Version, s.published)
	}
	return s.published
}

// Renew implements [store.Store].
func (s *Store) Renew(_ context.Context, epoch int64, before time.Time, limit int) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.leads(epoch); err != nil {
		return 0, err
	}
	now, renewed := s.now(), 0
	for _, of := range s.live.blocks {
		for _, b := range of.byTarget {
			if renewed == limit {
				return renewed, nil
			}
			if b.BlockedUntil.After(now) && b.changed.Before(before) {
				s.set(store.KindBlocked, b.BlockChange, false)
				renewed++
			}
		}
	}
	return renewed, nil
}

// Totals implements [store.Store].
func (s *Store) Totals(_ context.Context, at time.Time) (store.Totals, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return store.Totals{
		IPs:     s.live.blocks[wire.ScopeIP].inForce(at),
		Ranges:  s.live.blocks[wire.ScopeRange].inForce(at),
		Version: s.newest(), Published: s.published,
	}, nil
}

func (b *blocks) inForce(at time.Time) int {
	n := 0
	for _, one := range b.byTarget {
		if one.BlockedUntil.After(at) {
			n++
		}
	}
	return n
}
