package process

import (
	"testing"

	"github.com/ccnq/ccnq/tests/internal/cluster"
	"github.com/ccnq/ccnq/tests/internal/scrape"
)

// Service is a process of one of the services.
type Service struct {
	*Process
	// Admin is where operators connect.
	Admin string
	// URL is where clients connect; the edge's alone.
	URL string
}

// StartEdge starts an edge on free ports.
func StartEdge(t testing.TB, settings cluster.Settings) *Service {
	t.Helper()
	port := FreePort(t)
	s := start(t, "ccnq-edge", settings.With(cluster.Settings{"CCNQ_PORT": port}))
	s.URL = "http://127.0.0.1:" + port
	return s
}

// StartCoordinator starts a coordinator.
func StartCoordinator(t testing.TB, settings cluster.Settings) *Service {
	t.Helper()
	return start(t, "ccnq-queue-coordinator", settings)
}

// StartDenylist starts a denylist service.
func StartDenylist(t testing.TB, settings cluster.Settings) *Service {
	t.Helper()
	return start(t, "ccnq-denylist", settings)
}

func start(t testing.TB, binary string, settings cluster.Settings) *Service {
	t.Helper()
	admin := "127.0.0.1:" + FreePort(t)
	settings = settings.With(cluster.Settings{"CCNQ_ADMIN_ADDR": admin})
	return &Service{Process: Start(t, binary, settings.Environ()), Admin: "http://" + admin}
}

// Ready reports whether the service says that it is ready.
func (s *Service) Ready(t testing.TB) bool {
	t.Helper()
	r, ok := scrape.Ready(t, s.Admin)
	return ok && r.Ready
}

// Part returns what the service says of one of its parts, or nothing if it
// says nothing.
func (s *Service) Part(t testing.TB, name string) string {
	t.Helper()
	r, _ := scrape.Ready(t, s.Admin)
	return r.Parts[name]
}
