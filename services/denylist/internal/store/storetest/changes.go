package storetest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/services/denylist/internal/store"
)

func exerciseChanges(t *testing.T, newState func(testing.TB) State) {
	t.Helper()
	state := newState(t)
	t.Run("one for each change, in order", func(t *testing.T) {
		b := setup(t, state)
		first := b.block("203.0.113.7", time.Hour)
		b.block("203.0.113.7", time.Minute) // changes nothing
		second := b.block("198.51.100.0/24", time.Hour)
		b.clock.set(noon.Add(time.Minute))
		lifted := b.unblock("203.0.113.7", true)
		got := b.changes(0)
		require.Len(t, got, 3)
		require.Equal(t, store.Change{Kind: store.KindBlocked, At: noon, BlockChange: first}, got[0])
		require.Equal(t, store.Change{Kind: store.KindBlocked, At: noon, BlockChange: second}, got[1])
		end := first
		end.BlockedUntil, end.Version, end.KeepCounts = noon.Add(time.Minute), lifted.Version, true
		require.Equal(t, store.Change{Kind: store.KindUnblocked, At: noon.Add(time.Minute), BlockChange: end}, got[2])
		require.IsIncreasing(t, []int64{first.Version, second.Version, lifted.Version})
		require.Equal(t, got[1:], b.changes(first.Version))
		some, err := b.store.Changes(t.Context(), first.Version, 1)
		require.NoError(t, err)
		require.Equal(t, got[1:2], some)
	})
	t.Run("published up to", func(t *testing.T) {
		b := setup(t, state)
		version := b.block("203.0.113.7", time.Hour).Version
		totals := func() store.Totals {
			got, err := b.store.Totals(t.Context(), noon)
			require.NoError(t, err)
			return got
		}
		require.Equal(t, store.Totals{IPs: 1, Version: version}, totals())
		require.NoError(t, b.store.SetPublished(t.Context(), b.epoch, version))
		require.NoError(t, b.store.SetPublished(t.Context(), b.epoch, version-1))
		require.Equal(t, store.Totals{IPs: 1, Version: version, Published: version}, totals())
	})
	t.Run("versions are raised, never lowered", func(t *testing.T) {
		b := setup(t, state)
		require.NoError(t, b.store.RaiseVersion(t.Context(), b.epoch, 500))
		require.NoError(t, b.store.RaiseVersion(t.Context(), b.epoch, 100))
		totals, err := b.store.Totals(t.Context(), noon)
		require.NoError(t, err)
		require.Equal(t, store.Totals{Version: 500, Published: 500}, totals)
		require.Greater(t, b.block("203.0.113.7", time.Hour).Version, int64(500))
		require.NoError(t, b.store.RaiseVersion(t.Context(), b.epoch, 1000))
		totals, err = b.store.Totals(t.Context(), noon)
		require.NoError(t, err)
		require.Equal(t, int64(500), totals.Published, "a change waits")
	})
	t.Run("blocks in force are renewed before their events are gone", func(t *testing.T) {
		b := setup(t, state)
		old := b.block("203.0.113.7", 1000*time.Hour)
		b.block("203.0.113.8", time.Hour)
		b.block("198.51.100.0/24", 1000*time.Hour)
		b.clock.set(days(20))
		b.block("203.0.113.9", 1000*time.Hour)
		last := b.changes(0)[3].Version
		renew := func(limit int) int {
			n, err := b.store.Renew(t.Context(), b.epoch, days(10), limit)
			require.NoError(t, err)
			return n
		}
		require.Equal(t, 1, renew(1))
		require.Equal(t, 1, renew(10))
		require.Equal(t, 0, renew(10))
		got := b.changes(last)
		require.Len(t, got, 2)
		for _, c := range got {
			require.Equal(t, store.KindBlocked, c.Kind)
			require.Equal(t, []string{"abuse", "an operator"}, []string{c.Reason, c.By})
			require.Equal(t, old.BlockedUntil, c.BlockedUntil)
			require.Equal(t, noon, c.Since)
		}
	})
}
