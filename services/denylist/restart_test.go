package denylist

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/pkg/bus"
	"github.com/ccnq/ccnq/pkg/wire"
	"github.com/ccnq/ccnq/services/denylist/internal/store"
	"github.com/ccnq/ccnq/services/denylist/internal/store/memstore"
)

// untold is a store whose later changes nobody gets to see, as if the process
// ended before it published them.
type untold struct {
	store.Store
	above atomic.Int64
}

func (u *untold) Changes(ctx context.Context, after int64, limit int) ([]store.Change, error) {
	changes, err := u.Store.Changes(ctx, after, limit)
	for len(changes) > 0 && changes[len(changes)-1].Version > u.above.Load() {
		changes = changes[:len(changes)-1]
	}
	return changes, err
}

// TestRestartBehindAnotherBlock: what denials decided is decided again at a
// start, although a block that came after them is in the stream.
func TestRestartBehindAnotherBlock(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	d := s.start(s.config(), Deps{Memory: true})
	s.untilReady(d)
	require.NoError(t, d.Stop(s.ctx()))
	now := time.Now().UTC().Truncate(time.Microsecond)
	s.outbox("o1").deny(denial{"203.0.113.7", 3, now})
	other := wire.BlockChange{Scope: wire.ScopeIP, Target: "192.0.2.1", BlockedUntil: now.Add(time.Hour), Since: now, Version: 7}
	payload, err := json.Marshal(wire.NewEvent("change-7", wire.DenylistSource, wire.TypeBlocked, other.Target, now, other))
	require.NoError(t, err)
	require.NoError(t, bus.PublishAcked(s.ctx(), s.conn, fmt.Sprintf(wire.SubjectBlocked, wire.ScopeIP), payload, "change-7"))

	s.untilReady(s.start(s.config(), Deps{Memory: true}))
	s.until("both are blocked", func() bool {
		return s.inForce(wire.ScopeIP, "203.0.113.7") && s.inForce(wire.ScopeIP, "192.0.2.1")
	})
}

// TestRestartInTheMiddle ends a service that has published some of what it
// decided, in a flood. The next one has the blocks of the model, and the lifts;
// and the one after that finds nothing to tell.
func TestRestartInTheMiddle(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	o, m, settings := s.outbox("o1"), newModel(), s.config().Denylist.settings()
	st := &untold{Store: memstore.New(settings, nil)}
	st.above.Store(math.MaxInt64)
	d := s.start(s.config(), Deps{store: st})
	s.untilReady(d)
	flood := func(events int) {
		for range events {
			event := o.event(someDenials(20)...)
			m.apply(event.Data, settings)
			o.send(event)
		}
		last := lastDenied(s.stream())
		s.until("all is applied", func() bool {
			at, err := st.Checkpoint(s.ctx())
			return err == nil && at.Seq >= last
		})
	}
	o.deny(denial{"198.51.100.1", 3, time.Now()})
	s.until("blocked", func() bool { return s.inForce(wire.ScopeIP, "198.51.100.1") })
	flood(60)
	_, err := s.unblock(wire.UnblockRequest{Target: "198.51.100.1"})
	require.NoError(t, err)
	s.until("the lift is told", func() bool { return len(s.changes(wire.TypeUnblocked)) == 1 })
	totals, err := st.Totals(s.ctx(), time.Now())
	require.NoError(t, err)
	st.above.Store(totals.Version + 5)
	flood(60)
	totals, err = st.Totals(s.ctx(), time.Now())
	require.NoError(t, err)
	require.Greater(t, totals.Version, st.above.Load(), "something is not told")
	require.NoError(t, d.Stop(s.ctx()))

	d = s.start(s.config(), Deps{Memory: true})
	s.untilReady(d)
	s.until("the bucket is the model", func() bool { return equal(s.keys(), m.blocks) })
	ends := func() *model {
		ends := newModel()
		for _, c := range s.changes(wire.TypeBlocked) {
			if c.Target != "198.51.100.1" {
				ends.extend(c.Scope, c.Target, c.BlockedUntil)
			}
		}
		return ends
	}
	s.until("the events are the model", func() bool { return equal(ends().blocks, m.blocks) })
	s.until("the mark says that this is all", func() bool {
		mark, ok := s.mark()
		return ok && mark.Applied >= lastDenied(s.stream())
	})
	told := len(s.stream())
	require.NoError(t, d.Stop(s.ctx()))

	d = s.start(s.config(), Deps{Memory: true})
	s.untilReady(d)
	s.until("compared", func() bool { return metric(t, d, "ccnq_denylist_comparisons_total") > 0 })
	require.True(t, equal(s.keys(), m.blocks))
	require.Len(t, s.stream(), told)
	require.False(t, s.explain("198.51.100.1").Blocked)
}
