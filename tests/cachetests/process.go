package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"syscall"
	"time"
)

const (
	// startWait bounds the wait until a process serves.
	startWait = 30 * time.Second
	// stopWait bounds the wait for the end of one, which is killed then.
	stopWait = 10 * time.Second
)

// everything is a ruleset that matches every request.
const everything = `[[{"target": "path", "matchType": "startsWith", "value": "/"}]]`

// processes are those that were started.
type processes []*exec.Cmd

// stop ends them all, the last first.
func (p *processes) stop() error {
	var errs []error
	for _, cmd := range slices.Backward(*p) {
		if err := cmd.Cancel(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			errs = append(errs, err)
		}
		var exit *exec.ExitError
		if err := cmd.Wait(); err != nil && !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay) {
			errs = append(errs, err)
		}
	}
	*p = nil
	return errors.Join(errs...)
}

// start runs a process until one of its lines says where it serves: find
// returns what is looked for, or nothing.
func (p *processes) start(ctx context.Context, cmd *exec.Cmd, find func(line string) string) (string, error) {
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopWait
	out, in, err := os.Pipe()
	if err != nil {
		return "", err
	}
	cmd.Stdout, cmd.Stderr = in, in
	err = cmd.Start()
	if err := errors.Join(err, in.Close()); err != nil {
		return "", errors.Join(err, out.Close())
	}
	*p = append(*p, cmd)
	type result struct{ where, said string }
	read := make(chan result, 1)
	go func() { // ends with the process
		defer func() { _ = out.Close() }()
		lines := bufio.NewScanner(out)
		var r result
		for r.where == "" && lines.Scan() {
			r.where = find(lines.Text())
			r.said += lines.Text() + "\n"
		}
		read <- r
		_, _ = io.Copy(io.Discard, out) // a full pipe would stop the process
	}()
	wait, cancel := context.WithTimeoutCause(ctx, startWait, fmt.Errorf("does not serve after %v", startWait))
	defer cancel()
	select {
	case r := <-read:
		if r.where == "" {
			return "", fmt.Errorf("ended at once:\n%s", r.said)
		}
		return r.where, nil
	case <-wait.Done():
		return "", context.Cause(wait)
	}
}

var listening = regexp.MustCompile(`^Listening on https?://.*:([0-9]+)/?$`)

// startOrigin starts the suite's server on a free port and returns its URL.
func startOrigin(ctx context.Context, started *processes, dir, tmp string) (string, error) {
	cmd := exec.CommandContext(ctx, "node", "server/server.mjs")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "npm_config_port=0", "npm_config_protocol=http", "npm_config_pidfile="+filepath.Join(tmp, "server.pid"))
	port, err := started.start(ctx, cmd, func(line string) string {
		if m := listening.FindStringSubmatch(line); m != nil {
			return m[1]
		}
		return ""
	})
	if err != nil {
		return "", fmt.Errorf("the suite's server: %w", err)
	}
	return "http://127.0.0.1:" + port, nil
}

// startEdge starts the edge in front of the origin and returns its URL.
func startEdge(ctx context.Context, started *processes, binary, origin, tmp string) (string, error) {
	rules := filepath.Join(tmp, "rules.json")
	if err := os.WriteFile(rules, []byte(everything), 0o600); err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, binary)
	cmd.Dir = tmp
	cmd.Env = []string{
		"CCNQ_ADMIN_ADDR=off",
		"CCNQ_CACHE_DIR=" + filepath.Join(tmp, "cache"),
		"CCNQ_CACHE_ENABLED=true",
		"CCNQ_CACHE_RULES_FILE=" + rules,
		"CCNQ_CACHE_TTL_MS=0",
		"CCNQ_DATA_DIR=" + tmp,
		"CCNQ_PORT=0",
		"CCNQ_SHUTDOWN_DELAY_MS=0",
		"CCNQ_UPSTREAM_URL=" + origin,
	}
	addr, err := started.start(ctx, cmd, servingAt)
	if err != nil {
		return "", fmt.Errorf("the edge: %w", err)
	}
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", fmt.Errorf("the edge serves at %q: %w", addr, err)
	}
	return "http://127.0.0.1:" + port, nil
}

// servingAt returns the address in the log line that says that the edge serves.
func servingAt(line string) string {
	var entry struct{ Msg, Addr string }
	if json.Unmarshal([]byte(line), &entry) != nil || entry.Msg != "serving" {
		return ""
	}
	return entry.Addr
}
