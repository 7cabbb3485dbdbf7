package memstore

import (
	"context"

	"github.com/ccnq/ccnq/services/denylist/internal/store"
	"github.com/ccnq/ccnq/services/denylist/internal/store/tally"
)

// Prune implements [store.Store]. It removes everything at once.
func (s *Store) Prune(context.Context) (store.Pruned, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out store.Pruned
	now := s.now()
	old := now.Add(-s.settings.PruneRetention)
	oldest := tally.OldestDay(now, s.settings)
	for ip := range s.live.addresses {
		out.Counts += s.live.remove(ip, func(c *count) bool { return c.day < oldest })
	}
	for scope, of := range s.live.blocks {
		for target, b := range of.byTarget {
			if !b.BlockedUntil.After(old) {
				s.live.drop(scope, target)
				out.Blocks++
			}
		}
	}
	for len(s.changes) > 0 && s.changes[0].Version <= s.published && !s.changes[0].At.After(old) {
		s.changes = s.changes[1:]
		out.Changes++
	}
	for id, p := range s.live.positions {
		if p.Seen.Before(now.Add(-store.PositionRetention)) {
			delete(s.live.positions, id)
			out.Positions++
		}
	}
	for len(s.quarantined) > 0 && (len(s.quarantined) > store.MaxQuarantined || !s.quarantined[0].At.After(old)) {
		s.quarantined = s.quarantined[1:]
		out.Quarantined++
	}
	return out, nil
}
