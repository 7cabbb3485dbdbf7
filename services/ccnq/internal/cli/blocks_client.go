package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ccnq/ccnq/pkg/bus"
	"github.com/ccnq/ccnq/pkg/config"
	"github.com/ccnq/ccnq/pkg/wire"
)

const (
	// connectTimeout bounds the wait for NATS, askTimeout that for an answer.
	connectTimeout = 5 * time.Second
	askTimeout     = 10 * time.Second
	// standaloneToken is the file in CCNQ_DATA_DIR where the standalone program
	// keeps the token of its NATS server.
	standaloneToken = "nats-token"
)

// client is how commands reach a running ccnq: by NATS alone.
type client struct {
	url, tokenFile string
}

// flags adds the flags that say where NATS is.
func (c *client) flags(cmd *cobra.Command) {
	cmd.PersistentFlags().StringVar(&c.url, "nats", "", "NATS servers, separated by commas (default: CCNQ_NATS_URL, or where ccnq run listens: CCNQ_NATS_LISTEN, or 127.0.0.1:4222)")
	cmd.PersistentFlags().StringVar(&c.tokenFile, "token-file", "",
		"file with the NATS token (default: the credentials that CCNQ_NATS_* name, or what ccnq run keeps in CCNQ_DATA_DIR)")
}

// connect returns a connection that is up.
func (c *client) connect(ctx context.Context, environ []string) (*bus.Conn, error) {
	var env struct {
		NATS    bus.Config
		DataDir string      `env:"CCNQ_DATA_DIR" envDefault:"./data"`
		Listen  config.Addr `env:"CCNQ_NATS_LISTEN" envDefault:"127.0.0.1:4222"`
	}
	if err := config.Load(environ, &env, &env.NATS); err != nil {
		return nil, err
	}
	cfg := env.NATS
	switch {
	case c.url != "":
		cfg.URL = c.url
	case !given(environ, "CCNQ_NATS_URL"):
		var err error
		if cfg.URL, err = standaloneURL(env.Listen); err != nil {
			return nil, configError{err}
		}
	}
	switch {
	case c.tokenFile != "":
		cfg.TokenFile, cfg.CredsFile, cfg.UserFile, cfg.PasswordFile = c.tokenFile, "", "", ""
	case cfg.TokenFile == "" && cfg.CredsFile == "" && cfg.UserFile == "":
		if file := filepath.Join(env.DataDir, standaloneToken); readable(file) {
			cfg.TokenFile = file
		}
	}
	if problems := cfg.Validate(); len(problems) > 0 {
		return nil, &config.Error{Problems: problems}
	}
	reasons := &lastError{}
	opts := cfg.Options("ccnq-cli", slog.New(reasons))
	up := make(chan struct{}, 1)
	opts.OnChange = func(connected bool) {
		if connected {
			select {
			case up <- struct{}{}:
			default:
			}
		}
	}
	conn, err := bus.Connect(opts)
	if err != nil {
		return nil, err
	}
	timeout := time.NewTimer(connectTimeout)
	defer timeout.Stop()
	select {
	case <-up:
		return conn, nil
	case <-timeout.C:
		err = fmt.Errorf("no connection to NATS at %s within %s%s", cfg.URL, connectTimeout, reasons.text())
	case <-ctx.Done():
		err = ctx.Err()
	}
	conn.Close()
	return nil, err
}

// given reports whether a variable, or the file that holds it, is named.
func given(environ []string, name string) bool {
	return slices.ContainsFunc(environ, func(variable string) bool {
		key, value, _ := strings.Cut(variable, "=")
		return value != "" && (key == name || key == name+"_FILE")
	})
}

// standaloneURL is where ccnq run listens with the same environment.
func standaloneURL(listen config.Addr) (string, error) {
	if listen.Off() {
		return "", errors.New("CCNQ_NATS_LISTEN is off: ccnq run takes no commands then; for another NATS server give --nats or CCNQ_NATS_URL")
	}
	host, port, err := net.SplitHostPort(string(listen))
	if err != nil {
		return "", fmt.Errorf("CCNQ_NATS_LISTEN: %w", err)
	}
	if port == "0" {
		return "", errors.New("CCNQ_NATS_LISTEN names no port: give --nats")
	}
	switch host {
	case "", "0.0.0.0":
		host = "127.0.0.1"
	case "::":
		host = "::1"
	}
	return "nats://" + net.JoinHostPort(host, port), nil
}

func readable(file string) bool {
	f, err := os.Open(file)
	if err != nil {
		return false
	}
	f.Close()
	return true
}

// order connects and asks the denylist service one thing.
func order[Req, Resp wire.Message](ctx context.Context, c *client, subject string, req Req) (Resp, error) {
	var resp Resp
	conn, err := c.connect(ctx, os.Environ())
	if err != nil {
		return resp, err
	}
	defer conn.Close()
	return askDenylist[Req, Resp](ctx, conn, subject, req)
}

// askDenylist asks the denylist service over a connection, and says in plain
// words what went wrong.
func askDenylist[Req, Resp wire.Message](ctx context.Context, conn *bus.Conn, subject string, req Req) (Resp, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	resp, err := bus.Request[Req, Resp](ctx, conn, subject, req)
	remote, refused := errors.AsType[*bus.RemoteError](err)
	switch {
	case refused && remote.Code == bus.CodeInvalid:
		err = configError{errors.New(remote.Message)}
	case refused:
		err = fmt.Errorf("the denylist service: %s", remote.Message)
	case errors.Is(err, bus.ErrNoResponders):
		err = errors.New("no denylist service answers: it does not lead yet, or does not run, as in ccnq run while CCNQ_QUEUE_ENABLED is false")
	case errors.Is(err, bus.ErrTimeout):
		err = fmt.Errorf("the denylist service did not answer within %s", askTimeout)
	}
	return resp, err
}
