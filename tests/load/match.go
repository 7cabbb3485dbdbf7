package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ccnq/ccnq/tests/load/internal/report"
)

// ruleMatch runs the benchmark of package rules, and takes of each ruleset the
// request that costs most.
func ruleMatch(ctx context.Context, b *bench) ([]report.Row, error) {
	results, err := goBenchmarks(ctx, "pkg/rules", "^BenchmarkMatch$", b.benchtime, "-count", "3")
	if err != nil {
		return nil, err
	}
	type cost struct{ ns, allocs float64 }
	slowest := map[string]cost{}
	for name := range results {
		// The name is Match, the ruleset and the request's path.
		set, _, ok := strings.Cut(strings.TrimPrefix(name, "Match/"), "/")
		if !ok {
			return nil, fmt.Errorf("benchmark %q names no ruleset and path", name)
		}
		c := slowest[set]
		slowest[set] = cost{max(c.ns, results.median(name, "ns/op")), max(c.allocs, results.most(name, "allocs/op"))}
	}
	var rows []report.Row
	for _, set := range slices.Sorted(maps.Keys(slowest)) {
		c := slowest[set]
		rows = append(rows, report.Row{
			What:     "match of the example " + set,
			Measured: fmt.Sprintf("%.0f ns, %.0f allocations", c.ns, c.allocs),
			Against:  "–",
			Ratio:    "–",
			Reach:    "≤ 1 µs, 0 allocations",
			Met:      c.ns <= float64(time.Microsecond) && c.allocs == 0,
		})
	}
	return rows, nil
}
