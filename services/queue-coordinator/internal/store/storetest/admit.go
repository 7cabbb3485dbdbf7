package storetest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/pkg/wire"
	"github.com/ccnq/ccnq/services/queue-coordinator/internal/store"
)

const (
	admitted = wire.Admitted
	queued   = wire.Queued
	rejected = wire.Rejected
)

func exerciseAdmit(t *testing.T, newState func(testing.TB) State) {
	t.Helper()
	t.Run("BatchDecidesInOrder", func(t *testing.T) {
		t.Parallel()
		b := setup(t, newState)
		require.Equal(t, []wire.Decision{admitted, admitted, queued, queued, rejected, rejected},
			b.admit(item(1), item(2), item(3), item(4), item(5), item(6)))
		b.requireTotals(2, 2)
	})

	t.Run("DeadlinePassed", func(t *testing.T) {
		t.Parallel()
		b := setup(t, newState)
		late := item(1)
		late.Deadline = time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC)
		results := b.admitItems(store.AdmitItem{Item: late}, store.AdmitItem{Item: item(2)})
		require.ErrorIs(t, results[0].Err, store.ErrExpired)
		require.Equal(t, store.AdmitResult{Decision: admitted}, results[1])
		b.requireTotals(1, 0)
	})

	t.Run("EmptyBatch", func(t *testing.T) {
		t.Parallel()
		b := setup(t, newState)
		require.Empty(t, b.admitItems())
		b.requireTotals(0, 0)
	})

	t.Run("ForeignEdge", func(t *testing.T) {
		t.Parallel()
		b := setup(t, newState)
		b.admit(item(1), item(2), item(3))
		for n, mode := range []wire.Mode{wire.ModeWait, wire.ModeNoWait, wire.ModeHeld} {
			results := b.admitItems(
				store.AdmitItem{Item: of("e2", item(1)), Mode: mode},
				store.AdmitItem{Item: of("e2", item(3)), Mode: mode},
				store.AdmitItem{Item: in("other", item(10+n)), Mode: mode})
			require.ErrorIs(t, results[0].Err, store.ErrForeign)
			require.ErrorIs(t, results[1].Err, store.ErrForeign)
			require.NoError(t, results[2].Err, "one bad item fails nobody else")
		}
	})

	t.Run("ForeignGroup", func(t *testing.T) {
		t.Parallel()
		b := setup(t, newState)
		b.admit(item(1), item(2), item(3))
		for _, mode := range []wire.Mode{wire.ModeWait, wire.ModeNoWait, wire.ModeHeld} {
			for _, n := range []int{1, 3} {
				r := b.admitItems(store.AdmitItem{Item: in("other", item(n)), Mode: mode})
				require.ErrorIs(t, r[0].Err, store.ErrForeign)
			}
		}
		b.requireTotals(2, 1)
	})

	t.Run("GroupsAreIndependent", func(t *testing.T) {
		t.Parallel()
		b := setup(t, newState)
		b.limits.MaxServed, b.limits.MaxPending = 1, 0
		require.Equal(t, []wire.Decision{admitted, rejected, admitted, rejected},
			b.admit(item(1), item(2), in("h", item(3)), in("h", item(4))))
	})

	t.Run("HeldGoesBeyondTheLimit", func(t *testing.T) {
		t.Parallel()
		b := setup(t, newState)
		b.limits.MaxServed = 1
		b.admit(item(1))
		require.Equal(t, []wire.Decision{admitted, admitted}, b.admitAs(wire.ModeHeld, item(2), item(3)))
		b.requireTotals(3, 0)
		require.Equal(t, []wire.Decision{queued}, b.admit(item(4)))
		b.release(item(1), item(2))
		b.requirePromoted()
		b.release(item(3))
		b.requirePromoted(4)
	})

	t.Run("HeldIsDecidedFirst", func(t *testing.T) {
		t.Parallel()
		b := setup(t, newState)
		b.limits.MaxServed = 1
		results := b.admitItems(
			store.AdmitItem{Item: item(1)}, store.AdmitItem{Item: item(2), Mode: wire.ModeHeld})
		require.Equal(t, queued, results[0].Decision)
		require.Equal(t, admitted, results[1].Decision)
	})

	t.Run("HeldMovesAWaitingRequest", func(t *testing.T) {
		t.Parallel()
		b := setup(t, newState)
		b.limits.MaxServed = 1
		b.admit(item(1), item(2), item(3))
		require.Equal(t, []wire.Decision{admitted, admitted}, b.admitAs(wire.ModeHeld, item(2), item(1)))
		b.requireTotals(2, 1)
		b.requirePromoted()
	})

	t.Run("IdempotentOnTheID", func(t *testing.T) {
		t.Parallel()
		b := setup(t, newState)
		b.limits.MaxServed, b.limits.MaxPending = 1, 1
		for range 3 {
			require.Equal(t, []wire.Decision{admitted, queued, rejected}, b.admit(item(1), item(2), item(3)))
			b.requireTotals(1, 1)
		}
		require.Equal(t, []wire.Decision{admitted, queued, rejected},
			b.admitAs(wire.ModeNoWait, item(1), item(2), item(3)))
	})

	t.Run("IdempotentWithinABatch", func(t *testing.T) {
		t.Parallel()
		b := setup(t, newState)
		b.limits.MaxServed, b.limits.MaxPending = 1, 1
		require.Equal(t, []wire.Decision{admitted, admitted, queued, queued, rejected, rejected},
			b.admit(item(1), item(1), item(2), item(2), item(3), item(3)))
		b.requireTotals(1, 1)
	})

	t.Run("LoweredLimitsEvictNobody", func(t *testing.T) {
		t.Parallel()
		b := setup(t, newState)
		b.limits.MaxServed, b.limits.MaxPending = 3, 3
		b.admit(item(1), item(2), item(3), item(4), item(5), item(6))
		b.limits.MaxServed, b.limits.MaxPending = 1, 1
		require.Equal(t, []wire.Decision{admitted, queued, rejected}, b.admit(item(3), item(6), item(7)))
		b.requireTotals(3, 3)
		b.release(item(1), item(2))
		b.requirePromoted()
		b.release(item(3))
		b.requirePromoted(4)
	})

	t.Run("NewcomerNeverOvertakes", func(t *testing.T) {
		t.Parallel()
		b := setup(t, newState)
		b.limits.MaxServed = 1
		b.admit(item(1), item(2))
		b.limits.MaxServed = 3 // raised, and nobody has been promoted yet
		require.Equal(t, []wire.Decision{queued}, b.admit(item(3)))
		require.Equal(t, []wire.Decision{rejected}, b.admitAs(wire.ModeNoWait, item(4)))
		b.requireTotals(1, 2)
	})

	t.Run("NoWaitNeverWaits", func(t *testing.T) {
		t.Parallel()
		b := setup(t, newState)
		require.Equal(t, []wire.Decision{admitted, admitted, rejected},
			b.admitAs(wire.ModeNoWait, item(1), item(2), item(3)))
		results := b.admitItems(
			store.AdmitItem{Item: item(4), Mode: wire.ModeNoWait}, store.AdmitItem{Item: item(5)})
		require.Equal(t, rejected, results[0].Decision)
		require.Equal(t, queued, results[1].Decision)
		b.requireTotals(2, 1)
	})

	t.Run("RejectionReclaimsStaleRequestsOfItsGroup", func(t *testing.T) {
		t.Parallel()
		b := setup(t, newState)
		b.limits.MaxServed, b.limits.MaxPending = 1, 1
		b.admit(of("dead", item(1)), of("dead", in("h", item(2))))
		b.clock.advance(b.limits.StaleActive / 2)
		require.Equal(t, []wire.Decision{queued, rejected}, b.admit(item(3), item(4)), "not old enough")
		b.clock.advance(b.limits.StaleActive)
		require.Equal(t, []wire.Decision{queued}, b.admit(item(4)), "3 got the place, 4 its place in line")
		b.requirePromoted(3)
		b.requireTotals(2, 1) // 3 and 2; 4
	})

	t.Run("RejectionMayPromoteItsOwnBatch", func(t *testing.T) {
		t.Parallel()
		b := setup(t, newState)
		b.limits.MaxServed, b.limits.MaxPending = 1, 1
		b.admit(of("dead", item(1)))
		b.clock.advance(b.limits.StaleActive + time.Second)
		require.Equal(t, []wire.Decision{admitted, queued, rejected}, b.admit(item(2), item(3), item(4)),
			"2 was queued until 3 was rejected and 1 reclaimed")
		b.requirePromoted(2)
		b.requireTotals(1, 1)
	})

	t.Run("RejectionSparesALiveEdge", func(t *testing.T) {
		t.Parallel()
		b := setup(t, newState)
		b.limits.MaxServed, b.limits.MaxPending = 1, 0
		b.admit(of("slow", item(1)))
		b.clock.advance(2 * b.limits.StaleActive)
		b.status(store.Status{EdgeID: "slow", Epoch: 1, Active: ids(1)})
		require.Equal(t, []wire.Decision{rejected}, b.admit(item(2)))
		b.requireTotals(1, 0)
	})
}

func exerciseFullFor(t *testing.T, newState func(testing.TB) State) {
	t.Helper()
	b := setup(t, newState)
	b.limits.MaxServed, b.limits.MaxPending = 1, 0
	fullFor := func() time.Duration {
		t.Helper()
		r := b.admitItems(store.AdmitItem{Item: item(99)})[0]
		require.Equal(t, rejected, r.Decision)
		return r.FullFor
	}
	b.admit(item(1))
	require.Zero(t, fullFor(), "full since now: nothing is known")
	b.clock.advance(time.Millisecond)
	require.Zero(t, fullFor(), "less than a millisecond is 0")
	b.clock.advance(39 * time.Millisecond)
	require.Equal(t, 20*time.Millisecond, fullFor(), "stuck for 40 ms, expected to be for 40 more")
	b.clock.advance(time.Hour)
	require.Equal(t, store.MaxFullFor, fullFor(), "bounded")

	// The hour counts as one second; seven places at 60 ms forget it.
	for n := range 30 {
		b.release(item(n + 1))
		b.admit(item(n + 2))
		b.clock.advance(60 * time.Millisecond)
	}
	b.release(item(31))
	b.admit(item(32))
	require.InDelta(t, 30, fullFor().Milliseconds(), 2, "half of the average interval")

	b.clock.advance(60 * time.Millisecond)
	b.release(item(32))
	b.clock.advance(time.Hour)
	b.admit(item(33))
	require.InDelta(t, 30, fullFor().Milliseconds(), 2, "a time with room is no interval")
}
