package pgstore_test

import (
	"context"
	"fmt"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/pkg/testdb"
	"github.com/ccnq/ccnq/pkg/wire"
	"github.com/ccnq/ccnq/services/denylist/internal/store"
	"github.com/ccnq/ccnq/services/denylist/internal/store/pgstore"
)

// counter counts statements.
type counter struct{ n atomic.Int64 }

func (c *counter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.n.Add(1)
	return ctx
}

func (c *counter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// leadStore returns a store that leads at the beginning of a stream.
func leadStore(t *testing.T, pool *pgxpool.Pool) (*pgstore.Store, int64) {
	t.Helper()
	s := pgstore.New(pool, store.DefaultSettings(), nil)
	epoch, ok, err := s.Lead(t.Context(), "the test", time.Hour)
	require.NoError(t, err)
	require.True(t, ok)
	return s, epoch
}

// TestQuarantineIsOneStatement moves aside what a hostile edge sends: it costs
// as many statements for hundreds of messages as for one.
func TestQuarantineIsOneStatement(t *testing.T) {
	t.Parallel()
	cfg, err := pgxpool.ParseConfig(testdb.New(t).URL)
	require.NoError(t, err)
	statements := &counter{}
	cfg.ConnConfig.Tracer = statements
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	s, epoch := leadStore(t, pool)
	require.NoError(t, s.Reset(t.Context(), epoch, benchmarkDay))
	at := store.Checkpoint{Created: benchmarkDay}
	costs := map[int]int64{}
	for _, n := range []int{1, 500} {
		b := store.Batch{Next: store.Checkpoint{Created: benchmarkDay, Seq: at.Seq + uint64(n)}}
		for i := range n {
			b.Quarantined = append(b.Quarantined, store.Quarantined{Seq: at.Seq + uint64(i) + 1, At: benchmarkDay, Subject: "s", Why: "w"})
		}
		before := statements.n.Load()
		_, err := s.Apply(t.Context(), epoch, at, b)
		require.NoError(t, err)
		costs[n] = statements.n.Load() - before
		at = b.Next
	}
	require.Equal(t, costs[1], costs[500])
	var kept int
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM event_quarantine").Scan(&kept))
	require.Equal(t, 501, kept)
}

// TestCountsAreFoundByAddress applies a small batch on a day with many counts
// that the planner's statistics know nothing of, as on the first day of an
// attack: it must not read all of that day.
func TestCountsAreFoundByAddress(t *testing.T) {
	t.Parallel()
	url := testdb.New(t).URL
	connect := func() *pgxpool.Pool {
		pool, err := pgxpool.New(t.Context(), url)
		require.NoError(t, err)
		t.Cleanup(pool.Close)
		return pool
	}
	const many, few = 5_000, 100
	first := connect()
	s, epoch := leadStore(t, first)
	require.NoError(t, s.Reset(t.Context(), epoch, benchmarkDay))
	at := store.Checkpoint{Created: benchmarkDay}
	apply := func(s *pgstore.Store, addresses int, day time.Time) {
		for from := 0; from < addresses; from += wire.MaxAddresses {
			denied := wire.Denied{OutboxID: "box", Seq: at.Seq + 1, Reason: wire.DeniedQueueFull}
			for i := range min(addresses-from, wire.MaxAddresses) {
				n := from + i
				ip := netip.AddrFrom4([4]byte{10, byte(n % 10), byte(n / 10 / 250), byte(n / 10 % 250)})
				denied.Addresses = append(denied.Addresses, wire.DeniedAddress{
					IP: ip, Group: netip.PrefixFrom(ip, 16).Masked(), Count: 1, First: day, Last: day,
				})
			}
			next := store.Checkpoint{Created: benchmarkDay, Seq: at.Seq + 1}
			_, err := s.Apply(t.Context(), epoch, at, store.Batch{
				Records: []store.Record{{Seq: next.Seq, At: day, Edge: "edge-1", Denied: denied}}, Next: next,
			})
			require.NoError(t, err)
			at = next
		}
	}
	apply(s, many, benchmarkDay.AddDate(0, 0, -30))
	_, err := first.Exec(t.Context(), "ANALYZE ip_denial_count")
	require.NoError(t, err)
	apply(s, many, benchmarkDay)
	first.Close() // a session that ends hands in its statistics

	watch := connect()
	read := func(index, column string) (n int) {
		err := watch.QueryRow(t.Context(), fmt.Sprintf(`SELECT %s FROM pg_stat_user_indexes
			WHERE schemaname = current_schema() AND indexrelname = 'ip_denial_count_%s'`, column, index)).Scan(&n)
		require.NoError(t, err)
		return n
	}
	require.Eventually(t, func() bool { return read("pkey", "idx_scan") >= many }, time.Minute, 10*time.Millisecond)
	scans, before := read("pkey", "idx_scan"), read("day", "idx_tup_read")
	second := connect()
	apply(pgstore.New(second, store.DefaultSettings(), nil), few, benchmarkDay)
	second.Close()
	require.Eventually(t, func() bool { return read("pkey", "idx_scan") >= scans+few }, time.Minute, 10*time.Millisecond)
	require.Less(t, read("day", "idx_tup_read")-before, many/2)
}
