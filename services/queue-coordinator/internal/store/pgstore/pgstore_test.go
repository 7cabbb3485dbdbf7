package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/ccnq/ccnq/pkg/testdb"
	"github.com/ccnq/ccnq/services/queue-coordinator/internal/store"
	"github.com/ccnq/ccnq/services/queue-coordinator/internal/store/pgstore"
	"github.com/ccnq/ccnq/services/queue-coordinator/internal/store/storetest"
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
	cfg.MaxConns = 8
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

func (s *state) Open(clock func() time.Time, promoted store.PromotedFunc) store.Store {
	return pgstore.New(s.pool, pgstore.Options{Promoted: promoted, Clock: clock})
}

func (s *state) Reset() {
	_, err := s.pool.Exec(context.Background(), `
		DO $$ BEGIN
			DELETE FROM group_state; DELETE FROM active_request;
			DELETE FROM pending_request; DELETE FROM edge_lease;
		END $$`)
	require.NoError(s.t, err)
}

// Check compares the counts with the requests.
func (s *state) Check() error {
	var wrong, both int
	err := s.pool.QueryRow(context.Background(), `
		SELECT (SELECT count(*) FROM group_state g
		        FULL JOIN (SELECT ip_group, count(*) FILTER (WHERE active) AS active,
		                          count(*) FILTER (WHERE NOT active) AS pending
		                   FROM (SELECT ip_group, true AS active FROM active_request
		                         UNION ALL SELECT ip_group, false FROM pending_request) AS r
		                   GROUP BY ip_group) AS n USING (ip_group)
		        WHERE (active_count, pending_count) IS DISTINCT FROM (coalesce(active, 0), coalesce(pending, 0))),
		       (SELECT count(*) FROM active_request JOIN pending_request USING (request_id))`).Scan(&wrong, &both)
	if wrong != 0 {
		err = errors.Join(err, fmt.Errorf("the counts of %d groups are wrong", wrong))
	}
	if both != 0 {
		err = errors.Join(err, fmt.Errorf("%d requests are active and waiting", both))
	}
	return err
}
