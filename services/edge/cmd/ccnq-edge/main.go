// Command ccnq-edge is the reverse proxy that clients see. It is configured by
// environment variables alone; see the README for their list.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/ccnq/ccnq/pkg/admin"
	"github.com/ccnq/ccnq/pkg/config"
	"github.com/ccnq/ccnq/pkg/lifecycle"
	"github.com/ccnq/ccnq/services/edge"
)

func main() { os.Exit(run()) }

func run() int {
	var cfg edge.Config
	if err := config.Load(os.Environ(), &cfg); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	if len(os.Args) > 1 {
		return admin.Command(context.Background(), os.Args[1:], cfg.General.AdminAddr, os.Stderr)
	}
	logger := admin.NewLogger(os.Stderr, cfg.General.LogLevel)
	var group *lifecycle.Group
	e, err := edge.New(cfg, edge.Deps{Logger: logger, Fail: func(err error) { group.Fail(err) }})
	if err != nil {
		fmt.Fprintln(os.Stderr, "configuration:", err)
		return 2
	}
	group = lifecycle.New(lifecycle.Component{
		Name: "edge", Start: e.Start, Stop: e.Stop, StopTimeout: cfg.StopTimeout(),
	})
	err = lifecycle.Run(context.Background(), group, func() {
		if err := e.Reload(); err != nil {
			logger.Error("reload failed; what was loaded before stays", "error", err)
		}
	})
	if err != nil {
		logger.Error("stopped", "error", err)
	}
	return lifecycle.ExitCode(err)
}
