package pgstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/pkg/testdb"
	"github.com/ccnq/ccnq/pkg/wire"
	"github.com/ccnq/ccnq/services/denylist/internal/store"
	"github.com/ccnq/ccnq/services/denylist/internal/store/pgstore"
)

// operator is a store, and a connection as psql would make it.
type operator struct {
	*pgx.Conn
	t     *testing.T
	pool  *pgxpool.Pool
	store *pgstore.Store
}

func newOperator(t *testing.T) *operator {
	t.Helper()
	pool := newPool(t)
	return &operator{newConn(t, pool), t, pool, pgstore.New(pool, store.DefaultSettings(), nil)}
}

func (o *operator) run(sql string) {
	o.t.Helper()
	_, err := o.Exec(o.t.Context(), sql)
	require.NoError(o.t, err)
}

func (o *operator) block(target string) wire.BlockChange {
	o.t.Helper()
	scope, p, err := wire.ParseTargetText(target)
	require.NoError(o.t, err)
	b, err := o.store.Block(o.t.Context(), store.Order{Scope: scope, Target: p, Reason: "abuse", By: "ann"}, time.Hour)
	require.NoError(o.t, err)
	return b
}

// changes returns what changed after a version, without times.
func (o *operator) changes(after int64) []store.Change {
	o.t.Helper()
	changes, err := o.store.Changes(o.t.Context(), after, 1000)
	require.NoError(o.t, err)
	last := after
	for i := range changes {
		require.Greater(o.t, changes[i].Version, last)
		last = changes[i].Version
		changes[i].Version = 0
		changes[i].At, changes[i].Since, changes[i].BlockedUntil = time.Time{}, time.Time{}, time.Time{}
	}
	return changes
}

func change(kind store.Kind, scope wire.Scope, target, reason, by string, keepCounts bool) store.Change {
	return store.Change{Kind: kind, BlockChange: wire.BlockChange{
		Scope: scope, Target: target, Reason: reason, By: by, KeepCounts: keepCounts,
	}}
}

// TestOperatorSQL is the SQL of the seed's operational notes, and its like.
func TestOperatorSQL(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	const by = "postgres (psql)"
	lifted := func(scope wire.Scope, target, reason string) store.Change {
		return change(store.KindUnblocked, scope, target, reason, by, true)
	}
	blocked := func(scope wire.Scope, target, reason string) store.Change {
		return change(store.KindBlocked, scope, target, reason, by, false)
	}
	for _, c := range []struct {
		name, sql string
		want      []store.Change
	}{
		{
			"end the block of an address", `UPDATE ip_block SET blocked_until = NOW() WHERE ip = '203.0.113.7'`,
			[]store.Change{lifted("ip", "203.0.113.7", "SQL")},
		},
		{
			"end the block of a range", `UPDATE ip_group_block SET blocked_until = NOW() WHERE ip_group = '198.51.100.0/24'`,
			[]store.Change{lifted("range", "198.51.100.0/24", "SQL")},
		},
		{"delete an address", `DELETE FROM ip_block WHERE ip = '203.0.113.7'`, []store.Change{lifted("ip", "203.0.113.7", "SQL")}},
		{
			"delete a range", `DELETE FROM ip_group_block WHERE ip_group = '198.51.100.0/24'`,
			[]store.Change{lifted("range", "198.51.100.0/24", "SQL")},
		},
		{
			"shorten", `UPDATE ip_block SET blocked_until = NOW() + interval '1 minute', reason = 'less' WHERE ip = '203.0.113.7'`,
			[]store.Change{blocked("ip", "203.0.113.7", "less")},
		},
		{
			"insert", `INSERT INTO ip_block (ip, blocked_until) VALUES ('2001:db8::1', NOW() + interval '1 day')`,
			[]store.Change{blocked("ip", "2001:db8::1", "SQL")},
		},
		{
			"upsert", `INSERT INTO ip_block (ip, blocked_until) VALUES ('203.0.113.7', NOW() + interval '2 days')
			           ON CONFLICT (ip) DO UPDATE SET blocked_until = excluded.blocked_until`,
			[]store.Change{blocked("ip", "203.0.113.7", "SQL")},
		},
		{"change nothing", `UPDATE ip_block SET blocked_until = blocked_until`, []store.Change{}},
		{"touch nothing", `UPDATE ip_block SET blocked_until = NOW() WHERE ip = '192.0.2.1'`, []store.Change{}},
		{
			"a new key ends one and begins one", `UPDATE ip_block SET ip = '203.0.113.9' WHERE ip = '203.0.113.7'`,
			[]store.Change{blocked("ip", "203.0.113.9", "SQL"), lifted("ip", "203.0.113.7", "abuse")},
		},
		{"truncate", `TRUNCATE ip_block`, []store.Change{lifted("ip", "203.0.113.7", "SQL")}},
		{
			"end what is over", `UPDATE ip_block SET blocked_until = NOW(); UPDATE ip_block SET blocked_until = NOW() - interval '1 day'; DELETE FROM ip_block`,
			[]store.Change{lifted("ip", "203.0.113.7", "SQL"), lifted("ip", "203.0.113.7", "SQL")},
		},
	} {
		o.run(`TRUNCATE ip_block, ip_group_block`)
		o.block("203.0.113.7")
		after := o.block("198.51.100.0/24").Version
		o.run(c.sql)
		require.Equal(t, c.want, o.changes(after), c.name)
		// What the tables say is what the changes say.
		var wrong int
		require.NoError(t, o.QueryRow(t.Context(), `
			SELECT count(*) FROM (SELECT ip AS target, version, blocked_until FROM ip_block
			                      UNION ALL SELECT ip_group, version, blocked_until FROM ip_group_block) AS b
			WHERE NOT EXISTS (SELECT FROM block_change c
			                  WHERE (c.target, c.version, c.blocked_until) = (b.target, b.version, b.blocked_until))`).Scan(&wrong))
		require.Zero(t, wrong, c.name)
	}
}

// TestOperatorSQL_Begins checks the beginning of blocks that SQL makes.
func TestOperatorSQL_Begins(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	o.block("203.0.113.7")
	since := func() (since, until time.Time) {
		require.NoError(t, o.QueryRow(t.Context(), `SELECT since, blocked_until FROM ip_block`).Scan(&since, &until))
		return since, until
	}
	first, _ := since()
	o.run(`UPDATE ip_block SET blocked_until = NOW() + interval '2 days'`)
	extended, _ := since()
	require.Equal(t, first, extended, "it stays in force")
	o.run(`UPDATE ip_block SET blocked_until = NOW()`)
	_, ended := since()
	o.run(`UPDATE ip_block SET blocked_until = NOW() + interval '2 days'`)
	again, _ := since()
	require.False(t, again.Before(ended), "it begins anew")
}

// TestOperatorSQL_Refused has values that no reader could hold or match.
func TestOperatorSQL_Refused(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	for _, c := range []struct{ table, key, until, constraint string }{
		{"ip_block", "203.0.113.7", "infinity", "ip_block_blocked_until_bounded"},
		{"ip_block", "203.0.113.7", "-infinity", "ip_block_blocked_until_bounded"},
		{"ip_block", "203.0.113.7", "10000-01-01 UTC", "ip_block_blocked_until_bounded"},
		{"ip_group_block", "10.0.0.0/8", "infinity", "ip_group_block_blocked_until_bounded"},
		{"ip_block", "203.0.113.0/24", "2040-01-01 UTC", "ip_block_ip_canonical"},
		{"ip_block", "2001:DB8::1", "2040-01-01 UTC", "ip_block_ip_canonical"},
		{"ip_block", "::ffff:203.0.113.7", "2040-01-01 UTC", "ip_block_ip_canonical"},
		{"ip_block", "::1.2.3.4", "2040-01-01 UTC", "ip_block_ip_canonical"},
		{"ip_group_block", "203.0.113.7", "2040-01-01 UTC", "ip_group_block_ip_group_canonical"},
		{"ip_group_block", "::ffff:0.0.0.0/96", "2040-01-01 UTC", "ip_group_block_ip_group_canonical"},
	} {
		key := map[string]string{"ip_block": "ip", "ip_group_block": "ip_group"}[c.table]
		_, err := o.Exec(t.Context(), fmt.Sprintf(`INSERT INTO %s (%s, blocked_until) VALUES ('%s', '%s')`, c.table, key, c.key, c.until))
		var refused *pgconn.PgError
		require.ErrorAs(t, err, &refused, "%+v", c)
		require.Equal(t, c.constraint, refused.ConstraintName, "%+v", c)
	}
	for _, key := range []string{"garbage", "203.0.113.007", "203.0.113.7/24"} {
		_, err := o.Exec(t.Context(), fmt.Sprintf(`INSERT INTO ip_group_block (ip_group, blocked_until) VALUES ('%s', '2040-01-01 UTC')`, key))
		require.Error(t, err, key)
	}
	require.Empty(t, o.changes(0))
}

// TestCanonicalText compares the database's idea of the one text of an address
// with that of netip, which all other readers have.
func TestCanonicalText(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	random := rand.New(rand.NewPCG(3, 4))
	var ips, ranges []string
	for i := range 5_000 {
		var b [16]byte
		for j := range b {
			b[j] = byte(random.Uint32())
		}
		// Zero words, at the beginning more than elsewhere.
		for word := range 8 {
			if random.IntN(8) < 3 || word < i%8 {
				b[2*word], b[2*word+1] = 0, 0
			}
		}
		ip := netip.AddrFrom16(b)
		if i%5 == 0 {
			ip = netip.AddrFrom4([4]byte(b[12:]))
		}
		if ip.Is4In6() {
			continue
		}
		ips = append(ips, ip.String())
		ranges = append(ranges, netip.PrefixFrom(ip, random.IntN(ip.BitLen()+1)).Masked().String())
	}
	ips = append(ips, "::", "::1", "::1:0", "::ffff", "1::", "0:1::", "1:0:0:2::3", "::fffe:102:304", "::1:ffff:0:0")
	_, err := o.Exec(t.Context(), `INSERT INTO ip_block (ip, blocked_until)
		SELECT DISTINCT unnest($1::text[]), '2040-01-01 UTC'::timestamptz`, ips)
	require.NoError(t, err)
	_, err = o.Exec(t.Context(), `INSERT INTO ip_group_block (ip_group, blocked_until)
		SELECT DISTINCT unnest($1::text[]), '2040-01-01 UTC'::timestamptz`, ranges)
	require.NoError(t, err)
}

// TestVersionsBecomeVisibleInOrder has operators whose transactions end in
// another order than they began, and a reader that must miss nothing.
func TestVersionsBecomeVisibleInOrder(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	ctx := t.Context()
	const operators, each = 4, 15
	var work, reader sync.WaitGroup
	for i := range operators {
		conn := newConn(t, o.pool)
		work.Go(func() {
			for j := range each {
				err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
					for k := range 3 {
						ip := fmt.Sprintf("192.0.%d.%d", i, k)
						if _, err := tx.Exec(ctx, `INSERT INTO ip_block (ip, blocked_until) VALUES ($1, NOW() + $2 * interval '1 hour')
							ON CONFLICT (ip) DO UPDATE SET blocked_until = excluded.blocked_until`, ip, j+1); err != nil {
							return err
						}
					}
					if j%5 == 4 {
						return pgx.ErrTxClosed // rolled back: versions that nobody sees
					}
					return nil
				})
				if err != nil && j%5 != 4 {
					t.Errorf("operator %d: %v", i, err)
				}
			}
		})
	}
	done := make(chan struct{})
	followed := []store.Change{}
	reader.Go(func() {
		last := int64(0)
		for ended := false; ; {
			select {
			case <-done:
				ended = true
			default:
			}
			got, err := o.store.Changes(ctx, last, 1000)
			if err != nil {
				t.Errorf("changes: %v", err)
				return
			}
			if followed = append(followed, got...); len(got) > 0 {
				last = got[len(got)-1].Version
			} else if ended {
				return
			}
		}
	})
	work.Wait()
	close(done)
	reader.Wait()
	all, err := o.store.Changes(ctx, 0, 10_000)
	require.NoError(t, err)
	require.Equal(t, all, followed)
	require.Len(t, all, operators*each*4/5*3)
}

// newConn is a session of an operator.
func newConn(t *testing.T, pool *pgxpool.Pool) *pgx.Conn {
	t.Helper()
	cfg := pool.Config().ConnConfig
	cfg.RuntimeParams["application_name"] = "psql"
	conn, err := pgx.ConnectConfig(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

// TestListen checks that a listener is woken once it listens, and by a change.
func TestListen(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	ctx, cancel := context.WithCancel(t.Context())
	woken := make(chan struct{})
	ended := make(chan error, 1)
	conn := newConn(t, o.pool)
	go func() {
		ended <- pgstore.Listen(ctx, conn, func() {
			select {
			case woken <- struct{}{}:
			case <-ctx.Done():
			}
		})
	}()
	<-woken
	o.block("203.0.113.7")
	<-woken
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
}

// TestNotify checks who notifies: operators and requests do, the projector does
// not. Other tests share the channel, so sessions are told apart.
func TestNotify(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	ctx := t.Context()
	listener := newConn(t, o.pool)
	_, err := listener.Exec(ctx, "LISTEN "+pgstore.Channel)
	require.NoError(t, err)
	epoch, ok, err := o.store.Lead(ctx, "the test", time.Hour)
	require.NoError(t, err)
	require.True(t, ok)
	created := time.Now()
	require.NoError(t, o.store.Reset(ctx, epoch, created))
	var flood []wire.DeniedAddress
	for host := range 26 {
		ip := netip.AddrFrom4([4]byte{198, 51, 100, byte(host)})
		flood = append(flood, wire.DeniedAddress{IP: ip, Group: netip.MustParsePrefix("198.51.100.0/24"), Count: 1, First: created, Last: created})
	}
	result, err := o.store.Apply(ctx, epoch, store.Checkpoint{Created: created}, store.Batch{
		Records: []store.Record{{Seq: 1, At: created, Edge: "e1", Denied: wire.Denied{
			OutboxID: "box", Seq: 1, Reason: wire.DeniedQueueFull, Addresses: flood,
		}}},
		Next: store.Checkpoint{Created: created, Seq: 1},
	})
	require.NoError(t, err)
	require.Equal(t, 1, result.Changes)
	o.run(`DELETE FROM ip_group_block`)
	until := func(pids ...uint32) {
		for {
			n, err := listener.WaitForNotification(ctx)
			require.NoError(t, err)
			require.Empty(t, n.Payload)
			if slices.Contains(pids, n.PID) {
				require.Equal(t, pids[0], n.PID, "notifications come in the order of the commits")
				return
			}
		}
	}
	projector := o.pids()
	until(append([]uint32{o.PgConn().PID()}, projector...)...)
	o.block("203.0.113.7")
	requests := o.pids()
	require.Len(t, requests, 1)
	until(requests...)
}

// pids are the sessions of the store.
func (o *operator) pids() []uint32 {
	var pids []uint32
	for _, conn := range o.pool.AcquireAllIdle(o.t.Context()) {
		pids = append(pids, conn.Conn().PgConn().PID())
		conn.Release()
	}
	return pids
}

// TestTwoSchemasOfOneDatabase must not hold each other up or mix their
// versions.
func TestTwoSchemasOfOneDatabase(t *testing.T) {
	t.Parallel()
	one, other := newOperator(t), newOperator(t)
	tx, err := one.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `INSERT INTO ip_block (ip, blocked_until) VALUES ('203.0.113.7', NOW())`)
	require.NoError(t, err)
	require.Equal(t, int64(1), other.block("203.0.113.7").Version)
	require.NoError(t, tx.Rollback(t.Context()))
	require.Empty(t, one.changes(0))
}

// TestDeadlockWithAnOperator has an operator's transaction that waits for the
// store, which waits for it.
func TestDeadlockWithAnOperator(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	ctx := t.Context()
	_, err := o.Exec(ctx, `INSERT INTO ip_block (ip, blocked_until) VALUES ('203.0.113.7', NOW() + interval '1 minute')`)
	require.NoError(t, err)
	// The operator holds the row, and wants the lock of the blocks; the store
	// holds that lock, and wants the row.
	tx, err := o.Begin(ctx)
	require.NoError(t, err)
	_, err = tx.Exec(ctx, `SET LOCAL deadlock_timeout = '1min'; SELECT FROM ip_block FOR UPDATE`)
	require.NoError(t, err)
	blocked := make(chan error, 1)
	go func() {
		_, err := o.store.Block(ctx, store.Order{
			Scope: wire.ScopeIP, Target: netip.MustParsePrefix("203.0.113.7/32"), By: "ann",
		}, time.Hour)
		blocked <- err
	}()
	waitForLock(t, o)
	_, err = tx.Exec(ctx, `UPDATE ip_block SET blocked_until = NOW()`)
	require.NoError(t, err, "the store gave way")
	require.NoError(t, tx.Commit(ctx))
	require.NoError(t, <-blocked, "and tried again")
	var inForce bool
	require.NoError(t, o.QueryRow(ctx, `SELECT blocked_until > NOW() + interval '50 minutes' FROM ip_block`).Scan(&inForce))
	require.True(t, inForce)
}

// waitForLock returns once somebody waits for a lock on this schema's table of
// blocks.
func waitForLock(t *testing.T, o *operator) {
	t.Helper()
	conn := newConn(t, o.pool)
	require.Eventually(t, func() bool {
		var waits bool
		err := conn.QueryRow(t.Context(), `SELECT EXISTS (
			SELECT FROM pg_locks held JOIN pg_locks waits USING (pid)
			WHERE held.relation = 'ip_block'::regclass AND NOT waits.granted)`).Scan(&waits)
		return err == nil && waits
	}, time.Minute, 5*time.Millisecond)
}

// TestUsesOnlyItsSchema is the SQL of the notes, with the name of the schema.
func TestUsesOnlyItsSchema(t *testing.T) {
	t.Parallel()
	d := testdb.New(t)
	cfg := d.Config()
	conn, err := pgx.ConnectConfig(t.Context(), cfg)
	require.NoError(t, err)
	defer conn.Close(context.Background())
	// Another search path: triggers and functions still find their tables.
	_, err = conn.Exec(t.Context(), fmt.Sprintf(
		`SET search_path = pg_catalog; UPDATE %[1]s.ip_block SET blocked_until = NOW();
		 INSERT INTO %[1]s.ip_block (ip, blocked_until) VALUES ('203.0.113.7', NOW() + interval '1 day');
		 DELETE FROM %[1]s.ip_block`, d.Schema))
	require.NoError(t, err)
	var n int
	require.NoError(t, conn.QueryRow(t.Context(), fmt.Sprintf(`SELECT count(*) FROM %s.block_change`, d.Schema)).Scan(&n))
	require.Equal(t, 2, n)
}
