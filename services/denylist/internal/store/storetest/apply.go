package storetest

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/pkg/wire"
	"github.com/ccnq/ccnq/services/denylist/internal/store"
)

func exerciseApply(t *testing.T, newState func(testing.TB) State) {
	t.Helper()
	state := newState(t)
	t.Run("counts and moves the checkpoint", func(t *testing.T) {
		b := setup(t, state)
		got := b.apply(
			b.record(denied("203.0.113.7", 3, noon), denied("2001:db8::1", 1, noon)),
			b.record(denied("203.0.113.7", 2, noon.Add(time.Second))))
		require.Equal(t, store.Result{Applied: 2, Denials: 6}, got)
		require.Equal(t, map[string]int64{"2030-03-10": 5}, b.count("203.0.113.7"))
		require.Equal(t, map[string]int64{"2030-03-10": 1}, b.count("2001:db8::1"))
		at, err := b.store.Checkpoint(t.Context())
		require.NoError(t, err)
		require.Equal(t, store.Checkpoint{Created: created, Seq: 2}, at)
	})
	t.Run("each record once however often it comes", func(t *testing.T) {
		b := setup(t, state)
		first, second := b.record(denied("203.0.113.7", 1, noon)), b.record(denied("203.0.113.7", 1, noon))
		b.apply(first)
		again, later := first, second
		b.seq++
		again.Seq = b.seq
		b.seq++
		later.Seq = b.seq
		require.Equal(t, store.Result{Applied: 1, Skipped: 2, Denials: 1}, b.apply(second, again, later))
		require.Equal(t, map[string]int64{"2030-03-10": 2}, b.count("203.0.113.7"))
	})
	t.Run("outboxes have numbers of their own", func(t *testing.T) {
		b := setup(t, state)
		one, two := b.record(denied("203.0.113.7", 1, noon)), b.record(denied("203.0.113.7", 1, noon))
		two.Denied.OutboxID, two.Denied.Seq = "other", 1
		require.Equal(t, 2, b.apply(one, two).Applied)
	})
	t.Run("a gap of an outbox is no fault", func(t *testing.T) {
		b := setup(t, state)
		b.deny("203.0.113.7", 1, noon)
		b.sent += 100
		require.Equal(t, 1, b.deny("203.0.113.7", 1, noon).Applied)
	})
	t.Run("another checkpoint than expected", func(t *testing.T) {
		b := setup(t, state)
		b.deny("203.0.113.7", 1, noon)
		r := b.record(denied("203.0.113.7", 1, noon))
		next := store.Checkpoint{Created: created, Seq: 2}
		for name, expected := range map[string]store.Checkpoint{
			"behind": {Created: created}, "ahead": {Created: created, Seq: 2},
			"other stream": {Created: created.Add(time.Microsecond), Seq: 1},
		} {
			_, err := b.store.Apply(t.Context(), b.epoch, expected, store.Batch{Records: []store.Record{r}, Next: next})
			require.ErrorIs(t, err, store.ErrCheckpoint, name)
		}
		require.Equal(t, map[string]int64{"2030-03-10": 1}, b.count("203.0.113.7"))
	})
	t.Run("a batch that does not follow the checkpoint", func(t *testing.T) {
		b := setup(t, state)
		one, two := b.record(denied("203.0.113.7", 1, noon)), b.record(denied("203.0.113.7", 1, noon))
		for name, batch := range map[string]store.Batch{
			"out of order": {Records: []store.Record{two, one}, Next: store.Checkpoint{Created: created, Seq: 2}},
			"ends early":   {Records: []store.Record{one, two}, Next: store.Checkpoint{Created: created, Seq: 1}},
			"other stream": {Records: []store.Record{one}, Next: store.Checkpoint{Created: noon, Seq: 1}},
		} {
			_, err := b.store.Apply(t.Context(), b.epoch, b.at, batch)
			require.ErrorIs(t, err, store.ErrCheckpoint, name)
		}
		require.Empty(t, b.count("203.0.113.7"))
	})
	t.Run("the created time of a stream has nanoseconds", func(t *testing.T) {
		b := setup(t, state)
		fine := created.Add(789)
		require.NoError(t, b.store.Reset(t.Context(), b.epoch, fine))
		b.at.Created = fine
		b.deny("203.0.113.7", 1, noon)
	})
	t.Run("a new stream begins at its beginning and keeps the rest", func(t *testing.T) {
		b := setup(t, state)
		for range 3 {
			b.deny("203.0.113.7", 1, noon)
		}
		require.NoError(t, b.store.Reset(t.Context(), b.epoch, noon))
		b.at, b.seq = store.Checkpoint{Created: noon}, 0
		require.Equal(t, 1, b.deny("203.0.113.7", 1, noon).Applied)
		require.Equal(t, map[string]int64{"2030-03-10": 4}, b.count("203.0.113.7"))
		b.sent-- // an event that the old stream had
		require.Equal(t, 1, b.deny("203.0.113.7", 1, noon).Skipped)
	})
	t.Run("times ahead of the stream are clamped", func(t *testing.T) {
		b := setup(t, state)
		evening := time.Date(2030, 3, 10, 23, 50, 0, 0, time.UTC)
		r := b.record(denied("203.0.113.7", 1, evening.Add(4*time.Minute)), denied("203.0.113.8", 1, days(400)))
		r.At = evening
		require.Equal(t, 1, b.apply(r).Clamped)
		require.Equal(t, map[string]int64{"2030-03-10": 1}, b.count("203.0.113.8"))
		got, err := b.store.Explain(t.Context(), denied("203.0.113.8", 1, noon).IP)
		require.NoError(t, err)
		require.Equal(t, evening.Add(5*time.Minute), got.Days[0].Samples[0].At)
	})
	t.Run("what does not count moves the position only", func(t *testing.T) {
		b := setup(t, state)
		r := b.record(denied("203.0.113.7", 1, noon))
		r.Denied.Reason = wire.DeniedByDenylist
		require.Equal(t, store.Result{Applied: 1}, b.apply(r))
		require.Empty(t, b.count("203.0.113.7"))
	})
	t.Run("messages moved aside", func(t *testing.T) {
		b := setup(t, state)
		batch := store.Batch{
			Quarantined: []store.Quarantined{
				{Seq: 1, At: noon, Subject: "s", Why: "no JSON", Payload: []byte("{\x00")},
				{Seq: 2, At: noon, Subject: "s\x00\xff", Why: "long", Payload: []byte(strings.Repeat("x", store.MaxPayload+1))},
				{Seq: 3, At: noon, Subject: "s", Why: "empty"},
			},
			Next: store.Checkpoint{Created: created, Seq: 5},
		}
		_, err := b.store.Apply(t.Context(), b.epoch, b.at, batch)
		require.NoError(t, err)
		got := b.state.Quarantined()
		require.Len(t, got, 3)
		require.Equal(t, []byte("{\x00"), got[0].Payload)
		require.Equal(t, "no JSON", got[0].Why)
		require.Len(t, got[1].Payload, store.MaxPayload)
		at, err := b.store.Checkpoint(t.Context())
		require.NoError(t, err)
		require.Equal(t, uint64(5), at.Seq)
	})
	t.Run("strange paths are kept as samples", func(t *testing.T) {
		b := setup(t, state)
		a := denied("203.0.113.7", 1, noon)
		a.Path = "/\x00\"\n\\<é>"
		b.apply(b.record(a), b.record(a))
		got, err := b.store.Explain(t.Context(), a.IP)
		require.NoError(t, err)
		require.Len(t, got.Days[0].Samples, 2)
	})
}
