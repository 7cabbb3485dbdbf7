package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/pkg/wire"
	"github.com/ccnq/ccnq/services/denylist/internal/store"
)

// history is a bundle that remembers its stream: denials, and the changes as
// the events that they are published as.
type history struct {
	*bundle
	events []store.Event
	known  int64
}

func newHistory(t testing.TB, state State) *history {
	t.Helper()
	return &history{bundle: setup(t, state)}
}

func (h *history) denied(addresses ...wire.DeniedAddress) {
	h.t.Helper()
	r := h.record(addresses...)
	h.events = append(h.events, store.Event{Record: &r})
	h.apply(r)
	h.publish()
}

// publish puts new changes into the stream.
func (h *history) publish() {
	h.t.Helper()
	for _, c := range h.changes(h.known) {
		h.events = append(h.events, store.Event{Change: &c})
		h.known = c.Version
	}
	require.NoError(h.t, h.store.SetPublished(h.t.Context(), h.epoch, h.known))
}

// rebuild replays the stream in pieces.
func (h *history) rebuild(piece int) store.Result {
	h.t.Helper()
	ctx := h.t.Context()
	require.NoError(h.t, h.store.BeginRebuild(ctx, h.epoch))
	for from := 0; from < len(h.events); from += piece {
		_, err := h.store.Replay(ctx, h.epoch, h.events[from:min(from+piece, len(h.events))])
		require.NoError(h.t, err)
	}
	got, err := h.store.FinishRebuild(ctx, h.epoch, h.at)
	require.NoError(h.t, err)
	return got
}

// live fills the projection with something of everything.
func (h *history) live() {
	h.t.Helper()
	for day := range 5 {
		h.clock.set(days(day))
		h.denied(denied("203.0.113.7", 25, days(day)), denied("203.0.113.8", 25, days(day)))
	}
	for host := range 30 {
		h.denied(denied(fmt.Sprintf("198.51.100.%d", host), 1, days(4)))
	}
	h.block("192.0.2.1", 100*time.Hour)
	h.block("192.0.2.0/25", 100*time.Hour)
	h.publish()
	h.unblock("203.0.113.8", false)
	h.unblock("192.0.2.1", true)
	h.publish()
	h.denied(denied("203.0.113.8", 3, days(4).Add(time.Hour)))
}

func exerciseRebuild(t *testing.T, newState func(testing.TB) State) {
	t.Helper()
	state := newState(t)
	ips := []string{"203.0.113.7", "203.0.113.8", "198.51.100.3"}
	type picture struct {
		Counts []map[string]int64
		Blocks []wire.BlockChange
		Totals store.Totals
	}
	look := func(h *history) picture {
		var p picture
		for _, ip := range ips {
			p.Counts = append(p.Counts, h.count(ip))
		}
		p.Blocks = append(h.list(wire.ScopeIP), h.list(wire.ScopeRange)...)
		totals, err := h.store.Totals(h.t.Context(), h.clock.read())
		require.NoError(h.t, err)
		p.Totals = totals
		return p
	}
	t.Run("changes nothing that is right", func(t *testing.T) {
		for _, piece := range []int{1, 7, 1000} {
			h := newHistory(t, state)
			h.live()
			before := look(h)
			require.Equal(t, map[string]int64{"2030-03-14": 3}, before.Counts[1], "the lift forgave")
			require.Equal(t, store.Result{}, h.rebuild(piece))
			require.Equal(t, before, look(h))
			require.Equal(t, 1, h.deny("203.0.113.8", 1, days(4)).Applied, "the projector goes on")
		}
	})
	t.Run("an event that came twice counts once", func(t *testing.T) {
		h := newHistory(t, state)
		h.live()
		before := look(h)
		h.events = append(h.events, h.events...)
		require.Equal(t, store.Result{}, h.rebuild(7))
		require.Equal(t, before, look(h))
	})
	t.Run("a store that was lost comes back as it was", func(t *testing.T) {
		h := newHistory(t, state)
		h.live()
		before := look(h)
		h.state.Reset()
		lost := newBundle(t, h.state, store.DefaultSettings())
		lost.clock.set(h.clock.read())
		h.store, h.epoch, h.clock = lost.store, lost.epoch, lost.clock
		require.Equal(t, store.Result{}, h.rebuild(7), "nothing is published again")
		after := look(h)
		require.Equal(t, before.Counts, after.Counts)
		require.Equal(t, inForce(before.Blocks, h.clock.read()), after.Blocks, "with the versions that readers know")
		require.Equal(t, before.Totals, after.Totals)
		require.Greater(t, h.block("192.0.2.200", time.Hour).Version, before.Totals.Version)
		require.Equal(t, 1, h.deny("203.0.113.8", 1, days(4)).Applied)
	})
	t.Run("blocks that were lost come back", func(t *testing.T) {
		h := newHistory(t, state)
		h.live()
		before := look(h)
		h.state.LoseBlocks()
		require.Equal(t, store.Result{}, h.rebuild(7))
		require.Equal(t, inForce(before.Blocks, h.clock.read()), look(h).Blocks)
	})
	t.Run("a block that no event made ends", func(t *testing.T) {
		h := newHistory(t, state)
		h.live()
		h.block("192.0.2.200", 1000*time.Hour)
		h.publish()
		h.events = h.events[:len(h.events)-1]
		require.Equal(t, store.Result{Changes: 1}, h.rebuild(7))
		got := h.changes(h.known)
		require.Len(t, got, 1)
		require.Equal(t, store.KindUnblocked, got[0].Kind)
		require.Equal(t, "192.0.2.200", got[0].Target)
		require.Equal(t, []string{store.ReasonRebuild, store.ByDenylist}, []string{got[0].Reason, got[0].By})
		require.True(t, got[0].KeepCounts)
		require.Empty(t, h.holding("192.0.2.200"))
	})
	t.Run("a block with another end than its event gets that end", func(t *testing.T) {
		h := newHistory(t, state)
		h.block("192.0.2.8", 10*time.Hour)
		h.publish()
		h.block("192.0.2.8", 20*time.Hour)
		h.publish()
		h.events = h.events[:1] // the second event was lost
		require.Equal(t, store.Result{Changes: 1}, h.rebuild(7))
		require.Equal(t, map[string]time.Time{"192.0.2.8": noon.Add(10 * time.Hour)}, h.blocks(wire.ScopeIP))
		require.Len(t, h.changes(h.known), 1)
	})
	t.Run("changes that are not in the stream yet stay", func(t *testing.T) {
		h := newHistory(t, state)
		h.live()
		h.block("192.0.2.200", 1000*time.Hour)
		h.unblock("203.0.113.7", true)
		before := look(h)
		require.Equal(t, store.Result{}, h.rebuild(7))
		require.Equal(t, before.Blocks, look(h).Blocks)
		require.Equal(t, []string{"192.0.2.200"}, h.holding("192.0.2.200"))
	})
	t.Run("one begun and left is forgotten", func(t *testing.T) {
		h := newHistory(t, state)
		h.live()
		before := look(h)
		require.NoError(t, h.store.BeginRebuild(t.Context(), h.epoch))
		_, err := h.store.Replay(t.Context(), h.epoch, h.events[:5])
		require.NoError(t, err)
		require.Equal(t, before, look(h))
		require.Equal(t, store.Result{}, h.rebuild(7))
		require.Equal(t, before, look(h))
		_, err = h.store.FinishRebuild(t.Context(), h.epoch, h.at)
		require.ErrorIs(t, err, store.ErrNoRebuild)
	})
	t.Run("a change that names nothing is passed over", func(t *testing.T) {
		h := newHistory(t, state)
		h.live()
		h.events = append(h.events, store.Event{Change: &store.Change{
			Kind: store.KindUnblocked, At: noon, BlockChange: wire.BlockChange{Scope: "x", Target: "y", Version: 99},
		}})
		require.Equal(t, store.Result{}, h.rebuild(1000))
	})
}

// inForce leaves out blocks that are over.
func inForce(blocks []wire.BlockChange, at time.Time) []wire.BlockChange {
	var in []wire.BlockChange
	for _, b := range blocks {
		if b.BlockedUntil.After(at) {
			in = append(in, b)
		}
	}
	return in
}
