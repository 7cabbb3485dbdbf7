package faults

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/tests/internal/await"
	"github.com/ccnq/ccnq/tests/internal/cluster"
	"github.com/ccnq/ccnq/tests/internal/process"
)

// TestF23_StartedBeforeItsPartsExist: the services start while NATS and
// Postgres are away, serve, say so, and join by themselves.
func TestF23_StartedBeforeItsPartsExist(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	s.postgres.Stop()
	s.startEdge()
	s.startEdge()
	s.startCoordinator(nil)
	s.startCoordinator(nil)
	for _, e := range s.edges {
		await.True(t, "the edge is ready", func() bool { return e.Ready(t) })
	}
	stream := s.drive(s.edges...)
	stream.more(t, 50)
	s.degraded()
	for _, k := range s.coordinators {
		await.True(t, "the coordinator says what it waits for", func() bool {
			return strings.Contains(k.Part(t, "nats"), "not ready") && strings.Contains(k.Part(t, "store"), "not ready")
		})
		require.False(t, k.Ready(t))
	}
	s.nats.Run(t)
	for _, k := range s.coordinators {
		await.True(t, "the coordinator has joined NATS", func() bool { return k.Part(t, "nats") == "ok" })
		require.False(t, k.Ready(t), "without a store nobody can decide")
	}
	stream.more(t, 50)
	s.degraded()
	s.postgres.Restart()
	s.comesBack()

	// In service, both go and return.
	s.nats.Stop(t)
	s.postgres.Stop()
	s.degraded()
	stream.more(t, outage)
	s.postgres.Restart()
	s.nats.Run(t)
	s.comesBack()
	stream.wellServed(t)
	s.empty()
}

// TestF23_WrongCredentials are put right on the other side, for Postgres and
// for NATS.
func TestF23_WrongCredentials(t *testing.T) {
	t.Parallel()
	token := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(token, []byte("expected-later"), 0o600))
	s := newSite(t, cluster.Settings{
		"CCNQ_PG_USER": "gate", "CCNQ_PG_PASSWORD": "expected-later", "CCNQ_NATS_TOKEN_FILE": token,
	})
	s.exec("CREATE ROLE gate LOGIN PASSWORD 'not-yet'")
	s.exec("GRANT CREATE ON DATABASE postgres TO gate")
	s.nats.Configure(t, `authorization: {token: "not-yet"}`)
	s.nats.Run(t)
	s.startCoordinator(nil)
	s.startEdge()
	await.True(t, "the edge is ready", func() bool { return s.edges[0].Ready(t) })
	stream := s.drive(s.edges...)
	stream.more(t, 50)
	s.degraded()
	require.False(t, s.coordinators[0].Ready(t))

	s.exec("ALTER ROLE gate PASSWORD 'expected-later'")
	s.nats.Stop(t)
	s.nats.Configure(t, `authorization: {token: "expected-later"}`)
	s.nats.Run(t)
	s.comesBack()
	stream.wellServed(t)
	for _, p := range s.edges {
		require.Zero(t, p.Logged("expected-later"), "secrets are not logged")
	}
	require.Zero(t, s.coordinators[0].Logged("expected-later"))
	s.empty()
}

// TestStart_RefusesABadConfiguration with one message that lists all problems,
// and exit code 2.
func TestStart_RefusesABadConfiguration(t *testing.T) {
	t.Parallel()
	bad := cluster.Common("http://127.0.0.1:1").With(cluster.Settings{
		"CCNQ_QUEUE_LEASE_MS": "soon", "CCNQ_UNHEARD_OF": "1", "CCNQ_NATS_URL": "http://127.0.0.1",
	})
	for _, p := range []*process.Service{process.StartEdge(t, bad), process.StartCoordinator(t, bad)} {
		require.Equal(t, 2, p.ExitCode(t))
		for _, problem := range []string{"CCNQ_QUEUE_LEASE_MS", "CCNQ_UNHEARD_OF", "CCNQ_NATS_URL"} {
			require.Equal(t, 1, p.Logged(problem), problem)
		}
	}
}
