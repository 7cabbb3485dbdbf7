package memstore_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ccnq/ccnq/services/denylist/internal/store"
	"github.com/ccnq/ccnq/services/denylist/internal/store/memstore"
	"github.com/ccnq/ccnq/services/denylist/internal/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestStore(t *testing.T) {
	t.Parallel()
	storetest.Exercise(t, func(testing.TB) storetest.State { return &state{} })
}

// state is one store that every Open returns.
type state struct{ store *memstore.Store }

func (s *state) Open(settings store.Settings, clock func() time.Time) store.Store {
	if s.store == nil {
		s.store = memstore.New(settings, clock)
	}
	return s.store
}

func (s *state) Quarantined() []store.Quarantined { return s.store.Quarantined() }

func (s *state) LoseBlocks() { s.store.LoseBlocks() }

func (s *state) Reset() { s.store = nil }
