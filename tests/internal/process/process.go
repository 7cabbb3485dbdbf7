// Package process runs the services' real commands, and a real NATS server,
// as processes that a test may stop, freeze and kill.
package process

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/pkg/testport"
	"github.com/ccnq/ccnq/tests/internal/await"
)

// Process is a running process. Its methods belong to the test's goroutine.
type Process struct {
	name   string
	cmd    *exec.Cmd
	log    *log
	exited chan struct{}
}

// Start runs a binary of [Build] and ends it with the test.
func Start(t testing.TB, binary string, env []string, args ...string) *Process {
	t.Helper()
	cmd := exec.Command(Path(t, binary), args...)
	cmd.Env = append([]string{"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH")}, env...)
	cmd.Dir = t.TempDir()
	cmd.SysProcAttr = attributes()
	p := &Process{name: binary, cmd: cmd, log: &log{}, exited: make(chan struct{})}
	out, in, err := os.Pipe()
	require.NoError(t, err)
	cmd.Stdout, cmd.Stderr = in, in
	require.NoError(t, cmd.Start())
	require.NoError(t, in.Close())
	go func() {
		_, _ = io.Copy(p.log, out)
		_ = out.Close()
		_ = cmd.Wait()
		close(p.exited)
	}()
	t.Cleanup(func() {
		p.Kill(t)
		if t.Failed() {
			t.Logf("output of %s:\n%s", p.name, p.log.tail())
		}
	})
	return p
}

// Kill ends the process at once, frozen or not, and waits for its end.
func (p *Process) Kill(t testing.TB) {
	t.Helper()
	p.signal(t, syscall.SIGKILL)
	p.ended(t)
}

// Stop asks the process to end and waits until it has. It must exit with 0.
func (p *Process) Stop(t testing.TB) {
	t.Helper()
	p.Terminate(t)
	require.Zero(t, p.ExitCode(t), "exit code of %s", p.name)
}

// Terminate asks the process to end and does not wait.
func (p *Process) Terminate(t testing.TB) { t.Helper(); p.signal(t, syscall.SIGTERM) }

// ExitCode waits until the process has ended.
func (p *Process) ExitCode(t testing.TB) int {
	t.Helper()
	p.ended(t)
	return p.cmd.ProcessState.ExitCode()
}

// Freeze stops the process where it is: its connections stay open, and it
// answers nothing.
func (p *Process) Freeze(t testing.TB) { t.Helper(); p.signal(t, syscall.SIGSTOP) }

// Thaw lets a frozen process go on.
func (p *Process) Thaw(t testing.TB) { t.Helper(); p.signal(t, syscall.SIGCONT) }

func (p *Process) signal(t testing.TB, sig syscall.Signal) {
	t.Helper()
	select {
	case <-p.exited:
	default:
		if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Fatalf("%s to %s: %v", sig, p.name, err)
		}
	}
}

func (p *Process) ended(t testing.TB) {
	t.Helper()
	await.Value(t, "the end of "+p.name, p.exited)
}

// Logged counts the lines of output that contain a text.
func (p *Process) Logged(text string) int {
	n := 0
	for line := range strings.Lines(p.log.String()) {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

// log keeps what a process writes.
type log struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// shown is how much of a log a failed test shows.
const shown = 8 << 10

// Write takes a piece of output.
func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// String returns everything so far.
func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func (l *log) tail() string {
	text := l.String()
	return text[max(0, len(text)-shown):]
}

// FreePort returns a port of the loopback interface that stays free for the
// test, whoever listens on it and stops.
func FreePort(t testing.TB) string {
	t.Helper()
	return strconv.Itoa(testport.Reserve(t))
}

// NATS is a NATS server that can be started again on the same port.
type NATS struct {
	*Process
	// URL is where clients connect.
	URL string

	config string
}

// NewNATS chooses a port and starts nothing.
func NewNATS(t testing.TB) *NATS {
	t.Helper()
	n := &NATS{URL: "nats://127.0.0.1:" + FreePort(t), config: t.TempDir() + "/nats.conf"}
	n.Configure(t, "")
	return n
}

// Configure writes the server's configuration with lines added, for the next
// start.
func (n *NATS) Configure(t testing.TB, lines string) {
	t.Helper()
	text := fmt.Sprintf("listen: %q\nping_interval: \"5s\"\nping_max: 2\n%s\n", strings.TrimPrefix(n.URL, "nats://"), lines)
	require.NoError(t, os.WriteFile(n.config, []byte(text), 0o600))
}

// Run starts the server and returns once it accepts connections.
func (n *NATS) Run(t testing.TB) {
	t.Helper()
	n.Process = Start(t, "nats-server", nil, "-c", n.config)
	await.True(t, "the NATS server is ready", func() bool { return n.Logged("Server is ready") > 0 })
}
