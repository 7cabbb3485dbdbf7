package cli

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/ccnq/ccnq/pkg/admin"
	"github.com/ccnq/ccnq/services/ccnq"
	"github.com/ccnq/ccnq/services/ccnq/internal/demo"
)

func runCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "run",
		Short: "Run everything in one process, configured by the environment",
		Long: `Run an edge, a coordinator and a NATS server in one process, configured by the
environment as the README says.

Without CCNQ_UPSTREAM_URL it stands in front of a small demo origin, and the
queue is on for its slow pages unless the environment says otherwise.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
}

// run returns when the program has been told to end and has ended.
func run(ctx context.Context, stdout, stderr io.Writer) error {
	environ := os.Environ()
	var origin *demo.Origin
	if isUnset("CCNQ_UPSTREAM_URL") {
		var err error
		if origin, environ, err = startDemo(); err != nil {
			return err
		}
		defer origin.Stop(ctx)
	}
	var cfg ccnq.Config
	if err := cfg.Load(environ); err != nil {
		return err
	}
	program, err := ccnq.New(cfg, ccnq.Deps{
		Logger:  admin.NewLogger(stderr, cfg.Edge.General.LogLevel),
		Started: func(p *ccnq.Program) { greet(stdout, p, cfg, origin) },
	})
	if err != nil {
		return configError{err}
	}
	return program.Run(ctx)
}

// startDemo starts the demo origin and returns the environment that puts the
// gate in front of it.
func startDemo() (*demo.Origin, []string, error) {
	dir := os.Getenv("CCNQ_DATA_DIR")
	if dir == "" {
		dir = "./data"
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, nil, fmt.Errorf("CCNQ_DATA_DIR: %w", err)
	}
	file := filepath.Join(dir, "demo-rules.json")
	if err := os.WriteFile(file, []byte(demo.Rules), 0o600); err != nil {
		return nil, nil, fmt.Errorf("CCNQ_DATA_DIR: %w", err)
	}
	origin, err := demo.Start("127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	environ := append(os.Environ(), "CCNQ_UPSTREAM_URL="+origin.URL())
	if isUnset("CCNQ_QUEUE_ENABLED") {
		environ = append(environ, "CCNQ_QUEUE_ENABLED=true")
		if isUnset("CCNQ_QUEUE_RULES_FILE") {
			environ = append(environ, "CCNQ_QUEUE_RULES_FILE="+file)
		}
	}
	return origin, environ, nil
}

func isUnset(name string) bool { return os.Getenv(name) == "" && os.Getenv(name+"_FILE") == "" }

// greet tells a person at the terminal where the gate is and how to see it at
// work.
func greet(w io.Writer, p *ccnq.Program, cfg ccnq.Config, origin *demo.Origin) {
	scheme := "http"
	if cfg.Edge.Listener.TLSCertFile != "" {
		scheme = "https"
	}
	_, port, _ := net.SplitHostPort(p.Addr().String())
	base := scheme + "://" + net.JoinHostPort("127.0.0.1", port)
	path, about := "/", cfg.Edge.Upstream.URL.String()
	if origin != nil {
		path, about = "/report.pdf", "a demo origin"
	}
	fmt.Fprintf(w, "\nccnq is in front of %s, at %s\n", about, base)
	fmt.Fprintf(w, "\nSee the gate at work, from another terminal:\n\n")
	fmt.Fprintf(w, "  curl -si %s/ | head -n 20\n", base)
	fmt.Fprintf(w, "  for i in 1 2 3 4 5 6 7 8; do curl -s -o /dev/null -w '%%{http_code} after %%{time_total} s\\n' '%s%s?'$i & done; wait\n", base, path)
	if addr := p.AdminAddr(); addr != nil {
		fmt.Fprintf(w, "  curl -s http://%s/metrics | grep '^ccnq_requests_total.* [1-9]'\n", addr)
	}
	if !cfg.Edge.Queue.Enabled {
		fmt.Fprintf(w, "\nThe queue is off: set CCNQ_QUEUE_ENABLED=true and CCNQ_QUEUE_RULES_FILE to switch it on.\n")
	}
	fmt.Fprintln(w)
}
