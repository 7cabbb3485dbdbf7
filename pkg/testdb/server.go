package testdb

import (
	"context"
	"testing"

	"github.com/ccnq/ccnq/pkg/testdb/internal/pgserver"
)

// Server is a Postgres server that belongs to one test, which may break it.
// Its methods fail the test if they cannot do their work; they must be called
// from the test's goroutine.
type Server struct {
	// URL is the address of an empty database, for its superuser. It stays the
	// same through stops and starts.
	URL string

	t      testing.TB
	server *pgserver.Server
}

// StartServer starts a new server, whatever CCNQ_TEST_DATABASE_URL says, and
// removes it when the test ends.
func StartServer(t testing.TB) *Server {
	t.Helper()
	binaries, err := pgserver.Find(t.Context())
	if err != nil {
		t.Fatalf("testdb: %v", err)
	}
	server, err := pgserver.Start(t.Context(), binaries)
	if err != nil {
		t.Fatalf("testdb: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), cleanupWait)
		defer cancel()
		if err := server.Close(ctx); err != nil {
			t.Errorf("testdb: %v", err)
		}
	})
	return &Server{URL: server.URL(), t: t, server: server}
}

// Freeze stops every process of the server with SIGSTOP: connections stay
// open, new ones are accepted by the kernel, and nothing answers.
func (s *Server) Freeze() { s.do("freeze", s.server.Freeze) }

// Kill ends every process of the server with SIGKILL. After a Restart, data is
// back, and unlogged tables are empty.
func (s *Server) Kill() { s.do("kill", s.server.Kill) }

// Restart starts the server again after Stop or Kill, on the same address, and
// returns once it answers. A server that runs is stopped first.
func (s *Server) Restart() {
	s.t.Helper()
	s.do("stop", s.server.Stop)
	s.do("start", s.server.Run)
}

// Stop ends the server in order: sessions are cut, data is kept.
func (s *Server) Stop() { s.do("stop", s.server.Stop) }

// Thaw lets a frozen server go on.
func (s *Server) Thaw() { s.do("thaw", s.server.Thaw) }

func (s *Server) do(what string, call func(context.Context) error) {
	s.t.Helper()
	if err := call(s.t.Context()); err != nil {
		s.t.Fatalf("testdb: %s the server: %v", what, err)
	}
}
