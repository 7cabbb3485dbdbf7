package pgserver

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// URLVariable is the variable that names a running Postgres for tests. Its role must be allowed to
// create schemas.
const URLVariable = "CCNQ_TEST_DATABASE_URL"

const (
	// startWait bounds how long a server may take until it answers.
	startWait = time.Minute
	// stopWait bounds how long a server may take to end.
	stopWait = 30 * time.Second
	// poll is the pause between two looks at a server that starts or ends.
	poll = 10 * time.Millisecond
	// role is the superuser that initdb makes.
	role = "postgres"
)

// settings make the server fast to start, small and not durable.
var settings = []string{
	"autovacuum_naptime=10s",
	"dynamic_shared_memory_type=mmap", // nothing left in /dev/shm after a kill
	"fsync=off",
	"full_page_writes=off",
	"jit=off",
	"listen_addresses=127.0.0.1",
	"max_connections=400",
	"max_wal_senders=0",
	"shared_buffers=64MB",
	"synchronous_commit=off",
	"timezone=UTC",
	"wal_level=minimal",
}

// Server is one running or stopped server with data of its own. Its methods
// must not be called at the same time.
type Server struct {
	binaries Binaries
	as       account
	dir      string
	port     int
	password string
	watcher  *watcher
	cmd      *exec.Cmd // nil while stopped
}

// Start makes a new database cluster and runs a server on it, on a free port of
// 127.0.0.1, as an unprivileged user if this process is root's. The caller
// must call [Server.Close]; if this process dies first, the watcher cleans up.
func Start(ctx context.Context, binaries Binaries) (_ *Server, err error) {
	as, err := unprivileged()
	if err != nil {
		return nil, err
	}
	dir, err := as.tempDir()
	if err != nil {
		return nil, err
	}
	watch, err := startWatcher(dir, as)
	if err != nil {
		return nil, errors.Join(err, os.Remove(dir))
	}
	s := &Server{binaries: binaries, as: as, dir: dir, password: rand.Text(), watcher: watch}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close(context.WithoutCancel(ctx)))
		}
	}()
	if err := s.initialize(ctx); err != nil {
		return nil, err
	}
	// Another process may take the port between the look and the start.
	for try := 1; ; try++ {
		if s.port, err = freePort(ctx); err != nil {
			return nil, err
		}
		if err = s.Run(ctx); err == nil {
			return s, nil
		}
		if try == 3 {
			return nil, err
		}
	}
}

// Open returns the address of the server that [URLVariable] names, or else of
// one that it starts with [Find] and [Start]. The caller may call stop, or
// leave a server that was started to the watcher.
func Open(ctx context.Context) (address string, stop func(context.Context) error, err error) {
	if address := os.Getenv(URLVariable); address != "" {
		return address, func(context.Context) error { return nil }, nil
	}
	binaries, err := Find(ctx)
	if err != nil {
		return "", nil, err
	}
	server, err := Start(ctx, binaries)
	if err != nil {
		return "", nil, err
	}
	return server.URL(), server.Close, nil
}

// URL is the address of the database postgres for its superuser.
func (s *Server) URL() string {
	return (&url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword(role, s.password),
		Host:     net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)),
		Path:     "/postgres",
		RawQuery: "sslmode=disable",
	}).String()
}

// initialize runs initdb.
func (s *Server) initialize(ctx context.Context) error {
	secret := filepath.Join(s.dir, "password")
	if err := s.as.writeFile(secret, s.password); err != nil {
		return fmt.Errorf("write the password: %w", err)
	}
	cmd := exec.CommandContext(ctx, filepath.Join(s.binaries.Dir, "initdb"),
		"--auth=password", "--encoding=UTF8", "--locale=C", "--no-sync",
		"--pgdata="+s.data(), "--pwfile="+secret, "--username="+role)
	s.prepare(cmd)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, tail(out))
	}
	return nil
}

// Run starts the server again, on the same port and data, and returns once it
// answers. It does nothing if the server runs.
func (s *Server) Run(ctx context.Context) error {
	if s.cmd != nil {
		return nil
	}
	log, err := os.OpenFile(s.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open the server's log: %w", err)
	}
	defer log.Close()
	args := []string{"-D", s.data(), "-k", s.dir, "-p", strconv.Itoa(s.port)}
	for _, setting := range settings {
		args = append(args, "-c", setting)
	}
	cmd := exec.Command(filepath.Join(s.binaries.Dir, "postgres"), args...)
	s.prepare(cmd)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start postgres: %w", err)
	}
	s.cmd = cmd
	pid := strconv.Itoa(cmd.Process.Pid)
	if err := s.as.writeFile(s.pidFile(), pid); err != nil {
		return errors.Join(fmt.Errorf("write the process id: %w", err), s.Kill(ctx))
	}
	if err := s.awaitReady(ctx); err != nil {
		out, _ := os.ReadFile(s.log())
		return errors.Join(fmt.Errorf("start postgres: %w: %s", err, tail(out)), s.Kill(context.WithoutCancel(ctx)))
	}
	return nil
}

// awaitReady returns once the server answers a connection.
func (s *Server) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startWait, fmt.Errorf("no answer within %s", startWait))
	defer cancel()
	for {
		conn, err := pgx.Connect(ctx, s.URL())
		if err == nil {
			return conn.Close(ctx)
		}
		alive, listErr := s.alive(ctx)
		switch {
		case listErr != nil:
			return listErr
		case !alive:
			return errors.New("it ended")
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
}

// alive reports whether the server's process has not exited.
func (s *Server) alive(ctx context.Context) (bool, error) {
	children, err := family(ctx, os.Getpid())
	if err != nil {
		return false, err
	}
	for _, pid := range children {
		if pid == s.cmd.Process.Pid {
			return true, nil
		}
	}
	return false, nil
}

// Stop ends the server in order (Postgres' fast shutdown): sessions are cut,
// data is kept. It does nothing if the server does not run.
func (s *Server) Stop(ctx context.Context) error {
	if s.cmd == nil {
		return nil
	}
	if err := s.Thaw(ctx); err != nil {
		return err
	}
	if err := signal(syscall.SIGINT, s.cmd.Process.Pid); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, stopWait, fmt.Errorf("postgres did not stop within %s", stopWait))
	defer cancel()
	for {
		alive, err := s.alive(ctx)
		if err != nil {
			return err
		}
		if !alive {
			return s.reap()
		}
		if err := pause(ctx); err != nil {
			return errors.Join(err, s.Kill(context.WithoutCancel(ctx)))
		}
	}
}

// Kill ends the server and all its processes with SIGKILL, as a crash of
// Postgres does: on the next start it recovers, and unlogged tables are empty.
// It does nothing if the server does not run.
func (s *Server) Kill(ctx context.Context) error {
	if s.cmd == nil {
		return nil
	}
	pids, err := s.freeze(ctx)
	if err != nil {
		return err
	}
	if err := signal(syscall.SIGKILL, pids...); err != nil {
		return err
	}
	if err := s.reap(); err != nil {
		return err
	}
	return awaitEnd(ctx, pids)
}

// Freeze stops every process of the server with SIGSTOP: connections stay open
// and nothing answers.
func (s *Server) Freeze(ctx context.Context) error {
	if s.cmd == nil {
		return errors.New("freeze: the server does not run")
	}
	_, err := s.freeze(ctx)
	return err
}

// Thaw lets a frozen server go on.
func (s *Server) Thaw(ctx context.Context) error {
	if s.cmd == nil {
		return errors.New("thaw: the server does not run")
	}
	pids, err := family(ctx, s.cmd.Process.Pid)
	if err != nil {
		return err
	}
	return signal(syscall.SIGCONT, append(pids, s.cmd.Process.Pid)...)
}

// Close stops the server and removes its folder.
func (s *Server) Close(ctx context.Context) error {
	return errors.Join(s.Stop(ctx), s.watcher.close())
}

// freeze stops the parent first, so that no new child appears, then its
// children, and returns all of them.
func (s *Server) freeze(ctx context.Context) ([]int, error) {
	postmaster := s.cmd.Process.Pid
	if err := signal(syscall.SIGSTOP, postmaster); err != nil {
		return nil, err
	}
	// The parent may finish a fork that was under way: look until two looks
	// agree.
	for before := -1; ; {
		children, err := family(ctx, postmaster)
		if err != nil {
			return nil, err
		}
		if err := signal(syscall.SIGSTOP, children...); err != nil {
			return nil, err
		}
		if len(children) == before {
			return append(children, postmaster), nil
		}
		before = len(children)
	}
}

// reap collects the exit of the process. How it ended does not matter.
func (s *Server) reap() error {
	err := s.cmd.Wait()
	s.cmd = nil
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return fmt.Errorf("wait for postgres: %w", err)
	}
	if err := os.Remove(s.pidFile()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the process id: %w", err)
	}
	return nil
}

func (s *Server) prepare(cmd *exec.Cmd) {
	cmd.Dir = s.dir
	cmd.Env = []string{"HOME=" + s.dir, "LC_ALL=C", "PATH=" + os.Getenv("PATH"), "TZ=UTC"}
	cmd.SysProcAttr = s.as.attributes()
}

func (s *Server) data() string    { return filepath.Join(s.dir, "data") }
func (s *Server) log() string     { return filepath.Join(s.dir, "log") }
func (s *Server) pidFile() string { return filepath.Join(s.dir, "pid") }

// awaitEnd returns once none of the processes runs.
func awaitEnd(ctx context.Context, pids []int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, stopWait, fmt.Errorf("killed processes remain after %s", stopWait))
	defer cancel()
	for {
		all, err := processes(ctx)
		if err != nil {
			return err
		}
		left := false
		for _, p := range all {
			for _, pid := range pids {
				left = left || p.pid == pid && !p.exited
			}
		}
		if !left {
			return nil
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
}

// pause waits a moment; it fails when ctx ends.
func pause(ctx context.Context) error {
	timer := time.NewTimer(poll)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

func freePort(ctx context.Context) (int, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	port := listener.Addr().(*net.TCPAddr).Port
	return port, listener.Close()
}
