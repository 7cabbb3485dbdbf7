package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ccnq/ccnq/tests/load/internal/report"
	"github.com/ccnq/ccnq/tests/load/internal/traffic"
)

const (
	smallPage = 1 << 10
	largePage = 64 << 10
)

// writeSized is an origin whose pages are as long as the first part of the path
// says, and may be stored for an hour.
func writeSized(w http.ResponseWriter, r *http.Request) {
	n, err := strconv.Atoi(strings.Split(r.URL.Path, "/")[1])
	if err != nil || n > 1<<20 {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Cache-Control", "public, max-age=3600")
	w.Header().Set("Content-Type", "text/plain")
	w.Header().Set("Content-Length", strconv.Itoa(n))
	_, _ = w.Write(make([]byte, n)) // the edge may be gone
}

// caching returns the settings of an edge that stores everything.
func (b *bench) caching(more settings) (settings, error) {
	dir, err := os.MkdirTemp(b.dir, "cache-")
	if err != nil {
		return nil, err
	}
	file := b.command("rules-cache.json")
	s := settings{"CCNQ_CACHE_DIR": dir, "CCNQ_CACHE_ENABLED": "true", "CCNQ_CACHE_RULES_FILE": file}
	for name, value := range more {
		s[name] = value
	}
	return s, os.WriteFile(file, []byte(everything), 0o600)
}

// cacheHits compares hits with nginx' cache and with a handler that writes the
// same bytes, and hits from the file with those from memory.
func cacheHits(ctx context.Context, b *bench) (_ []report.Row, err error) {
	var c closers
	defer c.close(&err)
	upstream, err := startOrigin(&c, writeSized)
	if err != nil {
		return nil, err
	}
	var edges [2]*edge // with the memory tier, and without
	for i, more := range []settings{nil, {"CCNQ_CACHE_MEMORY_BYTES": "0"}} {
		s, err := b.caching(more)
		if err != nil {
			return nil, err
		}
		if edges[i], err = b.startEdge(ctx, &c, upstream, s); err != nil {
			return nil, err
		}
	}
	nginx, err := b.startNginx(ctx, &c, strings.TrimPrefix(upstream, "http://"))
	if err != nil {
		return nil, err
	}
	var rows []report.Row
	for _, size := range []struct {
		bytes                    int
		name                     string
		againstNginx, againstOwn float64
	}{{smallPage, "1 KiB", 0.9, 1.15}, {largePage, "64 KiB", 1.05, 0}} {
		request := traffic.Request(fmt.Sprintf("/%d/page", size.bytes), "203.0.113.7")
		hit, err := newLoad(&c, edges[0], request, http.StatusOK)
		if err != nil {
			return nil, err
		}
		what := fmt.Sprintf("cache hit of %s, %d connections, CPU per request", size.name, connections)
		if nginx != nil {
			against, err := newLoad(&c, nginx, request, http.StatusOK)
			if err != nil {
				return nil, err
			}
			row, err := b.hits(ctx, what, hit, against, "nginx proxy_cache", size.againstNginx)
			if err != nil {
				return nil, err
			}
			rows = append(rows, row)
		} else {
			rows = append(rows, report.Row{What: what, Measured: "–", Against: "nginx is not installed", Ratio: "–", Reach: fmt.Sprintf("≤ %.2f×", size.againstNginx)})
		}
		if size.againstOwn == 0 {
			continue
		}
		handler, err := b.baseline(&c, "page", strconv.Itoa(size.bytes))
		if err != nil {
			return nil, err
		}
		against, err := newLoad(&c, handler, request, http.StatusOK)
		if err != nil {
			return nil, err
		}
		row, err := b.hits(ctx, what, hit, against, "net/http handler", size.againstOwn)
		if err != nil {
			return nil, err
		}
		file, err := newLoad(&c, edges[1], request, http.StatusOK)
		if err != nil {
			return nil, err
		}
		fromFile, err := b.hits(ctx, "the same from the file (bbolt)", file, hit, "from memory", 1.3)
		if err != nil {
			return nil, err
		}
		rows = append(rows, row, fromFile)
	}
	return rows, nil
}

// hits compares two.
func (b *bench) hits(ctx context.Context, what string, measured, against *load, name string, reach float64) (report.Row, error) {
	var p report.Pairs
	err := b.compare(ctx, &p, measured, against)
	return report.Row{
		What:     what,
		Measured: micros(p.Measured()),
		Against:  micros(p.Against()) + " (" + name + ")",
		Ratio:    fmt.Sprintf("%.2f×", p.Ratio()),
		Reach:    fmt.Sprintf("≤ %.2f×", reach),
		Met:      p.Ratio() <= reach,
	}, err
}

// cacheMisses compares requests that all miss and are written with the same
// proxy without a cache.
func cacheMisses(ctx context.Context, b *bench) (_ []report.Row, err error) {
	var c closers
	defer c.close(&err)
	upstream, err := startOrigin(&c, writeSized)
	if err != nil {
		return nil, err
	}
	caching, err := b.caching(nil)
	if err != nil {
		return nil, err
	}
	var ways [2]*missing
	for i, s := range []settings{caching, nil} {
		e, err := b.startEdge(ctx, &c, upstream, s)
		if err != nil {
			return nil, err
		}
		crowd, err := traffic.Gather(e.addr, connections)
		if err != nil {
			return nil, err
		}
		c.add(func() error { crowd.Close(); return nil })
		ways[i] = &missing{edge: e, crowd: crowd}
	}
	var cpu, late report.Pairs
	for round := range b.rounds + 1 {
		with, withP99, err := ways[0].round(ctx, b.requests)
		if err != nil {
			return nil, err
		}
		without, withoutP99, err := ways[1].round(ctx, b.requests)
		if err != nil {
			return nil, err
		}
		if round > 0 { // the first warms up
			cpu.Add(with, without)
			late.Add(withP99, withoutP99)
		}
	}
	what := fmt.Sprintf("cache miss of 16 KiB that is written, %d connections, ", connections)
	rows := make([]report.Row, 0, 2)
	for name, p := range map[string]*report.Pairs{"CPU per request": &cpu, "the client's p99": &late} {
		rows = append(rows, report.Row{
			What:     what + name,
			Measured: micros(p.Measured()),
			Against:  micros(p.Against()) + " (cache off)",
			Ratio:    fmt.Sprintf("%.2f×", p.Ratio()),
			Reach:    "≤ 1.15×",
			Met:      p.Ratio() <= 1.15,
		})
	}
	if strings.HasSuffix(rows[0].What, "p99") {
		rows[0], rows[1] = rows[1], rows[0]
	}
	return rows, nil
}

// missing sends requests of which no two are the same.
type missing struct {
	*edge
	crowd traffic.Crowd
	asked atomic.Int64
}

// round sends requests, and returns the CPU time of each and the 99th percentile
// of their times, both in nanoseconds.
func (m *missing) round(ctx context.Context, requests int) (cpu, p99 float64, err error) {
	before, err := m.CPU()
	if err != nil {
		return 0, 0, err
	}
	var (
		left  atomic.Int64
		mu    sync.Mutex
		times []time.Duration
	)
	left.Store(int64(requests))
	err = traffic.Each(len(m.crowd), func(i int) error {
		var mine []time.Duration
		for left.Add(-1) >= 0 && ctx.Err() == nil {
			request := traffic.Request(fmt.Sprintf("/%d/%d", 16<<10, m.asked.Add(1)), "203.0.113.7")
			began := time.Now()
			status, err := m.crowd[i].Do(request)
			if err != nil {
				return err
			}
			if status != http.StatusOK {
				return fmt.Errorf("a response has status %d, want 200", status)
			}
			mine = append(mine, time.Since(began))
		}
		mu.Lock()
		defer mu.Unlock()
		times = append(times, mine...)
		return ctx.Err()
	})
	if err != nil {
		return 0, 0, err
	}
	after, err := m.CPU()
	return float64(after-before) / float64(requests), float64(report.Percentile(times, 99)), err
}

// cacheStore runs the benchmarks of the store: the index of a million entries,
// writes over a full budget, and what the file comes to.
func cacheStore(ctx context.Context, b *bench) ([]report.Row, error) {
	const pkg = "services/edge/internal/cache/store"
	entries := strconv.Itoa(b.entries)
	index, err := goBenchmarks(ctx, pkg, "^BenchmarkIndex$/^"+entries+"$", "1x")
	if err != nil {
		return nil, err
	}
	write, err := goBenchmarks(ctx, pkg, "^BenchmarkWrite$/^16KiB$", fmt.Sprintf("%dx", b.writes))
	if err != nil {
		return nil, err
	}
	perEntry, open := index.median("Index/"+entries, "B/entry"), index.median("Index/"+entries, "ns/op")
	rate, file := write.median("Write/16KiB", "entries/s"), write.median("Write/16KiB", "file/budget")
	return []report.Row{{
		What:     "the cache's index in memory, " + entries + " entries (opened in " + time.Duration(open).Round(time.Millisecond).String() + ")",
		Measured: fmt.Sprintf("%.0f bytes per entry", perEntry), Against: "–", Ratio: "–",
		Reach: "≤ 150 bytes", Met: perEntry <= 150,
	}, {
		What:     "the cache's write path, entries of 16 KiB over a full budget",
		Measured: fmt.Sprintf("%.0f /s", rate), Against: "–", Ratio: "–",
		Reach: "≥ 10,000 /s", Met: rate >= 10_000,
	}, {
		What:     fmt.Sprintf("the cache's file after %.0f budgets were written", float64(b.writes)*(16<<10)/(256<<20)),
		Measured: fmt.Sprintf("%.2f budgets", file), Against: "–", Ratio: "–",
		Reach: "≤ 1.5 budgets", Met: file <= 1.5,
	}}, nil
}
