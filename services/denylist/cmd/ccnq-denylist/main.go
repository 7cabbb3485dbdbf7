// Command ccnq-denylist counts the denials that edges report, and blocks who
// collects them. It is configured by environment variables alone; see the
// README for their list.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/ccnq/ccnq/pkg/admin"
	"github.com/ccnq/ccnq/pkg/config"
	"github.com/ccnq/ccnq/pkg/lifecycle"
	"github.com/ccnq/ccnq/services/denylist"
)

func main() { os.Exit(run()) }

// run returns the exit code: 2 when the configuration is no good.
func run() int {
	var cfg denylist.Config
	if err := config.Load(os.Environ(), &cfg); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	if len(os.Args) > 1 {
		return admin.Command(context.Background(), os.Args[1:], cfg.General.AdminAddr, os.Stderr)
	}
	logger := admin.NewLogger(os.Stderr, cfg.General.LogLevel)
	var group *lifecycle.Group
	s := denylist.New(cfg, denylist.Deps{
		Logger: logger,
		Fail:   func(err error) { group.Fail(err) },
	})
	group = lifecycle.New(lifecycle.Component{Name: "denylist", Start: s.Start, Stop: s.Stop})
	err := lifecycle.Run(context.Background(), group, nil)
	if err != nil {
		logger.Error("ended", "error", err)
	}
	return lifecycle.ExitCode(err)
}
