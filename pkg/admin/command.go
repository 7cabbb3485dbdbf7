package admin

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/ccnq/ccnq/pkg/config"
)

const (
	// probeTimeout bounds a whole probe.
	probeTimeout = 5 * time.Second
	// maxProbe bounds what is read of an answer.
	maxProbe = 16 << 10
)

// Command runs what a service's command line asks for besides the service
// itself, and returns the exit code: "health" is [Probe] of the service that
// runs on this machine with the same settings, for container engines whose
// images have no shell. Exit code 1 means not ready, 2 that the command line is
// no good.
func Command(ctx context.Context, args []string, addr config.Addr, stderr io.Writer) int {
	if !slices.Equal(args, []string{"health"}) {
		fmt.Fprintf(stderr, "unknown arguments %q: the program takes none, or health\n", args)
		return 2
	}
	if err := Probe(ctx, addr); err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	return 0
}

// Probe asks the admin listener at addr of another process on this machine
// whether it is ready, and returns nil if so. It takes five seconds at most.
func Probe(ctx context.Context, addr config.Addr) error {
	if addr.Off() {
		return fmt.Errorf("CCNQ_ADMIN_ADDR is off: nobody can be asked")
	}
	host, port, err := net.SplitHostPort(string(addr))
	if err != nil {
		return fmt.Errorf("CCNQ_ADMIN_ADDR: %w", err)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(host, port)+"/readyz", nil)
	if err != nil {
		return fmt.Errorf("CCNQ_ADMIN_ADDR: %w", err)
	}
	// No proxy of the environment, and nothing left open.
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		return fmt.Errorf("ask for readiness: %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxProbe))
	if err != nil {
		return fmt.Errorf("ask for readiness: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("not ready: %s %s", resp.Status, strings.TrimSpace(string(body)))
	}
	return nil
}
