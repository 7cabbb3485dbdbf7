package memstore

import (
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ccnq/ccnq/services/queue-coordinator/internal/store"
	"github.com/ccnq/ccnq/services/queue-coordinator/internal/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestStore(t *testing.T) {
	t.Parallel()
	storetest.Exercise(t, func(testing.TB) storetest.State { return &state{} })
}

// state is one store that every Open returns: in memory, two coordinators are
// two callers of one store.
type state struct{ store *Store }

func (s *state) Open(clock func() time.Time, promoted store.PromotedFunc) store.Store {
	if s.store == nil {
		s.store = New(clock, promoted)
	}
	return s.store
}

func (s *state) Reset() { s.store = nil }

// Check compares the lines and sets of requests with each other.
func (s *state) Check() error {
	m := s.store
	m.mu.Lock()
	defer m.mu.Unlock()
	inLines, ofEdges := 0, 0
	for key, g := range m.groups {
		for _, l := range []*line{&g.active, &g.waiting} {
			n := 0
			for r := l.first; r != nil; r = r.next {
				if m.requests[r.id] != r || r.in != l || r.group != g {
					return fmt.Errorf("request %v stands in a line of %s but is known otherwise", r.id, key)
				}
				n++
			}
			if n != l.n {
				return fmt.Errorf("a line of %s has %d requests and counts %d", key, n, l.n)
			}
			inLines += n
		}
		if g.freed != 0 {
			return fmt.Errorf("group %s was not settled", key)
		}
	}
	for _, e := range m.edges {
		ofEdges += len(e.requests)
	}
	if len(m.requests) != inLines || len(m.requests) != ofEdges {
		return fmt.Errorf("%d requests, %d in lines, %d of edges", len(m.requests), inLines, ofEdges)
	}
	return nil
}
