package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/ccnq/ccnq/tests/load/internal/report"
)

// row measures one thing, or several that one set-up serves.
type row struct {
	name    string
	measure func(context.Context, *bench) ([]report.Row, error)
}

var rows = []row{
	{"pass-through", passThrough},
	{"groups", manyGroups},
	{"hot-group", hotGroup},
	{"admit", loneAdmit},
	{"promotion", promotion},
	{"memo", fullMemo},
	{"flood", flood},
	{"rules", ruleMatch},
	{"memory", memory},
	{"check", blockCheck},
	{"denial", recordDenial},
	{"blocked", blocked},
	{"projector", projector},
	{"limits", limits},
	{"qos-sync", qosSync},
	{"cache-hit", cacheHits},
	{"cache-miss", cacheMisses},
	{"cache-store", cacheStore},
}

// size is how much is measured.
type size struct {
	rounds       int           // of each pair
	round        time.Duration // of what is measured by time
	requests     int           // of a round that is measured by number
	groups       int           // with one waiter each
	inFlight     int           // requests in memory
	memoryRounds int
	benchtime    string // as for go test
	checks       int    // of an address, in a full table
	blocks       int    // in the bucket
	starts       int    // of edges that read them
	denials      int    // of a round of the projector
	denialRounds int
	rebuilt      int // denials of a rebuild, at least those of the rounds
	entries      int // of the cache's index
	writes       int // of entries of 16 KiB
}

var (
	full = size{
		rounds: 11, round: time.Second, requests: 5_000, groups: 100, inFlight: 10_000, memoryRounds: 3, benchtime: "300ms",
		checks: 3_000_000, blocks: 1_000_000, starts: 3, denials: 200_000, denialRounds: 3, rebuilt: 1_000_000,
		entries: 1_000_000, writes: 400_000,
	}
	quick = size{
		rounds: 3, round: 500 * time.Millisecond, requests: 2_500, groups: 50, inFlight: 2_000, memoryRounds: 1, benchtime: "50ms",
		checks: 500_000, blocks: 100_000, starts: 1, denials: 50_000, denialRounds: 1, rebuilt: 100_000,
		entries: 100_000, writes: 40_000,
	}
)

// bench is what the rows share.
type bench struct {
	size
	dir      string // of what was built, and of files that rows need
	database string // the address of a Postgres
}

// command returns the path of a program that was built.
func (b *bench) command(name string) string { return filepath.Join(b.dir, name) }

func main() { os.Exit(command()) }

func command() (code int) {
	only := flag.String("row", "", "measure this row alone: "+strings.Join(names(), ", "))
	short := flag.Bool("quick", false, "measure less: a look, not a result")
	soaking := flag.Duration("soak", 0, "instead of the rows, churn through a cache for so long and check what it does")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if *soaking > 0 {
		if err := soak(ctx, os.Stdout, *soaking); err != nil {
			fmt.Fprintln(os.Stderr, "soak:", err)
			return 1
		}
		return 0
	}
	size := full
	if *short {
		size = quick
	}
	if err := run(ctx, os.Stdout, *only, size); err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		return 1
	}
	return 0
}

func names() []string {
	var out []string
	for _, r := range rows {
		out = append(out, r.name)
	}
	return out
}

// run measures all rows, or the one that is named, and writes the table. A row
// that cannot be measured does not keep the others from it.
func run(ctx context.Context, out io.Writer, only string, size size) error {
	b := &bench{size: size, database: os.Getenv("CCNQ_TEST_DATABASE_URL")}
	if b.database == "" {
		return errors.New("CCNQ_TEST_DATABASE_URL is not set; make bench starts a Postgres and sets it")
	}
	var err error
	if b.dir, err = os.MkdirTemp("", "ccnq-load-"); err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)
	if err := b.build(ctx); err != nil {
		return err
	}
	busy := loadAverage()
	var (
		table    []report.Row
		problems []error
		found    bool
	)
	for _, r := range rows {
		if ctx.Err() != nil || only != "" && only != r.name {
			continue
		}
		found = true
		began := time.Now()
		lines, err := r.measure(ctx, b)
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", r.name, err))
		}
		table = append(table, lines...)
		fmt.Fprintf(os.Stderr, "%s: %s\n", r.name, time.Since(began).Round(100*time.Millisecond))
	}
	if !found && ctx.Err() == nil {
		return fmt.Errorf("no row is named %q; there are %s", only, strings.Join(names(), ", "))
	}
	problems = append(problems, ctx.Err(), report.Write(out, table))
	fmt.Fprintf(out, "\n%d CPUs, %s, %d rounds; load average before: %s\n", runtime.NumCPU(), runtime.Version(), size.rounds, busy)
	return errors.Join(problems...)
}

// loadAverage is that of the last minute: above the number of CPUs, something
// else runs on the machine, and the figures are worth less.
func loadAverage() string {
	line, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	minute, _, _ := strings.Cut(string(line), " ")
	return minute
}

// build makes the programs as `make build` does.
func (b *bench) build(ctx context.Context) error {
	const module = "github.com/ccnq/ccnq"
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", b.dir+"/",
		module+"/services/denylist/cmd/ccnq-denylist",
		module+"/services/edge/cmd/ccnq-edge",
		module+"/tests/load/cmd/backstage",
		module+"/tests/load/cmd/baseline",
		module+"/tests/load/cmd/limited",
	)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w: %s", err, out)
	}
	return nil
}
