package faults

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/tests/internal/await"
	"github.com/ccnq/ccnq/tests/internal/cluster"
	"github.com/ccnq/ccnq/tests/internal/link"
	"github.com/ccnq/ccnq/tests/internal/origin"
	"github.com/ccnq/ccnq/tests/internal/visitor"
)

// outage is how many requests each outage lasts, after the edges know of it.
const outage = 200

// outageOf breaks something under traffic, requires that everybody is served,
// and mends it.
func (s *site) outageOf(breaks, mends func()) {
	t := s.t
	t.Helper()
	stream := s.drive(s.edges...)
	stream.more(t, 20)
	open := s.sum("ccnq_queue_fail_open_total")
	breaks()
	s.degraded()
	asks := s.sum("ccnq_queue_asks_total")
	stream.more(t, outage)
	require.GreaterOrEqual(t, s.sum("ccnq_queue_fail_open_total")-open, outage/2, "requests pass undecided, and are counted")
	require.Less(t, s.sum("ccnq_queue_asks_total")-asks, outage/4, "the store is not asked for every request")
	for _, e := range s.edges {
		require.LessOrEqual(t, e.Logged("no coordinator answers"), 3, "the log says it once for each outage, not for each request")
		require.Positive(t, e.Logged("no coordinator answers"))
	}
	mends()
	s.comesBack()
	stream.wellServed(t)
	s.empty()
}

func TestF22_TheStoreIsDown(t *testing.T) {
	t.Parallel()
	t.Run("it refuses connections", func(t *testing.T) {
		t.Parallel()
		s := start(t, nil)
		s.outageOf(s.postgres.Stop, s.postgres.Restart)
	})
	t.Run("it swallows packets", func(t *testing.T) {
		t.Parallel()
		s := start(t, nil)
		s.outageOf(s.postgres.Freeze, s.postgres.Thaw)
	})
	t.Run("it answers errors", func(t *testing.T) {
		t.Parallel()
		s := start(t, nil)
		s.outageOf(
			func() { s.exec("ALTER TABLE group_state RENAME TO elsewhere") },
			func() { s.exec("ALTER TABLE elsewhere RENAME TO group_state") },
		)
	})
	t.Run("it answers after 3 s", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, nil)
		slow := link.New(t, net.JoinHostPort(s.settings["CCNQ_PG_HOST"], s.settings["CCNQ_PG_PORT"]))
		s.settings = s.settings.With(cluster.Settings{"CCNQ_PG_HOST": slow.Host, "CCNQ_PG_PORT": slow.Port})
		s.run()
		s.outageOf(func() { slow.Delay(3 * time.Second) }, func() { slow.Delay(0) })
	})
}

// TestPostgres_RestartedEmpty: a crash empties the unlogged tables. The edges
// tell what they hold, and those that waited keep their order.
func TestPostgres_RestartedEmpty(t *testing.T) {
	t.Parallel()
	s := start(t, patient)
	ip := s.newGroup()
	var held []*origin.Arrival
	var pending []*visitor.Pending
	for i := range maxServed - 1 {
		pending = append(pending, s.Send(t.Context(), visitor.Request{
			Edge: s.edges[i%2].URL, IP: ip(i + 1), Do: origin.DoHold,
		}))
		held = append(held, s.origin.Next(t))
	}
	s.postgres.Kill()
	s.postgres.Restart()
	await.Within(t, comeBack, "the store knows again what the edges hold", func() bool {
		active, _ := cluster.Rows(t, s.db.Config())
		return active == len(held)
	})
	s.comesBack()

	// What was held before the crash counts: there is room for one more.
	last := s.Send(t.Context(), visitor.Request{Edge: s.edges[0].URL, IP: ip(10), Do: origin.DoHold})
	lastHeld := s.origin.Next(t)
	inLine := s.Send(t.Context(), visitor.Request{Edge: s.edges[1].URL, IP: ip(11)})
	await.True(t, "the next one waits", func() bool {
		_, waiting := cluster.Rows(t, s.db.Config())
		return waiting == 1
	})
	require.Equal(t, maxServed, s.origin.Now(visitor.Group(ip(1))))
	lastHeld.Release()
	require.Equal(t, 200, last.Answer(t).Status)
	require.Equal(t, 200, inLine.Answer(t).Status)
	for i := range held {
		held[i].Release()
		require.Equal(t, 200, pending[i].Answer(t).Status)
	}
	s.empty()
}

// TestPostgres_CrashesWhileRequestsWait: those that wait pass or wait on, and
// are never refused for it.
func TestPostgres_CrashesWhileRequestsWait(t *testing.T) {
	t.Parallel()
	s := start(t, patient)
	ip := s.newGroup()
	var held []*visitor.Pending
	for i := range maxServed {
		held = append(held, s.Send(t.Context(), visitor.Request{Edge: s.edges[i%2].URL, IP: ip(i + 1), Do: origin.DoHold}))
	}
	var arrivals []*origin.Arrival
	for range held {
		arrivals = append(arrivals, s.origin.Next(t))
	}
	var waiting []*visitor.Pending
	for i := range maxPending {
		waiting = append(waiting, s.Send(t.Context(), visitor.Request{Edge: s.edges[i%2].URL, IP: ip(i + 10)}))
	}
	await.True(t, "the line is full", func() bool {
		_, pending := cluster.Rows(t, s.db.Config())
		return pending == maxPending
	})
	s.postgres.Kill()
	for _, p := range waiting {
		require.Equal(t, 200, p.Answer(t).Status)
	}
	s.postgres.Restart()
	s.comesBack()
	for _, a := range arrivals {
		a.Release()
	}
	for _, p := range held {
		require.Equal(t, 200, p.Answer(t).Status)
	}
	s.empty()
}

// TestPostgres_OneGroupIsLocked by somebody's psql transaction: that group
// passes undecided, all others are not concerned. It runs before the parallel
// tests, see [TestCoordinator_Killed].
func TestPostgres_OneGroupIsLocked(t *testing.T) {
	const patience, pending = 5 * time.Second, 20 * time.Second // so that nothing else passes, or is refused, on a busy machine
	s := start(t, cluster.Settings{"CCNQ_QUEUE_ADMIT_TIMEOUT_MS": "5000", "CCNQ_QUEUE_PENDING_TIMEOUT_MS": "20000"})
	ip := s.newGroup()
	require.Equal(t, 200, s.Get(t, visitor.Request{Edge: s.edges[0].URL, IP: ip(1)}).Status)

	psql, err := pgx.ConnectConfig(t.Context(), s.db.Config())
	require.NoError(t, err)
	defer psql.Close(context.WithoutCancel(t.Context()))
	tx, err := psql.Begin(t.Context())
	require.NoError(t, err)
	var locked string
	require.NoError(t, tx.QueryRow(t.Context(),
		"SELECT ip_group FROM group_state WHERE ip_group = $1 FOR UPDATE", visitor.Group(ip(1))).Scan(&locked))

	undecided := s.sum("ccnq_queue_fail_open_total")
	stream := s.drive(s.edges...)
	stream.more(t, 50)
	began := time.Now()
	var stuck []*visitor.Pending
	for i := range 4 {
		stuck = append(stuck, s.Send(t.Context(), visitor.Request{Edge: s.edges[i%2].URL, IP: ip(i + 1)}))
	}
	require.True(t, s.limitsHold(), "for all other groups")
	for _, p := range stuck {
		require.Equal(t, 200, p.Answer(t).Status)
	}
	require.Less(t, time.Since(began), pending+2*patience+slack)
	require.Equal(t, undecided+len(stuck), s.sum("ccnq_queue_fail_open_total"), "of that group alone")
	for _, e := range s.edges {
		require.Equal(t, "ok", e.Part(t, "queue"))
	}
	require.NoError(t, tx.Rollback(t.Context()))
	stream.wellServed(t)
	s.comesBack()
	s.empty()
	held := s.Send(t.Context(), visitor.Request{Edge: s.edges[0].URL, IP: ip(1), Do: origin.DoHold})
	arrival := s.origin.Next(t)
	active, _ := cluster.Rows(t, s.db.Config())
	require.Equal(t, 1, active, "the group is decided on again")
	arrival.Release()
	require.Equal(t, 200, held.Answer(t).Status)
	s.empty()
}
