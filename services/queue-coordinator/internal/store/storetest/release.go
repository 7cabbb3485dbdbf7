package storetest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/pkg/wire"
	"github.com/ccnq/ccnq/services/queue-coordinator/internal/store"
)

func exerciseRelease(t *testing.T, newState func(testing.TB) State) {
	t.Helper()
	t.Run("BatchPromotesInOrderOfArrival", func(t *testing.T) {
		t.Parallel()
		b := setup(t, newState)
		b.limits.MaxPending = 4
		b.admit(item(1), item(2), item(9), item(8), item(7), item(6))
		b.release(item(1), item(2))
		b.requirePromoted(9, 8)
		b.release(item(9))
		b.requirePromoted(7)
		b.requireTotals(2, 1)
	})

	t.Run("Idempotent", func(t *testing.T) {
		t.Parallel()
		b := setup(t, newState)
		b.admit(item(1), item(2), item(3), item(4))
		b.release(item(1), item(1))
		b.requirePromoted(3)
		b.release(item(1))
		b.requirePromoted()
		b.requireTotals(2, 1)
	})

	t.Run("LeavesForeignRequestsAlone", func(t *testing.T) {
		t.Parallel()
		b := setup(t, newState)
		b.limits.MaxServed = 1
		b.admit(item(1), item(2))
		b.release(of("e2", item(1)), of("e2", item(2)), in("h", item(1)), in("h", item(2)))
		b.requirePromoted()
		b.requireTotals(1, 1)
	})

	t.Run("PromotionTellsWhatFreedThePlace", func(t *testing.T) {
		t.Parallel()
		b := setup(t, newState)
		b.limits.MaxServed = 1
		b.admit(item(1), of("e2", item(2)), in("h", item(3)), in("h", item(4)))
		received := time.Date(2030, 5, 6, 7, 8, 9, 0, time.UTC)
		one, three := item(1), in("h", item(3))
		one.Received, three.Received = received, received.Add(time.Second)
		b.release(three, one)
		require.ElementsMatch(t, []store.Promotion{
			{ID: id(2), Group: "g", EdgeID: "e2", Freed: one.Received},
			{ID: id(4), Group: "h", EdgeID: "e1", Freed: three.Received},
		}, b.takePromoted())
	})

	t.Run("UnknownMakesNoGroup", func(t *testing.T) {
		t.Parallel()
		b := setup(t, newState)
		b.release(item(1))
		totals, err := b.store.Totals(t.Context())
		require.NoError(t, err)
		require.Equal(t, store.Totals{}, totals)
	})

	t.Run("WaitingRequestLeavesTheLine", func(t *testing.T) {
		t.Parallel()
		b := setup(t, newState)
		b.limits.MaxServed = 1
		b.admit(item(1), item(2), item(3))
		b.release(item(2))
		b.requirePromoted()
		b.requireTotals(1, 1)
		b.release(item(1))
		b.requirePromoted(3)
	})

	t.Run("WhoLeavesInTheSameCallIsNotPromoted", func(t *testing.T) {
		t.Parallel()
		b := setup(t, newState)
		b.limits.MaxServed = 1
		b.admit(item(1), item(2), item(3))
		b.release(item(1), item(2))
		b.requirePromoted(3)
		b.requireTotals(1, 0)
	})
}

func exerciseCancel(t *testing.T, newState func(testing.TB) State) {
	t.Helper()
	t.Run("ActiveStays", func(t *testing.T) {
		t.Parallel()
		b := setup(t, newState)
		b.limits.MaxServed = 1
		b.admit(item(1), item(2))
		require.Equal(t, []wire.Was{wire.WasActive}, b.cancel(item(1)))
		b.requireTotals(1, 1)
	})

	t.Run("Batch", func(t *testing.T) {
		t.Parallel()
		b := setup(t, newState)
		b.limits.MaxServed = 1
		b.admit(item(1), item(2), item(3))
		require.Equal(t, []wire.Was{wire.WasPending, wire.WasGone, wire.WasActive, wire.WasGone},
			b.cancel(item(2), item(2), item(1), item(7)))
		b.release(item(1))
		b.requirePromoted(3)
	})

	t.Run("ForeignIsGone", func(t *testing.T) {
		t.Parallel()
		b := setup(t, newState)
		b.limits.MaxServed = 1
		b.admit(item(1), item(2))
		require.Equal(t, []wire.Was{wire.WasGone, wire.WasGone, wire.WasGone, wire.WasGone},
			b.cancel(of("e2", item(1)), in("h", item(1)), of("e2", item(2)), in("h", item(2))))
		b.requireTotals(1, 1)
	})

	t.Run("FreesThePlaceInLine", func(t *testing.T) {
		t.Parallel()
		b := setup(t, newState)
		b.limits.MaxServed, b.limits.MaxPending = 1, 1
		b.admit(item(1), item(2))
		require.Equal(t, []wire.Was{wire.WasPending}, b.cancel(item(2)))
		require.Equal(t, []wire.Decision{queued}, b.admit(item(3)))
	})

	t.Run("PromotesWhereThereIsRoom", func(t *testing.T) {
		t.Parallel()
		b := setup(t, newState)
		b.limits.MaxServed = 1
		b.admit(item(1), item(2), item(3))
		b.limits.MaxServed = 2
		require.Equal(t, []wire.Was{wire.WasPending}, b.cancel(item(2)))
		b.requirePromoted(3)
	})
}

func exerciseClose(t *testing.T, newState func(testing.TB) State) {
	t.Helper()
	b := setup(t, newState)
	b.admit(item(1))
	b.store.Close()
	b.store.Close()
	require.ErrorIs(t, b.admitItems(store.AdmitItem{Item: item(2)})[0].Err, store.ErrClosed)
	require.ErrorIs(t, b.tryRelease(item(1))[0], store.ErrClosed)
	results := collect(t, 1, func(done func(int, store.CancelResult)) {
		b.store.Cancel(t.Context(), b.limits, []store.Item{item(1)}, done)
	})
	require.ErrorIs(t, results[0].Err, store.ErrClosed)
	_, err := b.store.Status(t.Context(), b.limits, store.Status{EdgeID: "e1", Epoch: 1})
	require.ErrorIs(t, err, store.ErrClosed)
	_, err = b.store.ReclaimDead(t.Context(), b.limits)
	require.ErrorIs(t, err, store.ErrClosed)
	_, err = b.store.ReconcileStale(t.Context(), b.limits)
	require.ErrorIs(t, err, store.ErrClosed)
	_, err = b.store.PruneIdle(t.Context(), time.Hour)
	require.ErrorIs(t, err, store.ErrClosed)
	_, err = b.store.Totals(t.Context())
	require.ErrorIs(t, err, store.ErrClosed)
	require.ErrorIs(t, b.store.PromoteWaiting(t.Context(), b.limits), store.ErrClosed)
}
