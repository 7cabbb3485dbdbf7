package memstore

import (
	"context"

	"github.com/ccnq/ccnq/pkg/wire"
	"github.com/ccnq/ccnq/services/denylist/internal/store"
	"github.com/ccnq/ccnq/services/denylist/internal/store/tally"
)

// BeginRebuild implements [store.Store].
func (s *Store) BeginRebuild(_ context.Context, epoch int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.leads(epoch); err != nil {
		return err
	}
	s.rebuild, s.rebuiltBy = newProjection(), epoch
	return nil
}

// rebuilding checks that a rebuild of the epoch has begun.
func (s *Store) rebuilding(epoch int64) error {
	if err := s.leads(epoch); err != nil {
		return err
	}
	if s.rebuild == nil || s.rebuiltBy != epoch {
		return store.ErrNoRebuild
	}
	return nil
}

// Replay implements [store.Store].
func (s *Store) Replay(_ context.Context, epoch int64, events []store.Event) (store.Result, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out store.Result
	if err := s.rebuilding(epoch); err != nil {
		return out, err
	}
	for _, e := range events {
		if e.Record != nil {
			b := tally.Collect([]store.Record{*e.Record}, s.rebuild.applied)
			s.rebuild.load(b)
			b.Count()
			s.rebuild.save(b)
			out.Add(b.Result)
			continue
		}
		if s.rebuild.replay(*e.Change) {
			out.Changes++
		}
	}
	return out, nil
}

// replay takes over a change, unless the same or a later one of the target has
// been.
func (p *projection) replay(c store.Change) bool {
	target, err := wire.ParseTarget(c.Scope, c.Target)
	if err != nil || c.Version <= p.block(c.Scope, c.Target).Version {
		return false
	}
	if c.Kind == store.KindUnblocked && !c.KeepCounts {
		p.forgive(c.Scope, target)
	}
	p.newest = max(p.newest, c.Version)
	c.BlockedUntil, c.Since = store.Instant(c.BlockedUntil), store.Instant(c.Since)
	p.put(c.BlockChange, store.Instant(c.At))
	return true
}

// FinishRebuild implements [store.Store].
func (s *Store) FinishRebuild(_ context.Context, epoch int64, at store.Checkpoint) (store.Result, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out store.Result
	if err := s.rebuilding(epoch); err != nil {
		return out, err
	}
	pending := make(map[string]bool)
	for _, c := range s.changes[s.firstAfter(s.published):] {
		pending[c.Target] = true
	}
	now := s.now()
	s.raise(s.rebuild.newest)
	for scope, rebuilt := range s.rebuild.blocks {
		for target, b := range rebuilt.byTarget {
			was := s.live.block(scope, target)
			if pending[target] || !b.BlockedUntil.After(now) {
				continue
			}
			if was.Version < b.Version {
				s.live.put(b.BlockChange, b.changed)
			} else if !was.BlockedUntil.Equal(b.BlockedUntil) {
				s.set(store.KindBlocked, b.BlockChange, false)
				out.Changes++
			}
		}
		for target, was := range s.live.blocks[scope].byTarget {
			if pending[target] || !was.BlockedUntil.After(now) || rebuilt.byTarget[target].BlockedUntil.After(now) {
				continue
			}
			b := was.BlockChange
			b.BlockedUntil, b.Reason, b.By = now, store.ReasonRebuild, store.ByDenylist
			s.set(store.KindUnblocked, b, true)
			out.Changes++
		}
	}
	for id, at := range s.live.positions {
		if _, ok := s.rebuild.positions[id]; !ok {
			s.rebuild.positions[id] = at // its events have left the stream
		}
	}
	s.rebuild.blocks = s.live.blocks
	s.rebuild.checkpoint = store.Checkpoint{Created: store.Instant(at.Created), Seq: at.Seq}
	s.live, s.rebuild = s.rebuild, nil
	return out, nil
}
