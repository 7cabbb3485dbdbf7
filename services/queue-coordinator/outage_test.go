package coordinator

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/pkg/bus"
	"github.com/ccnq/ccnq/pkg/config"
	"github.com/ccnq/ccnq/pkg/testdb"
	"github.com/ccnq/ccnq/pkg/wire"
)

// TestF23_StartsBeforeItsPartsExist starts a coordinator without NATS and
// Postgres, brings both up, takes both away and brings them back.
func TestF23_StartsBeforeItsPartsExist(t *testing.T) {
	t.Parallel()
	p := newParts(t)
	p.nats.Stop()
	db := testdb.StartServer(t)
	db.Stop()
	c := p.start(p.config(db.URL, "queue"), Deps{})
	e := p.edge("edge-1")

	ready, body := readyz(t, c)
	require.False(t, ready)
	require.Contains(t, body, "nats")
	require.Contains(t, body, "store")
	p.startNATS()
	require.Eventually(t, func() bool {
		_, err := e.admit(1, time.Second)
		return errors.Is(err, bus.ErrNoResponders)
	}, patience, 10*time.Millisecond, "nobody serves without a database")
	ready, body = readyz(t, c)
	require.False(t, ready, body)

	db.Restart()
	untilReady(t, c)
	require.Equal(t, wire.Admitted, e.untilDecided(1))
	require.Equal(t, wire.Queued, e.untilDecided(2))

	p.nats.Stop()
	db.Stop()
	require.Eventually(t, func() bool { ready, _ := readyz(t, c); return !ready }, patience, 10*time.Millisecond)
	p.startNATS()
	db.Restart()
	require.Equal(t, wire.Queued, e.untilDecided(2), "an orderly stop of Postgres keeps the tables")
	untilReady(t, c)
	require.LessOrEqual(t, strings.Count(p.log.String(), "Postgres is not usable yet"), 5, "once for each reason")
}

// TestF23_WrongCredentialsArePutRight lets a coordinator begin with a password
// that is wrong at first, and makes it wrong once more in service.
func TestF23_WrongCredentialsArePutRight(t *testing.T) {
	t.Parallel()
	p := newParts(t)
	db := testdb.StartServer(t)
	cfg := p.config(db.URL, "queue")
	cfg.Postgres.User, cfg.Postgres.Password = "late", "hunter2"
	exec(t, db.URL, `CREATE ROLE late LOGIN SUPERUSER PASSWORD 'another'`)
	c := p.start(cfg, Deps{})
	require.Eventually(t, func() bool { return strings.Contains(p.log.String(), "password authentication failed") },
		patience, 10*time.Millisecond)
	exec(t, db.URL, `ALTER ROLE late PASSWORD 'hunter2'`)
	untilReady(t, c)
	e := p.edge("edge-1")
	require.Equal(t, wire.Admitted, e.untilDecided(1))

	exec(t, db.URL, `ALTER ROLE late PASSWORD 'another'`)
	exec(t, db.URL, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'late'`)
	require.Eventually(t, func() bool {
		_, err := e.admit(2, time.Second)
		return bus.CodeOf(err) == bus.CodeUnavailable
	}, patience, 10*time.Millisecond)
	exec(t, db.URL, `ALTER ROLE late PASSWORD 'hunter2'`)
	untilReady(t, c)
	require.Equal(t, wire.Queued, e.untilDecided(2))
	require.NotContains(t, p.log.String(), "hunter2")
}

// TestF22_PostgresAnswersNothing freezes the database: requests are answered
// within their budget at first and at once later, and when it goes on, those
// who held a place still hold it.
func TestF22_PostgresAnswersNothing(t *testing.T) {
	t.Parallel()
	p := newParts(t)
	db := testdb.StartServer(t)
	c := p.start(p.config(db.URL, "queue"), Deps{})
	untilReady(t, c)
	e := p.edge("edge-1")
	require.Equal(t, wire.Admitted, e.untilDecided(1))
	unknown := e.beat(id(1))
	require.Eventually(t, func() bool { return !c.sweeper.Load().Suspended() }, patience, 10*time.Millisecond)

	db.Freeze()
	_, err := e.admit(2, 500*time.Millisecond)
	require.Contains(t, []bus.Code{bus.CodeExpired, bus.CodeUnavailable}, bus.CodeOf(err), "%v", err)
	require.Eventually(t, func() bool {
		_, err := e.admit(2, 500*time.Millisecond)
		return bus.CodeOf(err) == bus.CodeUnavailable
	}, patience, 10*time.Millisecond)
	ready, body := readyz(t, c)
	require.False(t, ready)
	require.Contains(t, body, "away")
	require.True(t, c.sweeper.Load().Suspended(), "no lease can be renewed")
	<-time.After(2 * c.cfg.Queue.Lease.Duration()) // all leases expire

	db.Thaw()
	untilReady(t, c)
	require.Eventually(t, func() bool { return !c.sweeper.Load().Suspended() }, patience, 10*time.Millisecond)
	require.NotEqual(t, wire.Rejected, e.untilDecided(2))
	require.Empty(t, unknown(), "nothing was taken away")
}

// TestPostgresComesBackEmpty kills the database, which empties its unlogged
// tables, and then even drops the schema.
func TestPostgresComesBackEmpty(t *testing.T) {
	t.Parallel()
	p := newParts(t)
	db := testdb.StartServer(t)
	cfg := p.config(db.URL, "queue")
	cfg.Queue.Lease = config.Millis(10 * time.Minute) // no place is taken away meanwhile
	c := p.start(cfg, Deps{})
	untilReady(t, c)
	e := p.edge("edge-1")
	require.Equal(t, wire.Admitted, e.untilDecided(1))
	for epoch, lose := range []func(){
		func() { db.Kill(); db.Restart() },
		func() { exec(t, db.URL, `DROP SCHEMA queue CASCADE`) },
	} {
		lose()
		var reply wire.StatusReply
		require.Eventually(t, func() bool {
			var err error
			reply, err = e.status(int64(epoch+1), id(1))
			return err == nil
		}, patience, 10*time.Millisecond)
		require.Equal(t, []wire.RequestID{id(1)}, reply.Unknown)
		held, err := bus.Request[wire.AdmitRequest, wire.AdmitReply](e.ctx(), e.conn, wire.EdgeSubject(wire.SubjectAdmit, e.id),
			wire.AdmitRequest{RequestID: id(1), Bucket: bucket, Mode: wire.ModeHeld, BudgetMS: 10_000})
		require.NoError(t, err)
		require.Equal(t, wire.Admitted, held.Decision)
		require.Equal(t, wire.Queued, e.untilDecided(2), "the place is taken")
		require.NoError(t, e.release(2))
	}
}

// TestDeadEdgeFreesItsPlaces lets one edge fall silent while another waits.
func TestDeadEdgeFreesItsPlaces(t *testing.T) {
	t.Parallel()
	p := newParts(t)
	db := testdb.New(t)
	untilReady(t, p.start(p.config(db.URL, db.Schema), Deps{}))
	require.Equal(t, wire.Admitted, p.edge("dead").untilDecided(1))
	live := p.edge("live")
	require.Equal(t, wire.Queued, live.untilDecided(2))
	alive := time.NewTicker(250 * time.Millisecond)
	defer alive.Stop()
	for epoch, done := int64(1), p.ctx().Done(); ; epoch++ {
		select {
		case promoted := <-live.promoted:
			require.Equal(t, id(2), promoted)
			return
		case <-alive.C:
			_, err := live.status(epoch)
			require.NoError(t, err)
		case <-done:
			require.Fail(t, "the place did not come back")
		}
	}
}
