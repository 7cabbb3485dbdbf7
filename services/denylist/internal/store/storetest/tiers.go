package storetest

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/pkg/wire"
)

// exerciseTiers checks the two tiers at their borders, with the defaults.
func exerciseTiers(t *testing.T, newState func(testing.TB) State) {
	t.Helper()
	state := newState(t)
	const ip = "203.0.113.7"
	t.Run("five days of 25 within 14 block for 30 days", func(t *testing.T) {
		b := setup(t, state)
		for _, day := range []int{0, 3, 6, 9} {
			b.deny(ip, 25, days(day))
		}
		b.deny(ip, 24, days(13))
		require.Empty(t, b.blocks(wire.ScopeIP), "24 on the fifth day")
		b.deny(ip, 1, days(13).Add(time.Minute))
		require.Equal(t, map[string]time.Time{ip: days(43).Add(time.Minute)}, b.blocks(wire.ScopeIP))
		require.Equal(t, days(13).Add(time.Minute), b.list(wire.ScopeIP)[0].Since)
	})
	t.Run("a day outside the window does not count", func(t *testing.T) {
		b := setup(t, state)
		for _, day := range []int{0, 3, 6, 9, 14} {
			b.deny(ip, 25, days(day))
		}
		require.Empty(t, b.blocks(wire.ScopeIP))
	})
	t.Run("any denial extends once enough days are exceeded", func(t *testing.T) {
		b := setup(t, state)
		for day := range 5 {
			b.deny(ip, 25, days(day))
		}
		b.deny(ip, 1, days(6))
		require.Equal(t, map[string]time.Time{ip: days(36)}, b.blocks(wire.ScopeIP))
		b.deny(ip, 1, days(5)) // an event that comes late shortens nothing
		require.Equal(t, map[string]time.Time{ip: days(36)}, b.blocks(wire.ScopeIP))
		require.Equal(t, days(4), b.list(wire.ScopeIP)[0].Since)
	})
	t.Run("all in one batch is the same", func(t *testing.T) {
		b := setup(t, state)
		got := b.apply(b.record(denied(ip, 25, days(0))), b.record(denied(ip, 25, days(1))), b.record(denied(ip, 25, days(2))),
			b.record(denied(ip, 25, days(3))), b.record(denied(ip, 24, days(4))), b.record(denied(ip, 1, days(4).Add(time.Hour))))
		require.Equal(t, 1, got.Changes)
		require.Equal(t, map[string]time.Time{ip: days(34).Add(time.Hour)}, b.blocks(wire.ScopeIP))
		require.Equal(t, days(4).Add(time.Hour), b.list(wire.ScopeIP)[0].Since)
	})
	t.Run("a block that is over begins anew", func(t *testing.T) {
		b := setup(t, state)
		for host := range 26 {
			b.deny(fmt.Sprintf("198.51.100.%d", host), 1, noon)
		}
		for host := range 26 {
			b.deny(fmt.Sprintf("198.51.100.%d", host), 1, days(3))
		}
		got := b.list(wire.ScopeRange)
		require.Len(t, got, 1)
		require.Equal(t, days(3), got[0].Since)
		require.Equal(t, days(4), got[0].BlockedUntil)
	})
	t.Run("more than 25 addresses of a range block it for 24 hours", func(t *testing.T) {
		for _, inOneBatch := range []bool{false, true} {
			b := setup(t, state)
			group := "198.51.100.0/24"
			var all []wire.DeniedAddress
			for host := range 25 {
				all = append(all, denied(fmt.Sprintf("198.51.100.%d", host), 1, noon), denied(fmt.Sprintf("198.51.100.%d", host), 1, noon))
			}
			last := denied("198.51.100.25", 1, noon.Add(time.Second))
			b.apply(b.record(all...))
			require.Empty(t, b.blocks(wire.ScopeRange), "25 addresses")
			if inOneBatch {
				b = setup(t, state)
				b.apply(b.record(all...), b.record(last))
			} else {
				b.apply(b.record(last))
			}
			require.Equal(t, map[string]time.Time{group: noon.Add(24*time.Hour + time.Second)}, b.blocks(wire.ScopeRange))
			require.Empty(t, b.blocks(wire.ScopeIP))
		}
	})
	t.Run("UTC days are counted apart", func(t *testing.T) {
		b := setup(t, state)
		midnight := time.Date(2030, 3, 11, 0, 0, 0, 0, time.UTC)
		for host := range 26 {
			at := midnight.Add(-time.Microsecond)
			if host == 25 {
				at = midnight
			}
			b.deny(fmt.Sprintf("198.51.100.%d", host), 1, at)
		}
		require.Empty(t, b.blocks(wire.ScopeRange))
		require.Equal(t, map[string]int64{"2030-03-11": 1}, b.count("198.51.100.25"))
	})
	t.Run("an address stays in the range it was first denied in that day", func(t *testing.T) {
		b := setup(t, state)
		wide := netip.MustParsePrefix("198.51.0.0/16")
		for host := range 26 {
			ip := fmt.Sprintf("198.51.100.%d", host)
			b.deny(ip, 1, noon)
			other := denied(ip, 1, noon.Add(time.Minute))
			other.Group = wide
			b.apply(b.record(other))
		}
		require.Equal(t, map[string]time.Time{"198.51.100.0/24": noon.Add(24*time.Hour + time.Minute)}, b.blocks(wire.ScopeRange))
	})
	t.Run("IPv6", func(t *testing.T) {
		b := setup(t, state)
		for host := range 26 {
			b.deny(fmt.Sprintf("2001:db8::%x", host+1), 1, noon)
		}
		require.Equal(t, map[string]time.Time{"2001:db8::/64": noon.Add(24 * time.Hour)}, b.blocks(wire.ScopeRange))
	})
}
