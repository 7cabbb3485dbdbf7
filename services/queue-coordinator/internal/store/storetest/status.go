package storetest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/pkg/wire"
	"github.com/ccnq/ccnq/services/queue-coordinator/internal/store"
)

func exerciseStatus(t *testing.T, newState func(testing.TB) State) {
	t.Helper()
	const stale = 2 * time.Second

	t.Run("FreesWhatIsNotListedAndPromotes", func(t *testing.T) {
		t.Parallel()
		b := setup(t, newState)
		b.admit(item(1), item(2), item(3), of("e2", item(4)))
		b.clock.advance(stale + time.Second)
		r := b.status(store.Status{EdgeID: "e1", Epoch: 1, Stale: stale, Active: ids(2)})
		require.Equal(t, 2, r.Freed, "the active 1 and the waiting 3")
		b.requirePromoted(4)
		b.requireTotals(2, 0)
	})

	t.Run("ListedAsActiveButWaiting", func(t *testing.T) {
		t.Parallel()
		b := setup(t, newState)
		b.limits.MaxServed = 1
		b.admit(item(1), item(2))
		r := b.status(store.Status{EdgeID: "e1", Epoch: 1, Active: ids(1, 2)})
		require.Equal(t, store.StatusResult{Unknown: ids(2)}, r, "the edge is to assert it")
	})

	t.Run("OlderEpochFreesNothing", func(t *testing.T) {
		t.Parallel()
		b := setup(t, newState)
		b.admit(item(1))
		b.clock.advance(stale + time.Second)
		b.status(store.Status{EdgeID: "e1", Epoch: 7, Stale: stale, Active: ids(1)})
		require.Equal(t, store.StatusResult{}, b.status(store.Status{EdgeID: "e1", Epoch: 6, Stale: stale}))
		b.requireTotals(1, 0)
		require.Equal(t, 1, b.status(store.Status{EdgeID: "e1", Epoch: 7, Stale: stale}).Freed,
			"parts of one status have one epoch")
		b.requireTotals(0, 0)
	})

	t.Run("Parts", func(t *testing.T) {
		t.Parallel()
		b := setup(t, newState)
		b.limits.MaxServed = 4
		b.admit(item(4), item(5), item(6), item(7))
		b.clock.advance(stale + time.Second)
		r := b.status(store.Status{EdgeID: "e1", Epoch: 1, Stale: stale, Part: 1, Parts: 2, Active: ids(5)})
		require.Equal(t, store.StatusResult{Freed: 1}, r, "7 only: 4 and 6 are of the other part")
		r = b.status(store.Status{EdgeID: "e1", Epoch: 1, Stale: stale, Part: 0, Parts: 2, Active: ids(4)})
		require.Equal(t, store.StatusResult{Freed: 1}, r)
		b.requireTotals(2, 0)
	})

	t.Run("Promoted", func(t *testing.T) {
		t.Parallel()
		b := setup(t, newState)
		b.limits.MaxServed = 1
		b.admit(item(1), item(2), item(3))
		b.release(item(1))
		r := b.status(store.Status{EdgeID: "e1", Epoch: 1, Waiting: ids(2, 3)})
		require.Equal(t, store.StatusResult{Promoted: ids(2)}, r)
	})

	t.Run("RenewsTheLease", func(t *testing.T) {
		t.Parallel()
		b := setup(t, newState)
		b.admit(item(1))
		for epoch := range int64(5) {
			b.clock.advance(b.limits.Lease - time.Second)
			b.status(store.Status{EdgeID: "e1", Epoch: epoch, Active: ids(1)})
			require.Zero(t, b.reclaimDead())
		}
		b.clock.advance(b.limits.Lease)
		require.Equal(t, store.Swept{Freed: 1}, b.reclaimDead())
	})

	t.Run("SetsTheLengthOfTheLease", func(t *testing.T) {
		t.Parallel()
		b := setup(t, newState)
		b.status(store.Status{EdgeID: "e1", Epoch: 1, Lease: time.Minute})
		b.admit(item(1))
		b.clock.advance(time.Minute - time.Second)
		require.Zero(t, b.reclaimDead())
		b.admit(item(1)) // renews it for a minute, not for the default
		b.clock.advance(time.Minute - time.Second)
		require.Zero(t, b.reclaimDead())
		b.clock.advance(time.Second)
		require.Equal(t, store.Swept{Freed: 1}, b.reclaimDead())
	})

	t.Run("SparesWhatIsYoung", func(t *testing.T) {
		t.Parallel()
		b := setup(t, newState)
		b.limits.MaxServed = 1
		b.admit(item(1), item(2))
		b.clock.advance(stale)
		require.Zero(t, b.status(store.Status{EdgeID: "e1", Epoch: 1, Stale: stale}))
		require.Zero(t, b.status(store.Status{EdgeID: "e1", Epoch: 2}), "0 frees nothing")
		b.requireTotals(1, 1)
	})

	t.Run("Unknown", func(t *testing.T) {
		t.Parallel()
		b := setup(t, newState)
		b.admit(item(1), item(2), of("e2", item(3)), of("e2", item(4)))
		r := b.status(store.Status{EdgeID: "e2", Epoch: 1, Waiting: ids(2, 3, 4, 5), Active: ids(1, 6)})
		require.ElementsMatch(t, ids(2, 5, 1, 6), r.Unknown, "another edge's requests are unknown too")
		require.Empty(t, r.Promoted)
	})
}

func exerciseSweep(t *testing.T, newState func(testing.TB) State) {
	t.Helper()
	t.Run("PromoteWaitingAfterARaisedLimit", func(t *testing.T) {
		t.Parallel()
		b := setup(t, newState)
		b.limits.MaxServed = 1
		b.admit(item(1), item(2), item(3), in("h", item(4)), in("h", item(5)), in("i", item(6)))
		b.limits.MaxServed = 2
		require.NoError(t, b.store.PromoteWaiting(t.Context(), b.limits))
		require.ElementsMatch(t, []store.Promotion{
			{ID: id(2), Group: "g", EdgeID: "e1"}, {ID: id(5), Group: "h", EdgeID: "e1"},
		}, b.takePromoted())
		b.requireTotals(5, 1)
	})

	t.Run("PruneIdleForgetsOnlyTheIdle", func(t *testing.T) { // F15, the queue's part
		t.Parallel()
		b := setup(t, newState)
		b.admit(item(1), in("h", item(2)), in("i", item(3)))
		b.release(in("h", item(2)), in("i", item(3)))
		b.clock.advance(time.Hour)
		b.admit(in("i", item(4)))
		b.release(in("i", item(4)))
		b.clock.advance(time.Minute)
		pruned, err := b.store.PruneIdle(t.Context(), 30*time.Minute)
		require.NoError(t, err)
		require.Equal(t, 1, pruned, "h: g is in use, i was used lately")
		totals, err := b.store.Totals(t.Context())
		require.NoError(t, err)
		require.Equal(t, store.Totals{Active: 1, Groups: 2}, totals)
		require.Equal(t, []wire.Decision{admitted}, b.admit(in("h", item(5))))
	})

	t.Run("ReclaimDeadFreesAllOfADeadEdge", func(t *testing.T) {
		t.Parallel()
		b := setup(t, newState)
		b.admit(item(1), item(2), of("e2", item(3)), of("e2", item(4)))
		b.clock.advance(b.limits.Lease / 2)
		b.status(store.Status{EdgeID: "e2", Epoch: 1})
		b.clock.advance(b.limits.Lease / 2)
		require.Equal(t, store.Swept{Freed: 2}, b.reclaimDead())
		b.requirePromoted(3, 4)
		b.requireTotals(2, 0)
		require.Zero(t, b.reclaimDead())
	})

	t.Run("ReclaimDeadPromotesNobodyOfTheDead", func(t *testing.T) {
		t.Parallel()
		b := setup(t, newState)
		b.limits.MaxServed = 1
		b.admit(item(1), item(2), item(3))
		b.clock.advance(b.limits.Lease)
		require.Equal(t, store.Swept{Freed: 3}, b.reclaimDead())
		b.requirePromoted()
		b.requireTotals(0, 0)
	})

	t.Run("AnyMessageRenewsTheLease", func(t *testing.T) {
		t.Parallel()
		for name, message := range map[string]func(*bundle){
			"Admit":   func(b *bundle) { b.admit(item(1)) },
			"Cancel":  func(b *bundle) { b.cancel(item(7)) },
			"Release": func(b *bundle) { b.release(item(7)) },
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				b := setup(t, newState)
				b.admit(item(1))
				b.clock.advance(b.limits.Lease - time.Second)
				message(b)
				b.clock.advance(b.limits.Lease - time.Second)
				require.Zero(t, b.reclaimDead())
				b.requireTotals(1, 0)
				b.clock.advance(time.Second)
				require.Equal(t, store.Swept{Freed: 1}, b.reclaimDead())
			})
		}
	})

	t.Run("ReconcileFreesTheAbandoned", func(t *testing.T) {
		t.Parallel()
		b := setup(t, newState)
		b.limits.MaxServed = 1
		b.admit(item(1), of("e2", item(2)), of("e2", in("h", item(3))))
		b.clock.advance(b.limits.StaleActive + time.Second)
		b.status(store.Status{EdgeID: "e2", Epoch: 1})
		require.Equal(t, store.Swept{Freed: 1}, b.reconcile(), "e2 lives, so its long download stays")
		b.requirePromoted(2)
		b.requireTotals(2, 0)
	})

	t.Run("ReconcileSparesWhatIsYoung", func(t *testing.T) {
		t.Parallel()
		b := setup(t, newState)
		b.admit(item(1), item(2), item(3))
		b.clock.advance(b.limits.StaleActive)
		require.Zero(t, b.reconcile())
		b.requireTotals(2, 1)
	})
}
