package pgstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/ccnq/ccnq/pkg/testdb"
	"github.com/ccnq/ccnq/services/denylist/internal/store"
	"github.com/ccnq/ccnq/services/denylist/internal/store/pgstore"
	"github.com/ccnq/ccnq/services/denylist/internal/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestStore(t *testing.T) {
	t.Parallel()
	storetest.Exercise(t, func(t testing.TB) storetest.State {
		t.Helper()
		return &state{t, newPool(t)}
	})
}

// newPool connects to a schema that belongs to the test.
func newPool(t testing.TB) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(testdb.New(t).URL)
	require.NoError(t, err)
	cfg.MaxConns = 6
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// state is one schema.
type state struct {
	t    testing.TB
	pool *pgxpool.Pool
}

func (s *state) Open(settings store.Settings, clock func() time.Time) store.Store {
	return pgstore.New(s.pool, settings, clock)
}

func (s *state) Quarantined() []store.Quarantined {
	rows, err := s.pool.Query(context.Background(), `SELECT seq, at, subject, why, payload FROM event_quarantine ORDER BY seq`)
	require.NoError(s.t, err)
	defer rows.Close()
	var all []store.Quarantined
	for rows.Next() {
		var q store.Quarantined
		require.NoError(s.t, rows.Scan(&q.Seq, &q.At, &q.Subject, &q.Why, &q.Payload))
		all = append(all, q)
	}
	require.NoError(s.t, rows.Err())
	return all
}

func (s *state) LoseBlocks() {
	s.exec(`DO $$ BEGIN
		SET LOCAL session_replication_role = replica;
		DELETE FROM ip_block; DELETE FROM ip_group_block;
	END $$`)
}

func (s *state) Reset() {
	s.exec(`DO $$ BEGIN
		SET LOCAL session_replication_role = replica;
		DELETE FROM ip_block; DELETE FROM ip_group_block; DELETE FROM ip_denial_count; DELETE FROM block_change;
		DELETE FROM outbox_position; DELETE FROM event_quarantine; DELETE FROM denylist_leader;
		UPDATE denylist_checkpoint SET created = NULL, seq = 0; UPDATE block_publication SET version = 0;
		PERFORM setval('block_version', 1, false);
	END $$`)
}

func (s *state) exec(sql string) {
	s.t.Helper()
	_, err := s.pool.Exec(context.Background(), sql)
	require.NoError(s.t, err)
}
