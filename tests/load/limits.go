package main

import (
	"context"
	"fmt"
	"net/http"

	"github.com/ccnq/ccnq/tests/load/internal/report"
	"github.com/ccnq/ccnq/tests/load/internal/traffic"
)

// limits measures package qos: its decisions with the benchmarks of the package, and
// its middleware on a server.
func limits(ctx context.Context, b *bench) ([]report.Row, error) {
	decision, err := b.decision(ctx)
	if err != nil {
		return nil, err
	}
	scaling, err := b.decisionsTogether(ctx)
	if err != nil {
		return nil, err
	}
	middleware, err := b.middleware(ctx)
	if err != nil {
		return nil, err
	}
	memory, err := goBenchmarks(ctx, "pkg/qos", "^BenchmarkMemoryPerKey$", "1x", onOne)
	if err != nil {
		return nil, err
	}
	most := 0.0
	for _, kind := range []string{"host", "ip", "subnet"} {
		most = max(most, memory.most("MemoryPerKey/"+kind, "B/key"))
	}
	apart := memory.most("MemoryPerKey/subnet_with_128_addresses", "B/key")
	rows := append([]report.Row{decision, scaling}, middleware...)
	return append(rows, report.Row{
		What:     "memory of a tracked host, address or subnet, 40 requests a second over 10 s, the largest",
		Measured: fmt.Sprintf("%.0f bytes (a subnet that tells 256 addresses apart: %.0f)", most, apart),
		Against:  "–",
		Ratio:    "–",
		Reach:    "≤ 1 KiB",
		Met:      most <= 1<<10,
	}), nil
}

// decision is one with all limits on.
func (b *bench) decision(ctx context.Context) (report.Row, error) {
	const pattern = "^BenchmarkDecide$/^hosts=100$/^subnets=2500$/^compat=false$/^cluster=false$"
	results, err := goBenchmarks(ctx, "pkg/qos", pattern, b.benchtime, "-count=3", onOne)
	if err != nil {
		return report.Row{}, err
	}
	const name = "Decide/hosts=100/subnets=2500/compat=false/cluster=false"
	ns, allocs := results.median(name, "ns/op"), results.most(name, "allocs/op")
	return report.Row{
		What:     "a decision of qos, all limits on, 10,000 addresses of 2,500 subnets, 100 hosts",
		Measured: fmt.Sprintf("%.0f ns, %.0f allocations", ns, allocs),
		Against:  "–",
		Ratio:    "–",
		Reach:    "≤ 500 ns, 0 allocations",
		Met:      ns <= 500 && allocs == 0,
	}, nil
}

// decisionsTogether compares two processors with one, in turn.
func (b *bench) decisionsTogether(ctx context.Context) (report.Row, error) {
	var pairs report.Pairs
	for range min(b.rounds, 3) {
		var ns [2]float64
		for i, processors := range []string{"-cpu=1", "-cpu=2"} {
			results, err := goBenchmarks(ctx, "pkg/qos", "^BenchmarkDecideParallel$/^hosts=100$", b.benchtime, processors)
			if err != nil {
				return report.Row{}, err
			}
			ns[i] = results.median("DecideParallel/hosts=100", "ns/op")
		}
		pairs.Add(1e9/ns[1], 1e9/ns[0])
	}
	return report.Row{
		What:     "decisions of qos per second on two processors",
		Measured: fmt.Sprintf("%.0f /s", pairs.Measured()),
		Against:  fmt.Sprintf("%.0f /s (on one)", pairs.Against()),
		Ratio:    fmt.Sprintf("%.2f×", pairs.Ratio()),
		Reach:    "≥ 1.6×",
		Met:      pairs.Ratio() >= 1.6,
	}, nil
}

// middleware compares a server behind a limiter with the same server without.
func (b *bench) middleware(ctx context.Context) (_ []report.Row, err error) {
	var c closers
	defer c.close(&err)
	bare, err := b.serve(&c, "limited", "bare")
	if err != nil {
		return nil, err
	}
	request := traffic.Request("/", "203.0.113.7")
	against, err := newLoad(&c, bare, request, http.StatusOK)
	if err != nil {
		return nil, err
	}
	var rows []report.Row
	for _, way := range []struct {
		how, what string
		status    int
		reach     float64
	}{
		{"pass", "hello world behind qos, all limits on", http.StatusOK, 1.08},
		{"refuse", "a refusal of qos, connection kept", http.StatusServiceUnavailable, 1.05},
	} {
		server, err := b.serve(&c, "limited", way.how)
		if err != nil {
			return nil, err
		}
		if way.how == "refuse" { // all but the first
			if err := ask(server, request); err != nil {
				return nil, err
			}
		}
		measured, err := newLoad(&c, server, request, way.status)
		if err != nil {
			return nil, err
		}
		var pairs report.Pairs
		if err := b.compare(ctx, &pairs, measured, against); err != nil {
			return nil, err
		}
		rows = append(rows, report.Row{
			What:     fmt.Sprintf("%s, %d connections, CPU per request", way.what, connections),
			Measured: micros(pairs.Measured()),
			Against:  micros(pairs.Against()) + " (the handler alone)",
			Ratio:    fmt.Sprintf("%.3f×", pairs.Ratio()),
			Reach:    fmt.Sprintf("≤ %.2f×", way.reach),
			Met:      pairs.Ratio() <= way.reach,
		})
	}
	return rows, nil
}

// ask sends one request.
func ask(to *edge, request []byte) error {
	conn, err := traffic.Dial(to.addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = conn.Do(request)
	return err
}
