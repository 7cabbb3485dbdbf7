package pgserver

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T) *Server {
	t.Helper()
	binaries, err := Find(t.Context())
	require.NoError(t, err)
	s, err := Start(t.Context(), binaries)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, s.Close(context.Background()))
		require.NoDirExists(t, s.dir)
	})
	return s
}

func connect(t *testing.T, s *Server) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.URL())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func count(t *testing.T, s *Server, table string) (n int) {
	t.Helper()
	require.NoError(t, connect(t, s).QueryRow(t.Context(), "SELECT count(*) FROM "+table).Scan(&n))
	return n
}

func TestStopKeepsAndKillLosesUnlogged(t *testing.T) {
	t.Parallel()
	s := start(t)
	address := s.URL()
	_, err := connect(t, s).Exec(t.Context(), `
		CREATE UNLOGGED TABLE unlogged AS SELECT 1;
		CREATE TABLE logged AS SELECT 1`)
	require.NoError(t, err)

	require.NoError(t, s.Stop(t.Context()))
	_, err = pgx.Connect(t.Context(), address)
	require.Error(t, err, "a stopped server must not answer")
	require.NoError(t, s.Run(t.Context()))
	require.Equal(t, address, s.URL())
	require.Equal(t, 1, count(t, s, "unlogged"))

	pid := s.cmd.Process.Pid
	require.NoError(t, s.Kill(t.Context()))
	left, err := family(t.Context(), pid)
	require.NoError(t, err)
	require.Empty(t, left)
	require.NoError(t, s.Run(t.Context()))
	require.Equal(t, 1, count(t, s, "logged"))
	require.Equal(t, 0, count(t, s, "unlogged"))
}

func TestFreezeAndThaw(t *testing.T) {
	t.Parallel()
	s := start(t)
	conn := connect(t, s)
	require.NoError(t, s.Freeze(t.Context()))
	answered := make(chan error, 1)
	go func() {
		_, err := conn.Exec(context.Background(), "SELECT 1")
		answered <- err
	}()
	// The kernel accepts the connection; nobody answers on it.
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err := pgx.Connect(ctx, s.URL())
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Empty(t, answered)
	require.NoError(t, s.Thaw(t.Context()))
	require.NoError(t, <-answered)
}

func TestCloseWhileFrozen(t *testing.T) {
	t.Parallel()
	require.NoError(t, start(t).Freeze(t.Context()))
}

// The watcher must end a server, even a frozen one, when the process that
// started it is gone. Closing the pipe is what the kernel does then.
func TestWatcherEndsAServerLeftBehind(t *testing.T) {
	t.Parallel()
	binaries, err := Find(t.Context())
	require.NoError(t, err)
	s, err := Start(t.Context(), binaries)
	require.NoError(t, err)
	connect(t, s)
	children, err := s.freeze(t.Context())
	require.NoError(t, err)
	require.Greater(t, len(children), 3)

	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.cmd.Wait() // or else a zombie would look alive to the watcher
	}()
	require.NoError(t, s.watcher.close())
	<-ended
	require.NoError(t, awaitEnd(t.Context(), children))
	_, err = os.Stat(s.dir)
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestMethodsOfAStoppedServer(t *testing.T) {
	t.Parallel()
	s := start(t)
	require.NoError(t, s.Stop(t.Context()))
	require.NoError(t, s.Stop(t.Context()))
	require.NoError(t, s.Kill(t.Context()))
	require.Error(t, s.Freeze(t.Context()))
	require.Error(t, s.Thaw(t.Context()))
}

func TestStartReportsWhatPostgresSays(t *testing.T) {
	t.Parallel()
	s := start(t)
	require.NoError(t, s.Stop(t.Context()))
	require.NoError(t, os.WriteFile(s.data()+"/postgresql.auto.conf", []byte("no_such_setting = 1\n"), 0o644))
	require.ErrorContains(t, s.Run(t.Context()), "no_such_setting")
}
