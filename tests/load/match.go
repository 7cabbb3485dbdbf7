package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ccnq/ccnq/tests/load/internal/report"
)

// matchLine is a line of go test: the ruleset, the request's path, time and
// allocations.
var matchLine = regexp.MustCompile(`^BenchmarkMatch/([^/\s]+)(/\S+?)(?:-\d+)?\s+\d+\s+([0-9.]+) ns/op\s+\d+ B/op\s+(\d+) allocs/op$`)

// cost is that of one match.
type cost struct {
	ns     []float64 // of each count
	allocs int
}

// ruleMatch runs the benchmark of package rules, and takes of each ruleset the
// request that costs most.
func ruleMatch(ctx context.Context, b *bench) ([]report.Row, error) {
	cmd := exec.CommandContext(ctx, "go", "test", "github.com/ccnq/ccnq/pkg/rules", "-run", "^$",
		"-bench", "^BenchmarkMatch$", "-benchtime", b.benchtime, "-count", "3")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("go test: %w: %s", err, out)
	}
	costs, err := parseMatch(string(out))
	if err != nil {
		return nil, err
	}
	var rows []report.Row
	for _, set := range slices.Sorted(maps.Keys(costs)) {
		slowest, allocs := 0.0, 0
		for _, c := range costs[set] {
			slowest, allocs = max(slowest, report.Percentile(c.ns, 50)), max(allocs, c.allocs)
		}
		rows = append(rows, report.Row{
			What:     "match of the example " + set,
			Measured: fmt.Sprintf("%.0f ns, %d allocations", slowest, allocs),
			Against:  "–",
			Ratio:    "–",
			Reach:    "≤ 1 µs, 0 allocations",
			Met:      slowest <= float64(time.Microsecond) && allocs == 0,
		})
	}
	return rows, nil
}

// parseMatch returns the costs by ruleset and request.
func parseMatch(out string) (map[string]map[string]*cost, error) {
	costs := map[string]map[string]*cost{}
	for line := range strings.Lines(out) {
		m := matchLine.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			continue
		}
		set, path := m[1], m[2]
		ns, err := strconv.ParseFloat(m[3], 64)
		if err != nil {
			return nil, err
		}
		allocs, err := strconv.Atoi(m[4])
		if err != nil {
			return nil, err
		}
		if costs[set] == nil {
			costs[set] = map[string]*cost{}
		}
		c := costs[set][path]
		if c == nil {
			c = &cost{}
			costs[set][path] = c
		}
		c.ns, c.allocs = append(c.ns, ns), max(c.allocs, allocs)
	}
	if len(costs) == 0 {
		return nil, errors.New("go test printed no benchmark of a ruleset: " + out)
	}
	return costs, nil
}
