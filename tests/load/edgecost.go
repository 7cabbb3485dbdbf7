package main

import (
	"context"
	"fmt"

	"github.com/ccnq/ccnq/tests/load/internal/report"
)

// onOne makes a benchmark tell the time of one processor: of one that runs on
// several at once, go test divides the time by all of them.
const onOne = "-cpu=1"

// blockCheck runs the benchmarks of the edge's table of blocks, with 1,000,000
// addresses and 100,000 ranges. What it is measured against is one read of
// memory that no cache holds: the machine's share in the time.
func blockCheck(ctx context.Context, b *bench) ([]report.Row, error) {
	const pkg = "services/edge/internal/denylist"
	// A number, not a time: the table is made anew whenever go test tries how
	// many fit.
	checks := fmt.Sprintf("%dx", b.checks)
	one, err := goBenchmarks(ctx, pkg, "^Benchmark(Check|Miss)$", checks, onOne)
	if err != nil {
		return nil, err
	}
	all, err := goBenchmarks(ctx, pkg, "^BenchmarkCheck$", checks)
	if err != nil {
		return nil, err
	}
	memory, err := goBenchmarks(ctx, pkg, "^BenchmarkMemory$", "1x")
	if err != nil {
		return nil, err
	}
	ns, miss := one.median("Check", "ns/op"), one.median("Miss", "ns/op")
	allocs := max(one.most("Check", "allocs/op"), all.most("Check", "allocs/op"))
	together := all.median("Check", "ns/op")
	perIP := memory.median("Memory", "bytes/ip")
	return []report.Row{{
		What:     "check of an address, 1,000,000 blocked ips and 100,000 ranges",
		Measured: fmt.Sprintf("%.0f ns, %.0f allocations", ns, allocs),
		Against:  fmt.Sprintf("%.0f ns (one read of memory that is not cached)", miss),
		Ratio:    fmt.Sprintf("%.2f×", ns/miss),
		Reach:    "≤ 200 ns, 0 allocations",
		Met:      ns <= 200 && allocs == 0,
	}, {
		What:     "the same on all processors at once, time by check",
		Measured: fmt.Sprintf("%.0f ns", together),
		Against:  fmt.Sprintf("%.0f ns (on one)", ns),
		Ratio:    fmt.Sprintf("%.2f×", together/ns),
		Reach:    "no lock shared by readers: < 1×",
		Met:      together < ns,
	}, {
		What:     "memory of the table with 1,000,000 blocked ips",
		Measured: fmt.Sprintf("%.0f bytes per ip", perIP),
		Against:  "–",
		Ratio:    "–",
		Reach:    "≤ 120 bytes",
		Met:      perIP <= 120,
	}}, nil
}

// recordDenial runs the benchmark of the edge's outbox: denials of 1,000
// addresses, while intervals are cut, written and sent.
func recordDenial(ctx context.Context, b *bench) ([]report.Row, error) {
	results, err := goBenchmarks(ctx, "services/edge/internal/outbox", "^BenchmarkRecord$", b.benchtime, "-count=3", onOne)
	if err != nil {
		return nil, err
	}
	ns, allocs := results.median("Record", "ns/op"), results.most("Record", "allocs/op")
	return []report.Row{{
		What:     "recording a denial on the request path",
		Measured: fmt.Sprintf("%.0f ns, %.0f allocations", ns, allocs),
		Against:  "–",
		Ratio:    "–",
		Reach:    "≤ 300 ns, 0 allocations",
		Met:      ns <= 300 && allocs == 0,
	}}, nil
}
