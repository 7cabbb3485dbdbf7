package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"

	"github.com/ccnq/ccnq/tests/load/internal/report"
)

// benchmarkLine is a line of go test; the number of processors ends the name.
var benchmarkLine = regexp.MustCompile(`^Benchmark(\S+?)(?:-\d+)?\s+\d+\s+(.+)$`)

// benchmarks are results of go test by name, without the number of processors,
// and unit: one for each count.
type benchmarks map[string]map[string][]float64

// median returns that of one unit, NaN if there is none.
func (b benchmarks) median(name, unit string) float64 {
	if len(b[name][unit]) == 0 {
		return math.NaN()
	}
	return report.Percentile(b[name][unit], 50)
}

// most returns the greatest of one unit, NaN if there is none.
func (b benchmarks) most(name, unit string) float64 {
	if len(b[name][unit]) == 0 {
		return math.NaN()
	}
	return report.Percentile(b[name][unit], 100)
}

// goBenchmarks runs benchmarks of a package of the project, which may be
// internal to a service.
func goBenchmarks(ctx context.Context, pkg, pattern, benchtime string, more ...string) (benchmarks, error) {
	args := append([]string{
		"test", "github.com/ccnq/ccnq/" + pkg, "-run", "^$", "-bench", pattern, "-benchmem", "-benchtime", benchtime,
	}, more...)
	return runBenchmarks(exec.CommandContext(ctx, "go", args...), pkg)
}

// goBenchmarksAt is goBenchmarks at a NATS server.
func goBenchmarksAt(ctx context.Context, nats, pkg, pattern, benchtime string) (benchmarks, error) {
	cmd := exec.CommandContext(ctx, "go", "test", "github.com/ccnq/ccnq/"+pkg, "-run", "^$", "-bench", pattern, "-benchtime", benchtime)
	cmd.Env = append(os.Environ(), "CCNQ_TEST_NATS_URL="+nats)
	return runBenchmarks(cmd, pkg)
}

func runBenchmarks(cmd *exec.Cmd, pkg string) (benchmarks, error) {
	out, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("go test %s: %w: %s", pkg, err, out)
	}
	return parseBenchmarks(string(out))
}

// parseBenchmarks reads what go test printed.
func parseBenchmarks(out string) (benchmarks, error) {
	found := benchmarks{}
	for line := range strings.Lines(out) {
		m := benchmarkLine.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			continue
		}
		fields := strings.Fields(m[2])
		for i := 0; i+1 < len(fields); i += 2 {
			value, err := strconv.ParseFloat(fields[i], 64)
			if err != nil {
				break // it is no result
			}
			if found[m[1]] == nil {
				found[m[1]] = map[string][]float64{}
			}
			found[m[1]][fields[i+1]] = append(found[m[1]][fields[i+1]], value)
		}
	}
	if len(found) == 0 {
		return nil, errors.New("go test printed no benchmark: " + out)
	}
	return found, nil
}
