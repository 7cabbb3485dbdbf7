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
)

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
	if _, ok := errors.AsType[configError](err); ok {
		return exitConfig
	}
	return exitFailed
}
