package memstore

// LoseBlocks removes all blocks without a trace.
func (s *Store) LoseBlocks() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.live.blocks = newProjection().blocks
}
