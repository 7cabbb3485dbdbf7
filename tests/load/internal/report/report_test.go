package report

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWrite(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	require.NoError(t, Write(&b, []Row{
		{What: "a", Measured: "1 µs", Against: "2 µs", Ratio: "0.50", Reach: "≤ 1", Met: true},
		{What: "b"},
	}))
	lines := strings.Split(b.String(), "\n")
	require.Len(t, lines, 5)
	require.Equal(t, "| a | 1 µs | 2 µs | 0.50 | ≤ 1 | yes |", lines[2])
	require.True(t, strings.HasSuffix(lines[3], "| no |"))
}

func TestPairs(t *testing.T) {
	t.Parallel()
	var p Pairs
	p.Add(1, 2)  // 0.5
	p.Add(30, 3) // disturbed
	p.Add(3, 5)  // 0.6
	require.InDelta(t, 3, p.Measured(), 1e-9)
	require.InDelta(t, 3, p.Against(), 1e-9)
	require.InDelta(t, 0.6, p.Ratio(), 1e-9)
}

func TestPercentile(t *testing.T) {
	t.Parallel()
	hundred := make([]time.Duration, 100)
	for i := range hundred {
		hundred[99-i] = time.Duration(i + 1)
	}
	require.Equal(t, time.Duration(99), Percentile(hundred, 99))
	require.Equal(t, time.Duration(100), Percentile(hundred, 100))
	require.InDelta(t, 2.5, Percentile([]float64{4, 1, 3, 2}, 50), 1e-9)
	require.InDelta(t, 7, Percentile([]float64{7}, 99), 1e-9)
	require.InDelta(t, 2, Percentile([]float64{3, 1, 2}, 50), 1e-9)
}
