// Command ccnq-queue-coordinator decides, for all edges, who goes on to the
// origin and who waits. It is configured by environment variables alone; see
// the README for their list.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/ccnq/ccnq/pkg/admin"
	"github.com/ccnq/ccnq/pkg/config"
	"github.com/ccnq/ccnq/pkg/lifecycle"
	coordinator "github.com/ccnq/ccnq/services/queue-coordinator"
)

func main() { os.Exit(run()) }

// run returns the exit code: 2 when the configuration is no good.
func run() int {
	var cfg coordinator.Config
	if err := config.Load(os.Environ(), &cfg); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	if len(os.Args) > 1 {
		return admin.Command(context.Background(), os.Args[1:], cfg.General.AdminAddr, os.Stderr)
	}
	logger := admin.NewLogger(os.Stderr, cfg.General.LogLevel)
	var group *lifecycle.Group
	c := coordinator.New(cfg, coordinator.Deps{
		Logger: logger,
		Fail:   func(err error) { group.Fail(err) },
	})
	group = lifecycle.New(lifecycle.Component{Name: "queue-coordinator", Start: c.Start, Stop: c.Stop})
	err := lifecycle.Run(context.Background(), group, nil)
	if err != nil {
		logger.Error("ended", "error", err)
	}
	return lifecycle.ExitCode(err)
}
