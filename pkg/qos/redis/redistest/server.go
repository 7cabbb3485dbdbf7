package redistest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	// startWait is how long a server may take until it answers, and retryPause the least
	// time between two tries to start it again.
	startWait  = 30 * time.Second
	retryPause = 100 * time.Millisecond
	// firstPort and ports are where a server may listen: below what systems give to
	// connections, so that its port is still free after a stop. Nodes of a cluster use
	// the port 10,000 above as well.
	firstPort, ports = 10_000, 10_000
	// portTries is how many ports are tried.
	portTries = 20
)

// Server is a Redis server on 127.0.0.1. Its methods fail the test if they cannot do
// their work; they must be called from the test's goroutine.
type Server struct {
	// Addr is its host and port. It stays the same through stops and starts.
	Addr string
	// URL is the same as redis://host:port.
	URL string

	t       testing.TB
	binary  string
	dir     string
	args    []string
	process *exec.Cmd     // nil while stopped
	ended   chan struct{} // closed when the output of the process has ended
}

// watchScript runs until its standard input ends, kills the server, and removes its
// folder.
const watchScript = `
trap '' HUP INT TERM
cat >/dev/null
if pid=$(cat "$1/pid" 2>/dev/null); then kill -9 "$pid" 2>/dev/null; fi
cd / && rm -rf "$1"
`

// Start starts an empty server, with settings besides its own such as "cluster-enabled",
// "yes", and ends it when the test ends.
func Start(t testing.TB, settings ...string) *Server {
	t.Helper()
	binary, err := find(t.Context())
	if err != nil {
		t.Fatalf("redistest: %v", err)
	}
	dir, err := os.MkdirTemp("", "ccnq-redis-") //nolint:usetesting // the watcher removes it
	if err != nil {
		t.Fatalf("redistest: %v", err)
	}
	s := &Server{t: t, binary: binary, dir: dir}
	s.watch()
	for i := 0; i+1 < len(settings); i += 2 {
		s.args = append(s.args, "--"+settings[i], settings[i+1])
	}
	// Another process may take the port between the look and the start.
	for try := 1; ; try++ {
		port, err := freePort(t.Context())
		if err == nil {
			s.Addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
			s.URL = "redis://" + s.Addr
			err = s.run()
		}
		if err == nil {
			return s
		}
		if try == 3 {
			t.Fatalf("redistest: %v", err)
		}
	}
}

// watch starts the watcher, and has it finish when the test ends.
func (s *Server) watch() {
	s.t.Helper()
	watcher := exec.Command("/bin/sh", "-c", watchScript, "ccnq-redis-watcher", s.dir)
	watcher.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // no Ctrl-C of the terminal
	pipe, err := watcher.StdinPipe()
	if err == nil {
		err = watcher.Start()
	}
	if err != nil {
		s.t.Fatalf("redistest: start the watcher: %v", err)
	}
	s.t.Cleanup(func() {
		s.Kill()
		if err := errors.Join(pipe.Close(), watcher.Wait()); err != nil {
			s.t.Errorf("redistest: watcher: %v", err)
		}
	})
}

// run starts the process, and returns once it accepts connections.
func (s *Server) run() error {
	_, port, err := net.SplitHostPort(s.Addr)
	if err != nil {
		return err
	}
	args := append([]string{
		"--bind", "127.0.0.1", "--port", port, "--dir", s.dir, "--pidfile", filepath.Join(s.dir, "pid"),
		"--save", "", "--appendonly", "yes", "--appendfsync", "no",
	}, s.args...)
	process := exec.Command(s.binary, args...)
	process.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	output, err := process.StdoutPipe()
	if err != nil {
		return err
	}
	if err := process.Start(); err != nil {
		return err
	}
	ready, ended := make(chan struct{}), make(chan struct{})
	var log strings.Builder
	go func() {
		defer close(ended)
		lines := bufio.NewScanner(output)
		for lines.Scan() {
			if strings.Contains(lines.Text(), "Ready to accept connections") {
				close(ready)
				break
			}
			log.WriteString(lines.Text() + "\n")
		}
		_, _ = io.Copy(io.Discard, output)
	}()
	s.process, s.ended = process, ended
	timer := time.NewTimer(startWait)
	defer timer.Stop()
	select {
	case <-ready:
		return nil
	case <-ended:
		s.reap()
		return fmt.Errorf("%s ended:\n%s", s.binary, log.String())
	case <-timer.C:
		s.Kill()
		return fmt.Errorf("%s did not start within %s:\n%s", s.binary, startWait, log.String())
	}
}

// Kill ends the server with SIGKILL. It does nothing if the server does not run.
func (s *Server) Kill() {
	s.t.Helper()
	if s.process == nil {
		return
	}
	s.signal(syscall.SIGKILL)
	s.reap()
}

// Restart starts the server again after Kill, with its data, and returns once it
// answers. If its port is taken meanwhile, it waits for the port for a while.
func (s *Server) Restart() {
	s.t.Helper()
	s.Kill()
	deadline := time.NewTimer(startWait)
	defer deadline.Stop()
	pause := time.NewTicker(retryPause)
	defer pause.Stop()
	for {
		err := s.run()
		if err == nil {
			return
		}
		select {
		case <-pause.C:
		case <-deadline.C:
			s.t.Fatalf("redistest: %v", err)
		}
	}
}

// Freeze stops the server with SIGSTOP: connections stay open, new ones are accepted by
// the kernel, and nothing answers.
func (s *Server) Freeze() {
	s.t.Helper()
	s.signal(syscall.SIGSTOP)
}

// Thaw lets a frozen server go on: it carries out all that it was sent meanwhile.
func (s *Server) Thaw() {
	s.t.Helper()
	s.signal(syscall.SIGCONT)
}

func (s *Server) signal(sig syscall.Signal) {
	s.t.Helper()
	if err := s.process.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		s.t.Fatalf("redistest: %s: %v", sig, err)
	}
}

// reap collects the exit of the process. How it ended does not matter.
func (s *Server) reap() {
	<-s.ended
	_ = s.process.Wait()
	s.process = nil
}

// freePort finds a port that nobody listens on.
func freePort(ctx context.Context) (int, error) {
	var problems []error
	for range portTries {
		port := firstPort + rand.IntN(ports)
		var config net.ListenConfig
		listener, err := config.Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			return port, listener.Close()
		}
		problems = append(problems, err)
	}
	return 0, fmt.Errorf("find a free port: %w", errors.Join(problems...))
}
