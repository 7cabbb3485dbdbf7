// Command withpg runs a command with one Postgres server that all the tests in
// it share:
//
//	withpg go test work
//
// It starts a server, names it in CCNQ_TEST_DATABASE_URL, runs the command,
// stops the server, and exits as the command did. If the variable is set
// already, it only runs the command. Interrupts reach the command through its
// terminal; SIGTERM is passed on.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/ccnq/ccnq/pkg/testdb/internal/pgserver"
)

func main() {
	code, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "withpg:", err)
	}
	os.Exit(code)
}

func run(args []string) (code int, err error) {
	if len(args) == 0 {
		return 2, errors.New("usage: withpg COMMAND [ARGUMENT…]")
	}
	ctx := context.Background()
	address, stop, err := pgserver.Open(ctx)
	if err != nil {
		return 1, err
	}
	defer func() {
		if stopErr := stop(ctx); stopErr != nil {
			code, err = 1, errors.Join(err, stopErr)
		}
	}()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), pgserver.URLVariable+"="+address)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	// A signal must not end this process before the server is stopped.
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if err := cmd.Start(); err != nil {
		return 1, err
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for {
		select {
		case sig := <-signals:
			if sig == syscall.SIGTERM {
				_ = cmd.Process.Signal(sig)
			}
		case err := <-done:
			var exit *exec.ExitError
			if err != nil && !errors.As(err, &exit) {
				return 1, err
			}
			if code := cmd.ProcessState.ExitCode(); code >= 0 {
				return code, nil
			}
			return 1, err // ended by a signal
		}
	}
}
