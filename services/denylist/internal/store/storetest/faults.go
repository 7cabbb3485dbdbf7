package storetest

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/pkg/wire"
	"github.com/ccnq/ccnq/services/denylist/internal/store"
)

// exerciseFaults are the public fault cases as far as they concern the store.
func exerciseFaults(t *testing.T, newState func(testing.TB) State) {
	t.Helper()
	state := newState(t)
	t.Run("TestF15_CleaningKeepsLiveState", func(t *testing.T) {
		b := setup(t, state)
		const busy = "203.0.113.7"
		var once []wire.DeniedAddress
		for i := range 1000 {
			once = append(once, denied(fmt.Sprintf("10.%d.%d.1", i/250, i%250), 1, noon))
		}
		b.apply(b.record(once...))
		for day := range 5 {
			b.clock.set(days(day))
			b.deny(busy, 24, days(day))
			prune(b)
			b.deny(busy, 1, days(day).Add(time.Second))
			prune(b)
		}
		require.Equal(t, []string{busy}, b.holding(busy), "the counts survived every sweep")
		for _, day := range []int{10, 20, 30} {
			b.clock.set(days(day))
			prune(b)
			require.Equal(t, []string{busy}, b.holding(busy))
		}
		b.clock.set(days(44).Add(-12 * time.Hour))
		require.Equal(t, 1001, prune(b).Counts, "a day that left the window 30 days ago")
		require.Empty(t, b.count("10.0.0.1"))
		require.Len(t, b.count(busy), 4)
	})
	t.Run("TestF18_EscalationThatRunsAway", func(t *testing.T) {
		state.Reset()
		for _, s := range []store.Settings{
			{BlockDays: 36_500, RangeBlockHours: 1_000_000},
			{BlockDays: math.MaxInt, RangeBlockHours: math.MaxInt},
			{BlockDays: math.MinInt, RangeBlockHours: -1},
			{BlockDays: 1, RangeBlockHours: 1},
		} {
			state.Reset()
			s.DailyThreshold, s.WindowDays, s.ExceedThreshold, s.PruneRetention = 1, math.MaxInt, 1, time.Hour
			b := newBundle(t, state, s)
			for day := range 3 {
				b.deny("203.0.113.7", 1, days(day))
			}
			for _, scope := range []wire.Scope{wire.ScopeIP, wire.ScopeRange} {
				ends := b.list(scope)
				require.Len(t, ends, 1)
				want := days(2).Add(min(max(s.BlockFor(scope), 0), wire.MaxBlock))
				require.Equal(t, want, ends[0].BlockedUntil, "%+v", s)
				require.False(t, ends[0].BlockedUntil.Before(ends[0].Since))
			}
			// The same denial again, and an old one: nothing becomes shorter.
			before := b.blocks(wire.ScopeIP)
			b.deny("203.0.113.7", 1, days(1))
			require.Equal(t, before, b.blocks(wire.ScopeIP))
		}
		// Events from the ends of the calendar.
		for _, at := range []time.Time{
			time.Date(1, 1, 2, 0, 0, 0, 0, time.UTC), time.Date(9999, 12, 30, 0, 0, 0, 0, time.UTC),
		} {
			state.Reset()
			b := newBundle(t, state, store.Settings{
				DailyThreshold: 1, WindowDays: 14, ExceedThreshold: 1, BlockDays: math.MaxInt, RangeBlockHours: math.MaxInt,
			})
			b.deny("203.0.113.7", 1, at)
			b.deny("203.0.113.7", 1, at)
			require.Equal(t, map[string]int64{at.Format(time.DateOnly): 2}, b.count("203.0.113.7"))
			require.Equal(t, map[string]time.Time{"203.0.113.7": store.End(at, wire.MaxBlock)}, b.blocks(wire.ScopeIP))
		}
		state.Reset()
		b := newBundle(t, state, store.DefaultSettings())
		require.Equal(t, noon.Add(wire.MaxBlock), b.block("203.0.113.7", math.MaxInt64).BlockedUntil)
		b.clock.set(time.Date(9998, 1, 1, 0, 0, 0, 0, time.UTC))
		require.Equal(t, store.MaxEnd, b.block("203.0.113.8", wire.MaxBlock).BlockedUntil)
	})
	t.Run("TestF19_TwoBlocksForOneAddress", func(t *testing.T) {
		state.Reset()
		b := newBundle(t, state, store.DefaultSettings())
		at := func(hour, minute int) time.Time { return time.Date(2030, 3, 10, hour, minute, 0, 0, time.UTC) }
		const ip, group = "198.51.100.7", "198.51.100.0/24"
		b.clock.set(at(8, 0))
		b.block(ip, 4*time.Hour)
		b.block(group, 3*time.Hour)
		b.block(ip, 2*time.Hour)
		require.Equal(t, []string{ip, group}, b.holding(ip), "each block that holds it")
		b.clock.set(at(9, 0))
		require.True(t, b.unblock(group, false).Lifted)
		b.clock.set(at(9, 30))
		fresh := state.Open(store.DefaultSettings(), b.clock.read)
		got, err := fresh.Explain(t.Context(), denied(ip, 1, noon).IP)
		require.NoError(t, err)
		require.Len(t, got.Blocks, 1)
		require.Equal(t, at(12, 0), got.Blocks[0].BlockedUntil)
		b.clock.set(at(12, 0))
		require.Empty(t, b.holding(ip))
	})
}

// prune prunes until nothing is left to prune.
func prune(b *bundle) store.Pruned {
	b.t.Helper()
	var all store.Pruned
	for {
		got, err := b.store.Prune(b.t.Context())
		require.NoError(b.t, err)
		all.Counts += got.Counts
		all.Blocks += got.Blocks
		all.Changes += got.Changes
		all.Positions += got.Positions
		all.Quarantined += got.Quarantined
		if !got.More {
			return all
		}
	}
}

func exercisePrune(t *testing.T, newState func(testing.TB) State) {
	t.Helper()
	state := newState(t)
	b := setup(t, state)
	b.deny("203.0.113.7", 1, noon)
	b.block("203.0.113.7", time.Hour)
	b.block("198.51.100.0/24", time.Hour)
	last := b.block("203.0.113.8", 10_000*time.Hour).Version
	_, err := b.store.Apply(t.Context(), b.epoch, b.at, store.Batch{
		Quarantined: []store.Quarantined{{Seq: 2, At: noon, Subject: "s", Why: "w"}},
		Next:        store.Checkpoint{Created: created, Seq: 2},
	})
	require.NoError(t, err)

	b.clock.set(noon.Add(30*24*time.Hour - time.Microsecond))
	require.Equal(t, store.Pruned{}, prune(b))
	b.clock.set(noon.Add(30 * 24 * time.Hour))
	require.Equal(t, store.Pruned{Quarantined: 1}, prune(b), "the changes have not been published")
	require.NoError(t, b.store.SetPublished(t.Context(), b.epoch, last))
	require.Equal(t, store.Pruned{Changes: 3}, prune(b))
	totals, err := b.store.Totals(t.Context(), b.clock.read())
	require.NoError(t, err)
	require.Equal(t, store.Totals{IPs: 1, Version: last, Published: last}, totals)

	b.clock.set(noon.Add(30*24*time.Hour + time.Hour))
	require.Equal(t, store.Pruned{Blocks: 2}, prune(b))
	require.Empty(t, b.changes(last), "forgetting a block that is over is no change")
	b.clock.set(days(44).Add(-12*time.Hour - time.Microsecond))
	require.Equal(t, store.Pruned{}, prune(b))
	b.clock.set(days(44).Add(-12 * time.Hour))
	require.Equal(t, store.Pruned{Counts: 1}, prune(b))
	b.clock.set(noon.Add(store.PositionRetention + time.Microsecond))
	require.Equal(t, store.Pruned{Positions: 1}, prune(b))
}
