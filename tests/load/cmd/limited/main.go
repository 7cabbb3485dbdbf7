// Command limited is a hello-world server, to measure what package qos adds to one:
//
//	limited bare     the handler alone
//	limited pass     behind a limiter, all limits on, that lets everything through
//	limited refuse   behind a limiter that refuses everything, and keeps connections
//
// It writes its address to standard output and serves until SIGTERM.
package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/ccnq/ccnq/pkg/qos"
	"github.com/ccnq/ccnq/tests/load/internal/serve"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "limited:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	const usage = "usage: limited bare | limited pass | limited refuse"
	if len(args) != 1 {
		return errors.New(usage)
	}
	handler := http.Handler(http.HandlerFunc(hello))
	switch args[0] {
	case "bare":
	case "pass", "refuse":
		limiter, err := qos.New(options(args[0] == "refuse"))
		if err != nil {
			return err
		}
		defer limiter.Close()
		handler = limiter.Middleware(handler)
	default:
		return errors.New(usage)
	}
	return serve.Handler(handler)
}

func hello(w http.ResponseWriter, _ *http.Request) {
	_, _ = io.WriteString(w, "Hello World!\n") // the client may be gone
}

// options have limits of all kinds that no client of a benchmark reaches; of hosts one
// that all requests but the first are above, if everything is to be refused.
func options(refuse bool) qos.Options {
	const never = 1e9
	o := qos.Options{
		MinHostRate: new(float64(never)), MaxHostRate: new(float64(never)),
		MinIPRate: never, MaxIPRate: never, MinSubnetRate: never, MaxSubnetRate: never,
		DestroySocket: new(false),
	}
	if refuse {
		o.MinHostRate, o.MaxHostRate, o.MaxAge = new(1e-9), new(1e-9), new(time.Hour)
	}
	return o
}
