package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/pkg/wire"
	"github.com/ccnq/ccnq/services/denylist/internal/store"
)

func exerciseBlocks(t *testing.T, newState func(testing.TB) State) {
	t.Helper()
	state := newState(t)
	const ip = "203.0.113.7"
	t.Run("by an operator", func(t *testing.T) {
		b := setup(t, state)
		got := b.block(ip, time.Hour)
		want := wire.BlockChange{
			Scope: wire.ScopeIP, Target: ip, BlockedUntil: noon.Add(time.Hour), Since: noon,
			Version: got.Version, Reason: "abuse", By: "an operator",
		}
		require.Equal(t, want, got)
		require.Positive(t, got.Version)
		require.Equal(t, []wire.BlockChange{want}, b.list(wire.ScopeIP))
	})
	t.Run("a shorter one changes nothing, a longer one extends", func(t *testing.T) {
		b := setup(t, state)
		first := b.block(ip, time.Hour)
		require.Equal(t, first, b.block(ip, time.Minute))
		b.clock.set(noon.Add(time.Minute))
		longer := b.block(ip, 2*time.Hour)
		require.Greater(t, longer.Version, first.Version)
		require.Equal(t, noon, longer.Since)
		require.Equal(t, noon.Add(2*time.Hour+time.Minute), longer.BlockedUntil)
	})
	t.Run("denials extend an operator's block and keep its beginning", func(t *testing.T) {
		b := setup(t, state)
		b.block("198.51.100.0/24", time.Hour)
		for host := range 26 {
			b.deny(fmt.Sprintf("198.51.100.%d", host), 1, noon.Add(time.Minute))
		}
		got := b.list(wire.ScopeRange)[0]
		require.Equal(t, noon, got.Since)
		require.Equal(t, noon.Add(24*time.Hour+time.Minute), got.BlockedUntil)
		require.Equal(t, []string{store.ReasonDenials, store.ByDenylist}, []string{got.Reason, got.By})
	})
	t.Run("lifting forgives", func(t *testing.T) {
		b := setup(t, state)
		for day := range 5 {
			b.deny(ip, 25, days(day))
		}
		b.clock.set(days(4).Add(time.Hour))
		lifted := b.unblock(ip, false)
		require.True(t, lifted.Lifted)
		require.Equal(t, 5, lifted.Forgiven)
		require.Empty(t, b.holding(ip))
		b.deny(ip, 25, days(5))
		require.Empty(t, b.holding(ip))
		require.Equal(t, map[string]int64{"2030-03-15": 25}, b.count(ip))
	})
	t.Run("lifting with the counts kept", func(t *testing.T) {
		b := setup(t, state)
		for day := range 5 {
			b.deny(ip, 25, days(day))
		}
		b.clock.set(days(4).Add(time.Hour))
		require.Equal(t, 0, b.unblock(ip, true).Forgiven)
		require.Empty(t, b.holding(ip))
		b.deny(ip, 1, days(4).Add(2*time.Hour))
		require.Equal(t, []string{ip}, b.holding(ip))
	})
	t.Run("lifting a range forgives its addresses, whatever range they count for", func(t *testing.T) {
		b := setup(t, state)
		for host := range 26 {
			b.deny(fmt.Sprintf("198.51.100.%d", host), 1, noon)
		}
		b.deny(ip, 1, noon)
		require.Equal(t, store.Lifted{Forgiven: 16, Version: 2}, b.unblock("198.51.100.0/28", false))
		lifted := b.unblock("198.51.100.0/24", false)
		require.True(t, lifted.Lifted)
		require.Equal(t, 10, lifted.Forgiven)
		b.deny("198.51.100.0", 1, noon)
		require.Empty(t, b.holding("198.51.100.0"))
		require.Equal(t, map[string]int64{"2030-03-10": 1}, b.count(ip))
	})
	t.Run("lifting what is not blocked", func(t *testing.T) {
		b := setup(t, state)
		require.Equal(t, store.Lifted{}, b.unblock(ip, false))
		require.Empty(t, b.changes(0))
		b.deny(ip, 1, noon)
		require.Equal(t, store.Lifted{}, b.unblock(ip, true))
		lifted := b.unblock(ip, false)
		require.False(t, lifted.Lifted)
		require.Equal(t, 1, lifted.Forgiven)
		changes := b.changes(0)
		require.Len(t, changes, 1, "forgiving must reach the stream")
		require.Equal(t, store.KindUnblocked, changes[0].Kind)
		require.False(t, changes[0].KeepCounts)
		require.Equal(t, lifted.Version, changes[0].Version)
	})
	t.Run("blocked and lifted in one instant", func(t *testing.T) {
		b := setup(t, state)
		b.block(ip, time.Hour)
		require.True(t, b.unblock(ip, false).Lifted)
		require.Empty(t, b.holding(ip))
		require.False(t, b.unblock(ip, false).Lifted)
		b.block(ip, time.Hour)
		require.Equal(t, []string{ip}, b.holding(ip))
	})
	t.Run("pages", func(t *testing.T) {
		b := setup(t, state)
		for _, target := range []string{"10.0.0.9", "10.0.0.10", "2001:db8::1", "9.0.0.1", "10.0.0.0/8", "10.0.0.0/9"} {
			b.block(target, time.Hour)
		}
		b.block("10.0.0.11", time.Second)
		b.clock.set(noon.Add(time.Minute))
		page := func(l store.Listing) []string {
			blocks, err := b.store.Blocks(t.Context(), l)
			require.NoError(t, err)
			var targets []string
			for _, block := range blocks {
				targets = append(targets, block.Target)
			}
			return targets
		}
		require.Equal(t, []string{"10.0.0.10", "10.0.0.11"}, page(store.Listing{Scope: wire.ScopeIP, Limit: 2}))
		require.Equal(t, []string{"10.0.0.10", "10.0.0.9"}, page(store.Listing{Scope: wire.ScopeIP, Limit: 2, InForceAt: b.clock.read()}))
		require.Equal(t, []string{"2001:db8::1", "9.0.0.1"}, page(store.Listing{Scope: wire.ScopeIP, Limit: 9, After: "10.0.0.9"}))
		require.Equal(t, []string{"10.0.0.0/8", "10.0.0.0/9"}, page(store.Listing{Scope: wire.ScopeRange, Limit: 9}))
		require.Empty(t, page(store.Listing{Scope: wire.ScopeRange, Limit: 9, After: "x\x00\xff"}))
		totals, err := b.store.Totals(t.Context(), b.clock.read())
		require.NoError(t, err)
		require.Equal(t, []int{4, 2}, []int{totals.IPs, totals.Ranges})
	})
}
