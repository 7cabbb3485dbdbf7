package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/ccnq/ccnq/pkg/testdb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tiny is enough to see that everything can still be measured.
var tiny = size{
	rounds: 1, round: 50 * time.Millisecond, requests: 128, groups: 3, inFlight: 20, memoryRounds: 1, benchtime: "1x",
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
	require.Equal(t, 2+14, lines, out.String())
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

func TestParseMatch(t *testing.T) {
	t.Parallel()
	costs, err := parseMatch(`goos: linux
BenchmarkMatch/queue-rules/a/b-c.pdf-2   	  393502	       827.5 ns/op	       0 B/op	       0 allocs/op
BenchmarkMatch/queue-rules/a/b-c.pdf-2   	  393502	       12 ns/op	       8 B/op	       1 allocs/op
BenchmarkMatch/other/x  	  1	       3 ns/op	       0 B/op	       0 allocs/op
PASS
`)
	require.NoError(t, err)
	require.Equal(t, map[string]map[string]*cost{
		"queue-rules": {"/a/b-c.pdf": {ns: []float64{827.5, 12}, allocs: 1}},
		"other":       {"/x": {ns: []float64{3}}},
	}, costs)

	_, err = parseMatch("PASS\n")
	require.ErrorContains(t, err, "no benchmark")
}
