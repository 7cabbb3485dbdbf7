package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// limit bounds everything.
const limit = 20 * time.Minute

func main() {
	only := flag.String("only", "", "run one part alone: flood, kill, outage, roll, theft or upgrade")
	keep := flag.Bool("keep", false, "leave the containers running")
	logName := flag.String("log", "", "file for what docker said; without it only failures are shown")
	flag.Parse()
	os.Exit(logged(*only, *keep, *logName))
}

// logged runs everything with a log, and returns the exit code.
func logged(only string, keep bool, logName string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if logName == "" {
		return run(ctx, only, keep, io.Discard)
	}
	file, err := os.Create(logName)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	defer file.Close()
	return run(ctx, only, keep, file)
}

// run returns the exit code: 1 if a promise was broken or a part could not be
// tested.
func run(ctx context.Context, only string, keep bool, log io.Writer) int {
	t, err := newTrial(ctx, log)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if !keep {
		defer t.remove()
	}
	parts := []struct {
		name string
		do   func(context.Context) error
	}{
		{"flood", t.flood}, {"kill", t.kill}, {"outage", t.outage}, {"roll", t.roll}, {"theft", t.theft}, {"upgrade", t.upgrade},
	}
	if err := t.up(ctx); err != nil {
		t.fail("start", err)
		t.showLogs()
		t.print()
		return 1
	}
	for _, part := range parts {
		if only != "" && part.name != only {
			continue
		}
		begun := time.Now()
		if err := part.do(ctx); err != nil {
			t.fail(part.name, err)
			t.showLogs()
		}
		fmt.Fprintf(os.Stderr, "%s: %.0f s\n", part.name, time.Since(begun).Seconds())
	}
	t.print()
	if t.broken > 0 {
		return 1
	}
	return 0
}

// trial is one installation under test, and what was found.
type trial struct {
	*engine
	clients *clients
	rows    []row
	broken  int
	counted int64 // denials in the database when it was looked at last
}

// row is a line of the table.
type row struct{ what, figure, want, met string }

// newTrial finds the repository and free addresses, and builds nothing yet.
func newTrial(ctx context.Context, log io.Writer) (*trial, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOWORK").Output()
	if err != nil {
		return nil, fmt.Errorf("find the repository: %w", err)
	}
	front, err := freeAddress()
	if err != nil {
		return nil, err
	}
	counts, err := freeAddress()
	if err != nil {
		return nil, err
	}
	net := fmt.Sprintf("10.%d.%d", 200+os.Getpid()%50, os.Getpid()/50%256)
	t := &trial{
		engine: &engine{
			root: filepath.Dir(strings.TrimSpace(string(out))), project: fmt.Sprintf("ccnq-test-%d", os.Getpid()), log: log,
			env: []string{
				"CCNQ_IMAGE_PREFIX=ccnq-test", "CCNQ_TAG=latest", "CCNQ_PUBLISH=" + front, "CCNQ_TEST_COUNTS=" + counts,
				"CCNQ_TEST_HELPER=" + helperImage, "CCNQ_FRONT_SUBNET=" + net + ".0/24", "CCNQ_FRONT_ADDRESS=" + net + ".2",
				"CCNQ_EDGE_RANGE=" + net + ".128/25", "DOCKER_CLI_HINTS=false",
			},
		},
		clients: newClients(front, counts),
	}
	if _, err := t.run(ctx, "version"); err != nil {
		return nil, fmt.Errorf("no container engine answers: %w", err)
	}
	return t, nil
}

// freeAddress is one on the loopback interface that nobody listens on.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// note adds a line to the table.
func (t *trial) note(what, figure, want string, met bool) {
	r := row{what, figure, want, "yes"}
	if !met {
		r.met = "NO"
		t.broken++
	}
	t.rows = append(t.rows, r)
	fmt.Fprintf(os.Stderr, "  %s: %s (%s) %s\n", what, figure, want, r.met)
}

// tell adds a line that promises nothing.
func (t *trial) tell(what, figure string) {
	t.rows = append(t.rows, row{what, figure, "printed", "–"})
	fmt.Fprintf(os.Stderr, "  %s: %s\n", what, figure)
}

// fail adds a line about a part that could not be tested.
func (t *trial) fail(part string, err error) {
	t.note(part, err.Error(), "can be tested", false)
}

func (t *trial) print() {
	fmt.Println("| what | found | wanted | met |\n| --- | --- | --- | --- |")
	for _, r := range t.rows {
		fmt.Printf("| %s | %s | %s | %s |\n", r.what, strings.ReplaceAll(r.figure, "\n", " "), r.want, r.met)
	}
}

// showLogs shows the end of what the containers said.
func (t *trial) showLogs() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	out, _ := t.compose(ctx, "logs", "--tail", "15", "--no-color")
	states, _ := t.compose(ctx, "ps", "-a")
	fmt.Fprintln(os.Stderr, out+"\n"+states)
}

// remove removes everything but the images.
func (t *trial) remove() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if _, err := t.compose(ctx, "down", "-v", "-t", "1", "--remove-orphans"); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}
