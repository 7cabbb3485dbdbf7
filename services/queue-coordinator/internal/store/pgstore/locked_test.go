package pgstore_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/db"
	"github.com/ccnq/ccnq/pkg/testdb"
	"github.com/ccnq/ccnq/pkg/wire"
	"github.com/ccnq/ccnq/services/queue-coordinator/internal/store"
)

const lockGroup = `SELECT FROM group_state WHERE ip_group = $1 FOR UPDATE`

// seed gives each group one active request, so that its row exists; request 1
// is of the first group, 2 of the second, and so on.
func (s *system) seed(groups ...string) {
	s.t.Helper()
	var items []store.Item
	for i, g := range groups {
		items = append(items, request(i+1, g))
	}
	for _, r := range s.admit(items...) {
		require.Equal(s.t, wire.Admitted, s.decided(r))
	}
}

// TestLockedGroup holds one group's row in a transaction, as somebody at psql
// would.
func TestLockedGroup(t *testing.T) {
	t.Parallel()

	t.Run("AdmitOfOthersGoesOn", func(t *testing.T) {
		t.Parallel()
		s := newSystem(t)
		s.seed("g", "h")
		tx := s.operator(lockGroup, "g")
		results := s.admit(request(11, "g"), request(12, "h"), request(13, "new"))
		require.Equal(t, wire.Queued, s.decided(results[1]))
		require.Equal(t, wire.Admitted, s.decided(results[2]))
		undecided(t, results[0])

		later := s.admit(request(14, "g"), request(15, "i"))
		require.Equal(t, wire.Admitted, s.decided(later[1]))
		undecided(t, later[0])
		undecided(t, results[0])

		require.NoError(t, tx.Rollback(t.Context()))
		require.Equal(t, wire.Queued, s.decided(results[0]))
		require.Equal(t, wire.Queued, s.decided(later[0]))
		require.NoError(t, <-s.release(request(1, "g"))[0])
		s.requirePromoted(request(11, "g")) // before 14, which came later
		s.requireTotals(4, 2)
	})

	t.Run("BusyAtTheDeadline", func(t *testing.T) {
		t.Parallel()
		s := newSystem(t)
		s.seed("g", "h")
		tx := s.operator(lockGroup, "g")
		results := s.admit(within(3*time.Second, request(11, "g")), request(12, "h"))
		require.Equal(t, wire.Queued, s.decided(results[1]))
		require.ErrorIs(t, (<-results[0]).Err, store.ErrBusy)
		require.NoError(t, tx.Rollback(t.Context()))
		s.requireTotals(2, 1)
		require.Equal(t, wire.Queued, s.decided(s.admit(request(11, "g"))[0]), "the next goes through")
	})

	t.Run("Close", func(t *testing.T) {
		t.Parallel()
		s := newSystem(t)
		s.seed("g")
		tx := s.operator(lockGroup, "g")
		admit, release := s.admit(request(11, "g"))[0], s.release(request(1, "g"))[0]
		undecided(t, admit)
		s.Close()
		require.ErrorIs(t, (<-admit).Err, store.ErrClosed)
		require.ErrorIs(t, <-release, store.ErrClosed)
		require.NoError(t, tx.Rollback(t.Context()))
	})

	t.Run("ReleaseAndCancelWait", func(t *testing.T) {
		t.Parallel()
		s := newSystem(t)
		s.seed("g", "h")
		s.decided(s.admit(request(11, "g"))[0])
		s.decided(s.admit(request(12, "g"))[0])
		tx := s.operator(lockGroup, "g")
		release := s.release(request(1, "g"), request(2, "h"))
		require.NoError(t, <-release[1])
		cancel := s.cancel(request(11, "g"), request(2, "h"))
		require.Equal(t, store.CancelResult{Was: wire.WasGone}, <-cancel[1])
		undecided(t, release[0])
		undecided(t, cancel[0])
		s.requirePromoted()
		require.NoError(t, tx.Rollback(t.Context()))
		require.NoError(t, <-release[0])
		// Which of the two came first is open; either way 12 has the place.
		if was := (<-cancel[0]).Was; was == wire.WasActive {
			require.NoError(t, <-s.release(request(11, "g"))[0])
		} else {
			require.Equal(t, wire.WasPending, was)
		}
		s.requireTotals(1, 0)
	})

	t.Run("SweepsGoOn", func(t *testing.T) {
		t.Parallel()
		s := newSystem(t)
		s.seed("g", "h")
		s.decided(s.admit(request(11, "g"))[0])
		s.decided(s.admit(request(12, "h"))[0])
		tx := s.operator(lockGroup, "g")

		s.limits.MaxServed = 2
		require.NoError(t, s.PromoteWaiting(t.Context(), s.limits))
		s.requirePromoted(request(12, "h"))
		pruned, err := s.PruneIdle(t.Context(), 0)
		require.NoError(t, err)
		require.Zero(t, pruned)
		s.exec(`UPDATE active_request SET created = now() - interval '1 day'`)
		r, err := s.Status(t.Context(), s.limits, store.Status{EdgeID: "e1", Epoch: 1, Stale: time.Second})
		require.NoError(t, err)
		require.Equal(t, 2, r.Freed, "2 and 12, of h")
		s.exec(`UPDATE edge_lease SET expires = now() - interval '1 s'`)
		swept, err := s.ReclaimDead(t.Context(), s.limits)
		require.NoError(t, err)
		require.Zero(t, swept, "what is left is locked")
		swept, err = s.ReconcileStale(t.Context(), s.limits)
		require.NoError(t, err)
		require.Zero(t, swept)

		require.NoError(t, tx.Rollback(t.Context()))
		swept, err = s.ReclaimDead(t.Context(), s.limits)
		require.NoError(t, err)
		require.Equal(t, store.Swept{Freed: 2}, swept, "the edge was not forgotten before")
		s.requireTotals(0, 0)
	})
}

// TestLockedRequest holds a row that SKIP LOCKED cannot skip: a request that
// somebody is deleting.
func TestLockedRequest(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	groups := make([]string, 40)
	items := make([]store.Item, len(groups))
	for i := range groups {
		groups[i] = fmt.Sprintf("g%d", i)
		items[i] = request(i+1, groups[i])
	}
	s.seed(groups...)
	tx := s.operator(`DELETE FROM active_request WHERE ip_group = 'g7'`)
	results := s.release(items...)
	for i, r := range results {
		if i != 7 {
			require.NoError(t, <-r, groups[i])
		}
	}
	undecided(t, results[7])
	require.NoError(t, tx.Commit(t.Context()))
	require.NoError(t, <-results[7])
	swept, err := s.ReconcileStale(t.Context(), s.limits)
	require.NoError(t, err)
	require.Equal(t, store.Swept{Corrected: 1}, swept, "the operator left the count of g7 as it was")
	s.requireTotals(0, 0)
}

// TestLockedNewGroup holds a row of a group that does not exist for others.
func TestLockedNewGroup(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	tx := s.operator(`INSERT INTO group_state (ip_group) VALUES ('new')`)
	results := s.admit(request(1, "new"), request(2, "h"))
	require.Equal(t, wire.Admitted, s.decided(results[1]))
	undecided(t, results[0])
	require.NoError(t, tx.Rollback(t.Context()))
	require.Equal(t, wire.Admitted, s.decided(results[0]))
}

// TestLockedTable leaves nothing to do but to say so in time.
func TestLockedTable(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.seed("g")
	tx := s.operator(`LOCK TABLE active_request`)
	for _, r := range s.admit(within(3*time.Second, request(11, "g")), within(3*time.Second, request(12, "h"))) {
		require.ErrorIs(t, (<-r).Err, store.ErrBusy)
	}
	require.NoError(t, tx.Rollback(t.Context()))
	require.Equal(t, wire.Queued, s.decided(s.admit(request(11, "g"))[0]))
}

// TestLockGroups_DeletedMeanwhile: a group that somebody deletes between two
// statements of the function is told as not locked, so that its requests are
// tried again.
func TestLockGroups_DeletedMeanwhile(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.exec(`INSERT INTO group_state (ip_group) VALUES ('g'), ('h')`)
	tx := s.operator(`INSERT INTO group_state (ip_group) VALUES ('new')`)
	_, err := tx.Exec(t.Context(), `DELETE FROM group_state WHERE ip_group = 'g'`)
	require.NoError(t, err)
	busy := s.lockGroups("g", "h", "new")
	s.untilWaiting("lock_groups") // for the row of "new"
	require.NoError(t, tx.Commit(t.Context()))
	require.Equal(t, []string{"g"}, <-busy)
	require.Equal(t, wire.Admitted, s.decided(s.admit(request(1, "g"))[0]))
}

// TestLockGroups_OrderOfBytes: new groups are made in the order of bytes, also
// where the database sorts otherwise, so that no two calls wait crosswise.
func TestLockGroups_OrderOfBytes(t *testing.T) {
	t.Parallel()
	server := testdb.StartServer(t)
	admin, err := pgx.Connect(t.Context(), server.URL)
	require.NoError(t, err)
	_, err = admin.Exec(t.Context(), `CREATE DATABASE words TEMPLATE template0 LOCALE_PROVIDER icu ICU_LOCALE 'en-US'`)
	require.NoError(t, err)
	require.NoError(t, admin.Close(t.Context()))
	cfg, err := pgxpool.ParseConfig(server.URL)
	require.NoError(t, err)
	cfg.ConnConfig.Database = "words"
	require.NoError(t, db.Migrate(t.Context(), cfg.ConnConfig, "queue"))
	cfg.ConnConfig.RuntimeParams["search_path"] = "queue"
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	var words bool
	require.NoError(t, pool.QueryRow(t.Context(), `SELECT 'a' < 'B'`).Scan(&words))
	require.True(t, words, "this database does not sort by bytes")

	s := newSystemOn(t, pool)
	tx := s.operator(`INSERT INTO group_state (ip_group) VALUES ('B')`)
	busy := s.lockGroups("a", "B")
	s.untilWaiting("lock_groups") // for the row of "B", which comes first
	_, err = tx.Exec(t.Context(), `SET LOCAL lock_timeout = '1s'`)
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `INSERT INTO group_state (ip_group) VALUES ('a')`)
	require.NoError(t, err, "the other call has not made the row of \"a\"")
	require.NoError(t, tx.Commit(t.Context()))
	require.Equal(t, []string{}, <-busy)
}

// lockGroups calls lock_groups, to create and to skip, and returns a channel
// for what it could not lock.
func (s *system) lockGroups(groups ...string) <-chan []string {
	busy := make(chan []string, 1)
	go func() {
		var answer []string
		err := s.pool.QueryRow(context.Background(), `SELECT lock_groups($1, true, true)`, groups).Scan(&answer)
		if err != nil {
			answer = []string{err.Error()}
		}
		busy <- answer
	}()
	return busy
}

// untilWaiting waits until a statement with the text waits for a lock.
func (s *system) untilWaiting(text string) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		var waits bool
		err := s.pool.QueryRow(context.Background(), `
			SELECT EXISTS (SELECT FROM pg_stat_activity
			WHERE pid <> pg_backend_pid() AND datname = current_database()
			  AND wait_event_type = 'Lock' AND query LIKE '%' || $1 || '%')`, text).Scan(&waits)
		return err == nil && waits
	}, time.Minute, 5*time.Millisecond)
}
