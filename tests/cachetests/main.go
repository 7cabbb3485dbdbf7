// Command cachetests runs the public HTTP cache test suite (npm package
// http-cache-tests, https://cache-tests.fyi) against the edge: its server as
// the origin, its command line client as the client, and in between an edge
// with the cache on, rules that match every request and no fallback lifetime.
// It prints how many tests of each kind pass, and every one that does not.
//
// The suite needs node and npm. The README tells which failures are known, and
// why.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

// limit bounds a run; one takes about half a minute, without the time for
// installing the suite.
const limit = 10 * time.Minute

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	cancel()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "cachetests:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) (err error) {
	flags := flag.NewFlagSet("cachetests", flag.ContinueOnError)
	edge := flags.String("edge", "bin/ccnq-edge", "the edge's binary")
	folder := flags.String("folder", "tests/cachetests", "where package.json is")
	suite := flags.String("suite", "", "a version of the suite other than package.json's, or a folder with one that is installed")
	bounds := bounds{}
	flags.IntVar(&bounds.required, "required", 0, "fail if fewer of the required tests pass")
	flags.IntVar(&bounds.optimal, "optimal", 0, "fail if fewer of the optimal tests pass")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unknown argument %q", flags.Arg(0))
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()

	binary, err := filepath.Abs(*edge)
	if err != nil {
		return err
	}
	if _, err := os.Stat(binary); err != nil {
		return fmt.Errorf("the edge's binary: %w (make build makes it)", err)
	}
	s, err := install(ctx, *folder, *suite)
	if err != nil {
		return err
	}
	tests, err := s.tests(ctx)
	if err != nil {
		return err
	}
	results, err := s.runAgainst(ctx, binary)
	if err != nil {
		return err
	}
	sum := summarize(tests, results)
	if err := sum.print(os.Stdout, s.version); err != nil {
		return err
	}
	return sum.check(bounds)
}
