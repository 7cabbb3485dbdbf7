// Package process runs the programs that a measurement needs beside itself and
// tells what each of them costs in CPU time and memory.
//
// Costs are read from /proc, so measurements need Linux.
package process

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// startWait bounds the wait for the first line of a program.
	startWait = time.Minute
	// stopWait bounds the wait for the end of one, which is killed then.
	stopWait = 20 * time.Second
	// keptLines is how much of what a program logs is kept for an error.
	keptLines = 20
)

// Process is a running program. Its methods are safe for concurrent use.
type Process struct {
	name  string
	cmd   *exec.Cmd
	log   *tail
	ended chan struct{} // closed when the program is gone and err is set
	err   error
}

// Start runs a program with nothing but env in its environment, and discards
// what it writes to standard output. The caller must call [Process.Stop].
func Start(name string, env []string, command ...string) (*Process, error) {
	return start(name, env, nil, command)
}

// StartAndRead is [Start] for a program that writes one line to standard
// output once it is ready. It returns that line.
func StartAndRead(name string, env []string, command ...string) (*Process, string, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, "", err
	}
	defer r.Close()
	p, err := start(name, env, w, command)
	_ = w.Close() // the program has its own end of the pipe
	if err != nil {
		return nil, "", err
	}
	if err := r.SetReadDeadline(time.Now().Add(startWait)); err != nil {
		return nil, "", errors.Join(err, p.Stop())
	}
	line, err := bufio.NewReader(r).ReadString('\n')
	if err != nil {
		return nil, "", errors.Join(fmt.Errorf("%s did not get ready: %w", name, err), p.Stop(), p.said())
	}
	return p, strings.TrimSpace(line), nil
}

func start(name string, env []string, stdout io.Writer, command []string) (*Process, error) {
	p := &Process{name: name, log: &tail{}, ended: make(chan struct{})}
	p.cmd = exec.Command(command[0], command[1:]...)
	p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = env, stdout, p.log
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		defer close(p.ended)
		p.err = p.cmd.Wait()
	}()
	return p, nil
}

// Await calls done every few milliseconds until it returns true. It fails when
// ctx ends, when the program does, or after a minute.
func (p *Process) Await(ctx context.Context, what string, done func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, startWait)
	defer cancel()
	return p.AwaitEvery(ctx, 5*time.Millisecond, what, done)
}

// AwaitEvery is [Process.Await] for questions that cost the program something:
// it calls done this often, and has no limit but that of ctx.
func (p *Process) AwaitEvery(ctx context.Context, every time.Duration, what string, done func() bool) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-p.ended:
			return errors.Join(fmt.Errorf("%s ended before %s", p.name, what), p.err, p.said())
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("%s: waiting for %s: %w", p.name, what, ctx.Err()), p.said())
		}
	}
	return nil
}

// CPU returns the CPU time that the program has used so far.
func (p *Process) CPU() (time.Duration, error) { return CPU(p.cmd.Process.Pid) }

// Memory returns the resident memory of the program in bytes.
func (p *Process) Memory() (int64, error) { return memory(p.cmd.Process.Pid) }

// Freeze keeps the program from running until [Process.Thaw].
func (p *Process) Freeze() error { return p.signal(syscall.SIGSTOP) }

// Thaw lets it go on.
func (p *Process) Thaw() error { return p.signal(syscall.SIGCONT) }

func (p *Process) signal(s syscall.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil {
		return fmt.Errorf("%s: signal %s: %w", p.name, s, err)
	}
	return nil
}

// Stop ends the program with SIGTERM and waits for its end. One that has ended
// before is an error.
func (p *Process) Stop() error {
	if err := p.signal(syscall.SIGTERM); errors.Is(err, os.ErrProcessDone) {
		<-p.ended // and has said everything
		return errors.Join(fmt.Errorf("%s ended by itself", p.name), p.err, p.said())
	} else if err != nil {
		return err
	}
	timeout := time.NewTimer(stopWait)
	defer timeout.Stop()
	select {
	case <-p.ended:
	case <-timeout.C:
		_ = p.cmd.Process.Kill() // it may end at this moment
		<-p.ended
		return errors.Join(fmt.Errorf("%s did not stop within %s", p.name, stopWait), p.said())
	}
	if p.err != nil {
		return errors.Join(fmt.Errorf("%s: %w", p.name, p.err), p.said())
	}
	return nil
}

// said returns the last lines of the program's log as an error, or nil.
func (p *Process) said() error {
	if text := p.log.String(); text != "" {
		return fmt.Errorf("%s said: %s", p.name, text)
	}
	return nil
}

// tail keeps the last lines written to it.
type tail struct {
	mu    sync.Mutex
	lines []string
}

// Write takes lines. A line that comes in pieces counts as several.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for line := range strings.Lines(string(p)) {
		t.lines = append(t.lines, strings.TrimSpace(line))
	}
	if over := len(t.lines) - keptLines; over > 0 {
		t.lines = append(t.lines[:0], t.lines[over:]...)
	}
	return len(p), nil
}

// String returns the lines.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(t.lines, "\n")
}
