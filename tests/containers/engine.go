package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// helperImage is the image of cmd/helper.
const helperImage = "ccnq-test/helper:latest"

// engine runs docker on one project of compose.
type engine struct {
	root    string // of the repository
	project string
	// overlays are further files of compose.
	overlays []string
	env      []string
	log      io.Writer
}

// with changes a setting of compose.
func (e *engine) with(setting string) {
	e.env = append(e.env, setting) // the last one holds
}

// run runs docker and returns what it printed.
func (e *engine) run(ctx context.Context, args ...string) (string, error) {
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, "docker", args...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = e.root, append(os.Environ(), e.env...), &out, &errs
	err := cmd.Run()
	fmt.Fprintf(e.log, "docker %s: %v\n%s%s", strings.Join(args, " "), err, out.String(), errs.String())
	if err != nil {
		return out.String(), fmt.Errorf("docker %s: %w: %s", strings.Join(args, " "), err, tail(errs.String()))
	}
	return strings.TrimSpace(out.String()), nil
}

// tail is the end of a text.
func tail(text string) string {
	const most = 2000
	return strings.TrimSpace(text[max(0, len(text)-most):])
}

// compose runs docker compose on the project.
func (e *engine) compose(ctx context.Context, args ...string) (string, error) {
	all := []string{"compose", "-p", e.project, "-f", "deploy/compose.yaml", "-f", "tests/containers/compose.test.yaml"}
	for _, file := range e.overlays {
		all = append(all, "-f", file)
	}
	all = append(all, "--profile", "demo", "--profile", "alerts")
	return e.run(ctx, append(all, args...)...)
}

// containers returns the ids of the running containers of a service.
func (e *engine) containers(ctx context.Context, service string) ([]string, error) {
	out, err := e.compose(ctx, "ps", "-q", service)
	return strings.Fields(out), err
}

// networkOf is the engine's name of a network of the project.
func (e *engine) networkOf(name string) string { return e.project + "_" + name }

// buildHelper makes the image of the tests' own program.
func (e *engine) buildHelper(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "ccnq-helper-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", filepath.Join(dir, "helper"), "./tests/containers/cmd/helper")
	build.Dir, build.Env = e.root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the helper: %w: %s", err, out)
	}
	const dockerfile = "FROM scratch\nCOPY helper /helper\nUSER 65532:65532\nENTRYPOINT [\"/helper\"]\n"
	if err := os.WriteFile(filepath.Join(dir, "Dockerfile"), []byte(dockerfile), 0o600); err != nil {
		return err
	}
	_, err = e.run(ctx, "build", "-q", "-t", helperImage, dir)
	return err
}

// steal runs the thief with the credential of a user, and returns what NATS let
// it do.
func (e *engine) steal(ctx context.Context, user string, subjects ...string) (string, error) {
	return e.run(ctx, append([]string{
		"run", "--rm", "--network", e.networkOf("bus"), "-v", e.project + "_credentials-" + user + ":/run/credentials:ro",
		helperImage, "thief",
	}, subjects...)...)
}

// command runs ccnq's command line with the credential of a user.
func (e *engine) command(ctx context.Context, user string, args ...string) (string, error) {
	return e.run(ctx, append([]string{
		"run", "--rm", "--network", e.networkOf("bus"), "-v", e.project + "_credentials-" + user + ":/run/credentials:ro",
		"-e", "CCNQ_NATS_URL=nats://nats:4222", "-e", "CCNQ_NATS_USER_FILE=/run/credentials/nats-user",
		"-e", "CCNQ_NATS_PASSWORD_FILE=/run/credentials/nats-password", "ccnq-test/ccnq:latest",
	}, args...)...)
}

// sql asks the database, as its superuser.
func (e *engine) sql(ctx context.Context, query string) (string, error) {
	return e.compose(ctx, "exec", "-T", "postgres", "psql", "-U", "postgres", "-d", "ccnq", "-Atc", query)
}

// get asks something inside of the networks for a page, by way of the front.
func (e *engine) get(ctx context.Context, address, path string, headers ...string) (string, error) {
	host, port, _ := strings.Cut(address, ":")
	request := "GET " + path + " HTTP/1.0\\r\\n" + strings.Join(append(headers, ""), "\\r\\n") + "\\r\\n"
	return e.compose(ctx, "exec", "-T", "front", "bash", "-c",
		fmt.Sprintf("exec 3<>/dev/tcp/%s/%s && printf '%s' >&3 && cat <&3", host, port, request))
}

// addressOn is the address of a container on a network of the project.
func (e *engine) addressOn(ctx context.Context, container, network string) (string, error) {
	return e.run(ctx, "inspect", "-f", fmt.Sprintf("{{(index .NetworkSettings.Networks %q).IPAddress}}", e.networkOf(network)), container)
}

// healthy waits until all containers of a service say that they are.
func (e *engine) healthy(ctx context.Context, service string) error {
	return until(ctx, "all containers of "+service+" are healthy", func() (bool, error) {
		ids, err := e.containers(ctx, service)
		if err != nil || len(ids) == 0 {
			return false, err
		}
		out, err := e.run(ctx, append([]string{"inspect", "-f", "{{.State.Health.Status}}"}, ids...)...)
		return err == nil && out == strings.TrimSpace(strings.Repeat("healthy\n", len(ids))), err
	})
}

// allHealthy waits for everything that has a health check.
func (e *engine) allHealthy(ctx context.Context) error {
	for _, service := range []string{"postgres", "nats", "queue-coordinator", "denylist", "edge", "front"} {
		if err := e.healthy(ctx, service); err != nil {
			return err
		}
	}
	return nil
}

// until asks again and again until the answer is yes.
func until(ctx context.Context, what string, ask func() (bool, error)) error {
	const limit, pause = 90 * time.Second, 100 * time.Millisecond
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(pause)
	defer tick.Stop()
	var err error
	for {
		var yes bool
		if yes, err = ask(); yes {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("%s: not within %s", what, limit), err)
		}
	}
}

// wait lets time pass.
func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
