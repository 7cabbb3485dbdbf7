package main

import (
	"context"
	"fmt"
	"time"

	"github.com/ccnq/ccnq/tests/load/internal/process"
	"github.com/ccnq/ccnq/tests/load/internal/report"
)

const (
	syncPackage = "services/edge/internal/qoscluster"
	// syncInterval is how often edges sync by default, syncBudget how much of it a
	// sync may take.
	syncInterval = 2 * time.Second
	syncBudget   = 500 * time.Millisecond
)

// qosSync measures how ten edges and a denylist service count together by way of
// NATS, with the benchmarks of the edge's package. The service has no Postgres.
func qosSync(ctx context.Context, b *bench) (_ []report.Row, err error) {
	var c closers
	defer c.close(&err)
	nats, _, err := b.startJetStream(&c)
	if err != nil {
		return nil, err
	}
	ports, err := freePorts(1)
	if err != nil {
		return nil, err
	}
	admin := fmt.Sprintf("127.0.0.1:%d", ports[0])
	env := settings{
		"CCNQ_ADMIN_ADDR": admin, "CCNQ_LOG_LEVEL": "error", "CCNQ_NATS_URL": nats, "CCNQ_QUEUE_DENYLIST_ENABLED": "false",
		"CCNQ_QOS_CLUSTER": "nats", "CCNQ_QOS_MAX_AGE_MS": "600000", "CCNQ_QOS_CLUSTER_MAX_IP_RATE": "2",
	}
	service, err := process.Start("the denylist", env.environ(nil), b.command("ccnq-denylist"))
	if err != nil {
		return nil, err
	}
	c.add(service.Stop)
	if err := service.Await(ctx, "the denylist publishes lists", func() bool {
		leads, err := scrape(ctx, admin, "ccnq_denylist_qos_leader")
		return err == nil && leads == 1
	}); err != nil {
		return nil, err
	}
	rounds := fmt.Sprintf("%dx", b.rounds)
	syncs, err := goBenchmarksAt(ctx, nats, syncPackage, "^BenchmarkSync$", rounds)
	if err != nil {
		return nil, err
	}
	requests, err := goBenchmarks(ctx, syncPackage, "^BenchmarkDecideWhileSyncing$", rounds)
	if err != nil {
		return nil, err
	}
	var rows []report.Row
	for _, line := range []struct {
		name, what string
		budget     time.Duration
	}{
		{"spread", "sync of 50,000 addresses over 10 edges by NATS, until each edge has new lists, edges and service on this machine", syncBudget},
		{"everywhere", "the same with 50,000 addresses at each edge, 500,000 counts", syncInterval},
	} {
		took := time.Duration(syncs.median("Sync/"+line.name, "ns/op"))
		rows = append(rows, report.Row{
			What: line.what, Measured: fmt.Sprintf("%.3f s", took.Seconds()),
			Against: fmt.Sprintf("%.0f s (the interval)", syncInterval.Seconds()), Ratio: fmt.Sprintf("%.2f×", took.Seconds()/syncInterval.Seconds()),
			Reach: fmt.Sprintf("≤ %.1f s", line.budget.Seconds()), Met: took <= line.budget,
		})
	}
	const idle, busy = "DecideWhileSyncing/syncing=false", "DecideWhileSyncing/syncing=true"
	slow, slowBusy := requests.median(idle, "p99.9-ns"), requests.median(busy, "p99.9-ns")
	return append(rows, report.Row{
		What:     "the slowest decision of a thousand while 50,000 addresses are synced",
		Measured: fmt.Sprintf("%.1f µs (of 100,000: %.1f ms)", slowBusy/1e3, requests.median(busy, "slowest-ns")/1e6),
		Against:  fmt.Sprintf("%.1f µs (%.1f ms) without a sync", slow/1e3, requests.median(idle, "slowest-ns")/1e6),
		Ratio:    fmt.Sprintf("%.2f×", slowBusy/slow),
		Reach:    "≤ 100 µs: no pause",
		Met:      slowBusy <= 100e3,
	}), nil
}
