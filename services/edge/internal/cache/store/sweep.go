package store

import "time"

// sweeper removes entries whose time is over, at every interval, and what
// purges match. It holds no lock for long and reads with short transactions.
func (s *Store[H]) sweeper() {
	tick := time.NewTicker(s.opts.SweepInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.sweepExpired()
		case <-s.sweep:
		case <-s.ending:
			return
		}
		v := s.volume.Load()
		if v == nil {
			s.purges.done.Store(s.purges.gen.Load()) // there is nothing to purge
			continue
		}
		if s.sweepPurges(v) {
			s.wake(s.ring)
		}
	}
}

// sweepExpired removes entries whose time is over.
func (s *Store[H]) sweepExpired() {
	v := s.volume.Load()
	if v == nil {
		return
	}
	now := s.opts.Now()
	n := v.index.scan(func(e *slot) bool { return e.expired(now) })
	s.metrics.evicted(evictedExpired, n)
	if n > 0 {
		s.wake(s.ring)
	}
}
