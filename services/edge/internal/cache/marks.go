package cache

import (
	"sync"
	"time"

	"github.com/ccnq/ccnq/services/edge/internal/cache/rfc9111"
)

const (
	// markShards and maxMarks bound what is remembered: maxMarks of each shard.
	markShards = 64
	maxMarks   = 1024
)

// marks remembers resources for a short time. When there are too many, some are
// forgotten before their time. It is safe for concurrent use.
type marks struct {
	shard [markShards]struct {
		mu    sync.Mutex
		until map[rfc9111.Key]time.Time
	}
}

func (m *marks) set(key rfc9111.Key, until time.Time) {
	s := &m.shard[key[0]%markShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.until == nil {
		s.until = make(map[rfc9111.Key]time.Time)
	}
	if _, renewed := s.until[key]; !renewed && len(s.until) >= maxMarks {
		for old := range s.until {
			delete(s.until, old)
			break
		}
	}
	s.until[key] = until
}

func (m *marks) has(key rfc9111.Key, now time.Time) bool {
	s := &m.shard[key[0]%markShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	until, ok := s.until[key]
	if ok && !now.Before(until) {
		delete(s.until, key)
		ok = false
	}
	return ok
}

func (m *marks) remove(key rfc9111.Key) {
	s := &m.shard[key[0]%markShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.until, key)
}

// count returns how many resources are remembered, those whose time is over and
// that nobody asked about included.
func (m *marks) count() int {
	n := 0
	for i := range m.shard {
		s := &m.shard[i]
		s.mu.Lock()
		n += len(s.until)
		s.mu.Unlock()
	}
	return n
}
