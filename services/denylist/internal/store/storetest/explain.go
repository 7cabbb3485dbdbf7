package storetest

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/pkg/wire"
	"github.com/ccnq/ccnq/services/denylist/internal/store"
)

func exerciseExplain(t *testing.T, newState func(testing.TB) State) {
	t.Helper()
	state := newState(t)
	t.Run("days and samples", func(t *testing.T) {
		b := setup(t, state)
		const ip = "203.0.113.7"
		b.deny(ip, 2, noon)
		a := denied(ip, 3, noon.Add(time.Minute))
		a.Path = "/b"
		r := b.record(a)
		r.Edge, r.Denied.Reason = "e2", wire.DeniedQueueTimeout
		b.apply(r)
		b.deny(ip, 1, days(1))
		got, err := b.store.Explain(t.Context(), netip.MustParseAddr("::ffff:"+ip))
		require.NoError(t, err)
		require.Empty(t, got.Blocks)
		require.Equal(t, []wire.DenialDay{
			{
				IP: netip.MustParseAddr(ip), Group: "203.0.113.0/24", Day: "2030-03-11", Count: 1, FirstSeq: 3, LastSeq: 3,
				Samples: []wire.DenialSample{{At: days(1), Reason: wire.DeniedQueueFull, Path: "/a", Edge: "e1"}},
			},
			{
				IP: netip.MustParseAddr(ip), Group: "203.0.113.0/24", Day: "2030-03-10", Count: 5, FirstSeq: 1, LastSeq: 2,
				Samples: []wire.DenialSample{
					{At: noon, Reason: wire.DeniedQueueFull, Path: "/a", Edge: "e1"},
					{At: noon.Add(time.Minute), Reason: wire.DeniedQueueTimeout, Path: "/b", Edge: "e2"},
				},
			},
		}, got.Days)
	})
	t.Run("samples of denial 1, 2, 4 and so on, in one batch or in many", func(t *testing.T) {
		b := setup(t, state)
		var batch []store.Record
		at := func(n int) time.Time { return noon.Add(time.Duration(n) * time.Second) }
		for n := 1; n <= 20; n++ {
			b.deny("203.0.113.7", 1, at(n))
		}
		for n := 1; n <= 20; n++ {
			batch = append(batch, b.record(denied("203.0.113.8", 1, at(n))))
		}
		b.apply(batch...)
		b.deny("203.0.113.9", 100_000, at(1))
		for ip, want := range map[string][]int{"203.0.113.7": {1, 2, 4, 8, 16}, "203.0.113.8": {1, 2, 4, 8, 16}, "203.0.113.9": {1}} {
			got, err := b.store.Explain(t.Context(), netip.MustParseAddr(ip))
			require.NoError(t, err)
			var seconds []int
			for _, s := range got.Days[0].Samples {
				seconds = append(seconds, int(s.At.Sub(noon)/time.Second))
			}
			require.Equal(t, want, seconds, ip)
		}
	})
	t.Run("sixteen samples at most", func(t *testing.T) {
		b := setup(t, state)
		for n := range 18 {
			b.deny("203.0.113.7", 1<<n, noon)
		}
		got, err := b.store.Explain(t.Context(), netip.MustParseAddr("203.0.113.7"))
		require.NoError(t, err)
		require.Len(t, got.Days[0].Samples, store.MaxSamples)
	})
	t.Run("the denials behind the block of a range", func(t *testing.T) {
		b := setup(t, state)
		for host := range 26 {
			b.deny(fmt.Sprintf("198.51.100.%d", host), 1, noon)
		}
		b.deny("198.51.101.1", 1, noon)
		b.block("198.51.0.0/16", time.Hour)
		got, err := b.store.Explain(t.Context(), netip.MustParseAddr("198.51.100.200"))
		require.NoError(t, err)
		require.Len(t, got.Blocks, 2)
		require.Equal(t, "198.51.100.0/24", got.Blocks[0].Target)
		require.Equal(t, "198.51.0.0/16", got.Blocks[1].Target)
		require.Len(t, got.Days, 26)
		for _, d := range got.Days {
			require.Equal(t, "198.51.100.0/24", d.Group)
		}
	})
	t.Run("fits into a message", func(t *testing.T) {
		b := setup(t, state)
		path := "/" + strings.Repeat("é", 127)
		deny := func(host, day, n int) store.Record {
			a := denied(fmt.Sprintf("198.51.100.%d", host), n, days(day))
			a.Path = path
			return b.record(a)
		}
		var batch []store.Record
		for i := range 70 * store.MaxSamples {
			batch = append(batch, deny(0, i/store.MaxSamples, 1<<(i%store.MaxSamples)))
		}
		for i := range 70 * 3 {
			batch = append(batch, deny(i/3, 69, 5))
		}
		b.apply(batch...)
		b.clock.set(days(69))
		got, err := b.store.Explain(t.Context(), netip.MustParseAddr("198.51.100.0"))
		require.NoError(t, err)
		require.Len(t, got.Days, store.MaxDays+store.MaxRangeDays)
		text, err := json.Marshal(wire.ExplainReply{Blocks: got.Blocks, Days: got.Days})
		require.NoError(t, err)
		require.Less(t, len(text), wire.MaxMessage)
	})
}
