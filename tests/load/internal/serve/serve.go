// Package serve runs the HTTP servers that others are measured against.
package serve

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os/signal"
	"syscall"
	"time"
)

// Handler serves on a free port of the loopback interface, whose address it
// writes to standard output, until the process gets SIGTERM.
func Handler(handler http.Handler) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 75 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	fmt.Println(listener.Addr())
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return server.Close()
	}
}
