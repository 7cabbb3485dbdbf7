// Command backstage is what stands behind an edge that is measured:
//
//	backstage nats [DIR]                  a NATS server; with a folder, JetStream
//	backstage coordinator [unbatched]     a coordinator, by its variables
//	backstage relay EDGES COORDINATORS [full-memo|no-memo]
//	                                      between two NATS servers
//
// It writes one line to standard output once it is ready (the server's URL, or
// "ready") and runs until SIGTERM.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/ccnq/ccnq/pkg/admin"
	"github.com/ccnq/ccnq/pkg/bus/embed"
	"github.com/ccnq/ccnq/pkg/config"
	coordinator "github.com/ccnq/ccnq/services/queue-coordinator"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "backstage:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	switch {
	case slices.Equal(args, []string{"nats"}):
		return runNATS(ctx, "")
	case len(args) == 2 && args[0] == "nats":
		return runNATS(ctx, args[1])
	case slices.Equal(args, []string{"coordinator"}):
		return runCoordinator(ctx, false)
	case slices.Equal(args, []string{"coordinator", "unbatched"}):
		return runCoordinator(ctx, true)
	case len(args) == 4 && args[0] == "relay" && (args[3] == "full-memo" || args[3] == "no-memo"):
		return runRelay(ctx, args[1], args[2], args[3] == "full-memo")
	}
	return errors.New("usage: backstage nats [DIR] | coordinator [unbatched] | relay EDGES COORDINATORS full-memo|no-memo")
}

func runNATS(ctx context.Context, folder string) error {
	server, err := embed.Start(embed.Options{Host: "127.0.0.1", Port: -1, StoreDir: folder})
	if err != nil {
		return err
	}
	defer server.Stop()
	fmt.Println(server.ClientURL())
	<-ctx.Done()
	return nil
}

// runCoordinator is the coordinator's command, but that it can go without
// batches.
func runCoordinator(ctx context.Context, unbatched bool) error {
	var cfg coordinator.Config
	if err := config.Load(os.Environ(), &cfg); err != nil {
		return err
	}
	c := coordinator.New(cfg, coordinator.Deps{
		Logger:    admin.NewLogger(os.Stderr, cfg.General.LogLevel),
		Unbatched: unbatched,
	})
	if err := c.Start(ctx); err != nil {
		return err
	}
	if ready(ctx, c.Checks()) {
		fmt.Println("ready")
	}
	<-ctx.Done()
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return c.Stop(ending)
}

// ready waits until every part is well. It returns false when ctx ends first.
func ready(ctx context.Context, checks admin.Checks) bool {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		well := true
		for _, check := range checks {
			well = well && check() == admin.OK
		}
		if well {
			return true
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return false
		}
	}
}
