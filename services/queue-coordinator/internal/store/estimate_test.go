package store

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestEstimate(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	start := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	at := start.Add

	var e Estimate
	require.Zero(t, e.FullFor(start), "nothing is known")
	e.Filled(start)
	require.Equal(t, 5*ms, e.FullFor(at(11*ms)), "stuck for 11 ms, half of that, whole")
	require.Equal(t, MaxFullFor, e.FullFor(at(time.Hour)))

	e.Freed(at(40*ms), 2, true)
	require.Equal(t, 20*ms, e.Interval, "the first interval counts whole, shared by two places")
	e.Freed(at(80*ms), 1, true)
	require.Equal(t, 25*ms, e.Interval, "a later one by a quarter")
	require.Equal(t, 12*ms, e.FullFor(at(80*ms)))

	e.Freed(at(time.Minute), 1, false)
	require.Equal(t, 25*ms, e.Interval, "there was room: no interval")
	e.Freed(at(time.Hour), 1, true)
	require.Equal(t, 25*ms+(MaxInterval-25*ms)/4, e.Interval, "bounded")
	e.Freed(at(0), 1, true)
	require.GreaterOrEqual(t, e.Interval, time.Duration(0), "a clock that steps back does no harm")
}
