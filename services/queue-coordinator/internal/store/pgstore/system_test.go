package pgstore_test

import (
	"context"
	"encoding/binary"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/pkg/wire"
	"github.com/ccnq/ccnq/services/queue-coordinator/internal/store"
	"github.com/ccnq/ccnq/services/queue-coordinator/internal/store/pgstore"
)

// system is a store on the real clock and an operator's session beside it.
type system struct {
	*pgstore.Store
	t      *testing.T
	pool   *pgxpool.Pool
	limits store.Limits

	mu       sync.Mutex
	promoted []store.Promotion
}

func newSystem(t *testing.T) *system {
	t.Helper()
	return newSystemOn(t, newPool(t))
}

func newSystemOn(t *testing.T, pool *pgxpool.Pool) *system {
	t.Helper()
	s := &system{
		t: t, pool: pool,
		limits: store.Limits{MaxServed: 1, MaxPending: 5, Lease: time.Minute, StaleActive: time.Hour},
	}
	s.Store = pgstore.New(pool, pgstore.Options{Promoted: func(p []store.Promotion) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.promoted = append(s.promoted, p...)
	}})
	t.Cleanup(s.Close)
	return s
}

// request names request n of edge e1.
func request(n int, group string) store.Item {
	var id wire.RequestID
	binary.BigEndian.PutUint64(id[8:], uint64(n))
	return store.Item{ID: id, Group: group, EdgeID: "e1"}
}

// within gives an item a deadline.
func within(d time.Duration, i store.Item) store.Item {
	i.Deadline = time.Now().Add(d)
	return i
}

// admit starts an Admit and returns a channel for the result of each item,
// which may come after this has returned.
func (s *system) admit(items ...store.Item) []<-chan store.AdmitResult {
	asked := make([]store.AdmitItem, len(items))
	for i := range items {
		asked[i] = store.AdmitItem{Item: items[i]}
	}
	done, results := channels[store.AdmitResult](len(items))
	s.Admit(context.Background(), s.limits, asked, done)
	return results
}

func (s *system) release(items ...store.Item) []<-chan error {
	done, results := channels[error](len(items))
	s.Release(context.Background(), s.limits, items, done)
	return results
}

func (s *system) cancel(items ...store.Item) []<-chan store.CancelResult {
	done, results := channels[store.CancelResult](len(items))
	s.Cancel(context.Background(), s.limits, items, done)
	return results
}

func channels[R any](n int) (done func(int, R), results []<-chan R) {
	all := make([]chan R, n)
	for i := range all {
		all[i] = make(chan R, 1)
		results = append(results, all[i])
	}
	return func(i int, r R) { all[i] <- r }, results
}

// decided waits for the decision on one item.
func (s *system) decided(result <-chan store.AdmitResult) wire.Decision {
	s.t.Helper()
	r := <-result
	require.NoError(s.t, r.Err)
	return r.Decision
}

// undecided asserts that there is no result yet.
func undecided[R any](t *testing.T, result <-chan R) {
	t.Helper()
	select {
	case r := <-result:
		require.Fail(t, "reported too early", "%+v", r)
	default:
	}
}

// operator opens a transaction and runs the statement in it.
func (s *system) operator(sql string, args ...any) pgx.Tx {
	s.t.Helper()
	conn, err := pgx.ConnectConfig(context.Background(), s.pool.Config().ConnConfig)
	require.NoError(s.t, err)
	s.t.Cleanup(func() { require.NoError(s.t, conn.Close(context.Background())) })
	tx, err := conn.Begin(context.Background())
	require.NoError(s.t, err)
	_, err = tx.Exec(context.Background(), sql, args...)
	require.NoError(s.t, err)
	return tx
}

func (s *system) exec(sql string, args ...any) {
	s.t.Helper()
	_, err := s.pool.Exec(context.Background(), sql, args...)
	require.NoError(s.t, err)
}

func (s *system) requirePromoted(items ...store.Item) {
	s.t.Helper()
	var want []store.Promotion
	for _, i := range items {
		want = append(want, store.Promotion{ID: i.ID, Group: i.Group, EdgeID: i.EdgeID})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	require.Equal(s.t, want, s.promoted)
	s.promoted = nil
}

func (s *system) requireTotals(active, waiting int) {
	s.t.Helper()
	totals, err := s.Totals(context.Background())
	require.NoError(s.t, err)
	require.Equal(s.t, []int{active, waiting}, []int{totals.Active, totals.Waiting}, "active, waiting")
	require.NoError(s.t, (&state{s.t, s.pool}).Check())
}
