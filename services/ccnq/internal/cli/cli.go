// Package cli is the command line of the ccnq program.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

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

// Run runs one command line and returns the exit code of the program.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := &cobra.Command{
		Use:           "ccnq",
		Short:         "Keep a web origin alive under a flood",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(runCommand(), rulesCommand())
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
	return exitFailed
}

// environment returns the environment with a default for a variable that is
// not set.
func environment(defaults map[string]string) []string {
	out := os.Environ()
	for name, value := range defaults {
		if os.Getenv(name) == "" && os.Getenv(name+"_FILE") == "" {
			out = append(out, name+"="+value)
		}
	}
	return out
}
