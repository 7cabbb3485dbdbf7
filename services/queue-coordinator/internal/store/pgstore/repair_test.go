package pgstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/db"
	"github.com/ccnq/ccnq/pkg/testdb"
	"github.com/ccnq/ccnq/pkg/wire"
	"github.com/ccnq/ccnq/services/queue-coordinator/internal/store"
)

// TestOperatorsEdits are changes by hand that leave counts behind. Calls go on,
// and the sweep puts it right.
func TestOperatorsEdits(t *testing.T) {
	t.Parallel()
	for name, edit := range map[string]struct {
		sql  string
		want store.Swept
		left [2]int
	}{
		"CountTooHigh":    {`UPDATE group_state SET active_count = 7, pending_count = 7`, store.Swept{Corrected: 1}, [2]int{1, 1}},
		"CountTooLow":     {`UPDATE group_state SET active_count = 0, pending_count = 0`, store.Swept{Corrected: 1}, [2]int{1, 1}},
		"GroupDeleted":    {`DELETE FROM group_state`, store.Swept{Corrected: 1}, [2]int{1, 1}},
		"RequestsDeleted": {`DELETE FROM active_request`, store.Swept{Corrected: 1}, [2]int{1, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSystem(t)
			s.seed("g")
			s.decided(s.admit(request(2, "g"))[0])
			s.exec(edit.sql)
			swept, err := s.ReconcileStale(t.Context(), s.limits)
			require.NoError(t, err)
			require.Equal(t, edit.want, swept)
			s.requireTotals(edit.left[0], edit.left[1])

			s.exec(edit.sql)
			for _, n := range []int{1, 2} {
				require.NoError(t, <-s.release(request(n, "g"))[0], "never below zero")
			}
			_, err = s.ReconcileStale(t.Context(), s.limits)
			require.NoError(t, err)
			s.requireTotals(0, 0)
		})
	}
}

// TestOrphans are requests whose edge has no lease, because somebody deleted
// it, or because a request came in while the edge was reclaimed.
func TestOrphans(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.seed("g")
	s.exec(`DELETE FROM edge_lease`)
	swept, err := s.ReconcileStale(t.Context(), s.limits)
	require.NoError(t, err)
	require.Zero(t, swept, "the edge gets a lease")
	s.exec(`UPDATE edge_lease SET expires = expires - $1::interval`, s.limits.Lease)
	swept, err = s.ReclaimDead(t.Context(), s.limits)
	require.NoError(t, err)
	require.Equal(t, store.Swept{Freed: 1}, swept)
}

// TestTablesEmptied is what edges see after a crash of Postgres has emptied
// the unlogged tables.
func TestTablesEmptied(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.seed("g")
	s.decided(s.admit(request(2, "g"))[0])
	s.exec(`TRUNCATE group_state, active_request, pending_request, edge_lease`)
	s.reassert()
}

// reassert is how an edge puts its requests 1 (active) and 2 (waiting) back
// into a store that has lost them.
func (s *system) reassert() {
	s.t.Helper()
	active, waiting := request(1, "g"), request(2, "g")
	r, err := s.Status(context.Background(), s.limits, store.Status{
		EdgeID: "e1", Epoch: 9, Active: []wire.RequestID{active.ID}, Waiting: []wire.RequestID{waiting.ID},
	})
	require.NoError(s.t, err)
	require.ElementsMatch(s.t, []wire.RequestID{active.ID, waiting.ID}, r.Unknown)
	done, results := channels[store.AdmitResult](2)
	s.Admit(context.Background(), s.limits,
		[]store.AdmitItem{{Item: waiting}, {Item: active, Mode: wire.ModeHeld}}, done)
	require.Equal(s.t, wire.Queued, s.decided(results[0]))
	require.Equal(s.t, wire.Admitted, s.decided(results[1]))
	s.requireTotals(1, 1)
	require.NoError(s.t, <-s.release(active)[0])
	s.requirePromoted(waiting)
}

// TestF22_DatabaseGoesAway freezes, kills and restarts a server of its own.
func TestF22_DatabaseGoesAway(t *testing.T) {
	t.Parallel()
	server := testdb.StartServer(t)
	cfg, err := pgxpool.ParseConfig(server.URL)
	require.NoError(t, err)
	require.NoError(t, db.Migrate(t.Context(), cfg.ConnConfig, "queue"))
	cfg.ConnConfig.RuntimeParams["search_path"] = "queue"
	cfg.MaxConns = 4
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	s := newSystemOn(t, pool)
	s.limits.Lease = 500 * time.Millisecond
	s.seed("g")
	s.decided(s.admit(request(2, "g"))[0])

	server.Freeze()
	r := <-s.admit(within(100*time.Millisecond, request(3, "g")))[0]
	require.Error(t, r.Err, "a frozen server answers nothing, and the caller is told in time")
	// Every lease runs out while the server is frozen. What was asked of it
	// meanwhile must not take that for the death of all edges when it wakes.
	ctx, cancel := context.WithTimeout(t.Context(), 2*s.limits.Lease)
	defer cancel()
	_, err = s.ReclaimDead(ctx, s.limits)
	require.Error(t, err)
	server.Thaw()
	require.Equal(t, wire.Queued, s.recovered(request(3, "g")))
	s.limits.Lease = time.Minute

	server.Kill()
	require.Error(t, (<-s.admit(within(time.Second, request(4, "g")))[0]).Err)
	server.Restart()
	require.Equal(t, wire.Admitted, s.recovered(request(5, "other")))
	require.NoError(t, <-s.release(request(5, "other"))[0])
	s.reassert()
}

// recovered admits a request once the connections that broke have been used
// up, each by one failed call.
func (s *system) recovered(item store.Item) wire.Decision {
	s.t.Helper()
	var r store.AdmitResult
	for range s.pool.Config().MaxConns + 1 {
		if r = <-s.admit(item)[0]; r.Err == nil {
			return r.Decision
		}
	}
	require.NoError(s.t, r.Err)
	return ""
}
