package main

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/ccnq/ccnq/pkg/testdb"
	"github.com/ccnq/ccnq/pkg/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tiny is enough to see that everything can still be measured.
var tiny = size{
	rounds: 1, round: 50 * time.Millisecond, requests: 128, groups: 3, inFlight: 20, memoryRounds: 1, benchtime: "1x",
	checks: 100, blocks: 1_000, starts: 1, denials: 2_000, denialRounds: 1, rebuilt: 3_000,
	entries: 100_000, writes: 2_000,
}

// TestRows measures every row and looks at nothing but that there is a
// measurement.
func TestRows(t *testing.T) {
	t.Setenv("CCNQ_TEST_DATABASE_URL", testdb.New(t).URL)
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), &out, "", tiny))
	var lines int
	for line := range strings.Lines(out.String()) {
		if !strings.HasPrefix(line, "| ") {
			continue
		}
		lines++
		require.NotRegexp(t, `NaN|Inf|\| 0\.0 µs|\| 0 (op/s|MiB|ns|/s)`, line)
	}
	require.Equal(t, 2+39, lines, out.String())
}

// TestSoak looks whether the soak runs, and finds what it must.
func TestSoak(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	require.NoError(t, soak(t.Context(), &out, 2*time.Second))
	require.Regexp(t, `^[12]s: [1-9]\d* requests, \d+ % hits, `, out.String())
}

func TestUnknownRow(t *testing.T) {
	t.Setenv("CCNQ_TEST_DATABASE_URL", "postgres://127.0.0.1:1/none")
	var out bytes.Buffer
	require.ErrorContains(t, run(t.Context(), &out, "speed", tiny), `no row is named "speed"; there are pass-through, groups`)
}

func TestNoDatabase(t *testing.T) {
	t.Setenv("CCNQ_TEST_DATABASE_URL", "")
	require.ErrorContains(t, run(t.Context(), &bytes.Buffer{}, "", tiny), "CCNQ_TEST_DATABASE_URL is not set")
}

func TestParseBenchmarks(t *testing.T) {
	t.Parallel()
	got, err := parseBenchmarks(`goos: linux
BenchmarkMatch/queue-rules/a/b-c.pdf-2   	  393502	       827.5 ns/op	       0 B/op	       0 allocs/op
BenchmarkMatch/queue-rules/a/b-c.pdf-2   	  393502	       12 ns/op	       8 B/op	       1 allocs/op
BenchmarkCheck  	  1	       3 ns/op	       98.4 bytes/ip
PASS
`)
	require.NoError(t, err)
	require.Equal(t, benchmarks{
		"Match/queue-rules/a/b-c.pdf": {"ns/op": {827.5, 12}, "B/op": {0, 8}, "allocs/op": {0, 1}},
		"Check":                       {"ns/op": {3}, "bytes/ip": {98.4}},
	}, got)
	require.InDelta(t, 419.75, got.median("Match/queue-rules/a/b-c.pdf", "ns/op"), 1e-9)
	require.InDelta(t, 1, got.most("Match/queue-rules/a/b-c.pdf", "allocs/op"), 1e-9)

	for _, out := range []string{"PASS\n", "BenchmarkCheck 1 x ns/op\n"} {
		_, err = parseBenchmarks(out)
		require.ErrorContains(t, err, "no benchmark")
	}
}

// TestDenials checks what the projector is measured with: every second address
// is new, and there are 1,000 ranges.
func TestDenials(t *testing.T) {
	t.Parallel()
	var d denials
	seen, ranges := map[netip.Addr]bool{}, map[netip.Prefix]bool{}
	for range 40 {
		puts, err := d.messages(50)
		require.NoError(t, err)
		for _, put := range puts {
			event, err := wire.Decode[wire.Event[wire.Denied]](put.Data)
			require.NoError(t, err)
			require.Len(t, event.Data.Addresses, perMessage)
			for _, a := range event.Data.Addresses {
				require.True(t, a.Group.Contains(a.IP))
				seen[a.IP], ranges[a.Group] = true, true
			}
		}
	}
	require.Len(t, seen, 40*50*perMessage/2)
	require.Len(t, ranges, 1_000)
}

func TestBlockTargets(t *testing.T) {
	t.Parallel()
	seen := map[string]int{}
	for i := range 20_000 {
		scope, target := blockTarget(i)
		if i%10 != 9 {
			require.Equal(t, wire.ScopeIP, scope)
		}
		_, err := wire.ParseTarget(scope, target)
		require.NoError(t, err)
		seen[target]++
	}
	require.Len(t, seen, 20_000)
}
