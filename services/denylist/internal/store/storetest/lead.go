package storetest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/services/denylist/internal/store"
)

func exerciseLead(t *testing.T, newState func(testing.TB) State) {
	t.Helper()
	state := newState(t)
	t.Run("one holder at a time", func(t *testing.T) {
		c := &clock{now: noon}
		state.Reset()
		s := state.Open(store.DefaultSettings(), c.read)
		lead := func(holder string) (int64, bool) {
			epoch, ok, err := s.Lead(t.Context(), holder, 5*time.Second)
			require.NoError(t, err)
			return epoch, ok
		}
		first, ok := lead("a")
		require.True(t, ok)
		_, ok = lead("b")
		require.False(t, ok)
		c.set(noon.Add(4 * time.Second))
		renewed, ok := lead("a")
		require.True(t, ok)
		require.Equal(t, first, renewed)
		c.set(noon.Add(8 * time.Second))
		_, ok = lead("b")
		require.False(t, ok, "renewed until 9 s")
		c.set(noon.Add(9 * time.Second))
		second, ok := lead("b")
		require.True(t, ok)
		require.Greater(t, second, first)
		_, ok = lead("a")
		require.False(t, ok)
		require.NoError(t, s.Resign(t.Context(), second))
		third, ok := lead("a")
		require.True(t, ok)
		require.Greater(t, third, second)
	})
	t.Run("a leader that was frozen changes nothing", func(t *testing.T) {
		state.Reset()
		b := newBundle(t, state, store.DefaultSettings())
		b.block("203.0.113.7", time.Hour)
		ctx := t.Context()
		require.NoError(t, b.store.BeginRebuild(ctx, b.epoch))
		b.clock.set(noon.Add(leaseTTL))
		standby := state.Open(store.DefaultSettings(), b.clock.read)
		epoch, ok, err := standby.Lead(ctx, "standby", time.Minute)
		require.NoError(t, err)
		require.True(t, ok)
		batch := store.Batch{Records: []store.Record{b.record(denied("203.0.113.7", 1, noon))}, Next: store.Checkpoint{Created: created, Seq: 1}}
		for name, call := range map[string]func() error{
			"apply":          func() error { _, err := b.store.Apply(ctx, b.epoch, b.at, batch); return err },
			"reset":          func() error { return b.store.Reset(ctx, b.epoch, noon) },
			"resign":         func() error { return b.store.Resign(ctx, b.epoch) },
			"set published":  func() error { return b.store.SetPublished(ctx, b.epoch, 1) },
			"raise version":  func() error { return b.store.RaiseVersion(ctx, b.epoch, 1000) },
			"renew":          func() error { _, err := b.store.Renew(ctx, b.epoch, days(10_000), 10); return err },
			"begin rebuild":  func() error { return b.store.BeginRebuild(ctx, b.epoch) },
			"replay":         func() error { _, err := b.store.Replay(ctx, b.epoch, nil); return err },
			"finish rebuild": func() error { _, err := b.store.FinishRebuild(ctx, b.epoch, b.at); return err },
		} {
			require.ErrorIs(t, call(), store.ErrNotLeader, name)
		}
		_, err = standby.Replay(ctx, epoch, nil)
		require.ErrorIs(t, err, store.ErrNoRebuild, "the rebuild was the other's")
		_, err = standby.Apply(ctx, epoch, b.at, batch)
		require.NoError(t, err)
	})
	t.Run("a lease that has ended is no lease", func(t *testing.T) {
		b := setup(t, state)
		b.clock.set(noon.Add(leaseTTL))
		require.ErrorIs(t, b.store.Reset(t.Context(), b.epoch, noon), store.ErrNotLeader)
		epoch, ok, err := b.store.Lead(t.Context(), "the test", time.Minute)
		require.NoError(t, err)
		require.True(t, ok)
		require.NoError(t, b.store.Reset(t.Context(), epoch, noon))
	})
}
