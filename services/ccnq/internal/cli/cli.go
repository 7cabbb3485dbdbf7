// Package cli is the command line of the ccnq program.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/ccnq/ccnq/pkg/config"
)

// Exit codes of the program.
const (
	exitOK     = 0
	exitFailed = 1
	// exitConfig means that the environment or the command line is no good.
	exitConfig = 2
	// exitUnknown means that a question with a yes or no could not be answered.
	exitUnknown = 3
)

// unknownError marks why a question with a yes or no could not be answered.
type unknownError struct{ error }

func (e unknownError) Unwrap() error { return e.error }

// configError marks what is wrong with a configuration beyond single values.
type configError struct{ error }

func (e configError) Unwrap() error { return e.error }

// Run runs one command line and returns the exit code of the program.
func Run(ctx context.Context, version string, args []string, stdout, stderr io.Writer) int {
	root := &cobra.Command{
		Use:           "ccnq",
		Short:         "Keep a web origin alive under a flood",
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(runCommand(), rulesCommand(), blocksCommand(), cacheCommand(), eventsCommand(),
		healthCommand(), credentialsCommand(), migrateCommand(), demoCommand())
	began := false
	onRun(root, func() { began = true })
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errNoMatch):
		return exitFailed
	}
	fmt.Fprintln(stderr, err)
	if _, ok := errors.AsType[*config.Error](err); ok {
		return exitConfig
	}
	if _, ok := errors.AsType[configError](err); ok || !began {
		return exitConfig
	}
	if _, ok := errors.AsType[unknownError](err); ok {
		return exitUnknown
	}
	return exitFailed
}

// onRun calls begin when a command line has been understood, and a command
// begins.
func onRun(cmd *cobra.Command, begin func()) {
	if run := cmd.RunE; run != nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			begin()
			return run(cmd, args)
		}
	}
	for _, sub := range cmd.Commands() {
		onRun(sub, begin)
	}
}
