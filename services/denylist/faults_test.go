package denylist

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/pkg/bus"
	"github.com/ccnq/ccnq/pkg/postgres"
	"github.com/ccnq/ccnq/pkg/wire"
	"github.com/ccnq/ccnq/services/denylist/internal/store"
	"github.com/ccnq/ccnq/services/denylist/internal/store/memstore"
	"github.com/ccnq/ccnq/services/denylist/internal/store/pgstore"
)

// stores runs a test with a store that several services share.
func stores(t *testing.T, test func(s *site, st store.Store)) {
	t.Helper()
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		test(s, memstore.New(s.config().Denylist.settings(), nil))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		environ, _ := s.database()
		cfg := s.config(environ...)
		db, err := cfg.Postgres.Open(s.ctx(), "test", table)
		require.NoError(t, err)
		t.Cleanup(db.Close)
		test(s, pgstore.New(db.Pool(), cfg.Denylist.settings(), nil))
	})
}

// TestKilledAtRandomPoints lets two services fight over the work while the
// store fails, loses answers, and NATS is restarted, under load. In the end
// tables and bucket are what the model says, and each event is counted once.
func TestKilledAtRandomPoints(t *testing.T) {
	t.Parallel()
	stores(t, func(s *site, st store.Store) {
		t := s.t
		f := &faulty{Store: st}
		services := make(chan *Service, 2)
		for range cap(services) {
			services <- s.start(s.config(), Deps{store: f})
		}
		const rounds = 9
		o, m, settings := s.outbox("o1"), newModel(), s.config().Denylist.settings()
		killed := make(chan struct{})
		f.failing.Store(true)
		go func() {
			defer close(killed)
			for round := range rounds {
				<-time.After(rand.N(1_000 * time.Millisecond))
				if round%3 == 2 {
					s.nats.Stop()
					if err := s.restartNATS(); err != nil {
						t.Error(err)
						return
					}
					continue
				}
				if err := (<-services).Stop(s.ctx()); err != nil {
					t.Error(err)
					return
				}
				services <- s.start(s.config(), Deps{store: f})
			}
		}()
		events, duplicates := 0, 0
		for running := true; running && events < 3_000; events++ {
			select {
			case <-killed:
				running = false
			default:
			}
			event := o.event(someDenials(40)...)
			m.apply(event.Data, settings)
			o.send(event)
			if events%7 == 0 { // the acknowledgement was lost, and the duplicate window has passed
				duplicates++
				event.ID += "-again"
				o.send(event)
			}
		}
		<-killed
		f.failing.Store(false)
		t.Logf("events sent %d, sent again %d, injected failures %d, blocks %d + %d", events, duplicates, f.failed.Load(),
			len(m.blocks[wire.ScopeIP]), len(m.blocks[wire.ScopeRange]))
		require.Positive(t, f.failed.Load())

		last := s.stream()
		require.NotEmpty(t, last)
		s.until("all is applied", func() bool {
			at, err := st.Checkpoint(s.ctx())
			return err == nil && at.Seq >= lastDenied(last)
		})
		s.until("the bucket is the model", func() bool { return equal(s.keys(), m.blocks) })
		for key, n := range m.counts {
			var ip, day string
			_, err := fmt.Sscan(key, &ip, &day)
			require.NoError(t, err)
			why, err := st.Explain(s.ctx(), netip.MustParseAddr(ip))
			require.NoError(t, err)
			got := int64(0)
			for _, d := range why.Days {
				if d.IP.String() == ip && d.Day == day {
					got = d.Count
				}
			}
			require.EqualValues(t, n, got, key)
		}
		s.until("every change was told", func() bool {
			totals, err := st.Totals(s.ctx(), time.Now())
			return err == nil && totals.Published == totals.Version
		})
		ends := newModel()
		for _, c := range s.changes(wire.TypeBlocked) {
			ends.extend(c.Scope, c.Target, c.BlockedUntil)
		}
		require.Equal(t, m.blocks, ends.blocks, "the events are the model")
	})
}

// someDenials returns denials of now, of up to 20 addresses in so many ranges.
func someDenials(ranges int) []denial {
	var all []denial
	for range 1 + rand.N(20) {
		all = append(all, denial{
			ip: fmt.Sprintf("10.0.%d.%d", rand.N(ranges), 1+rand.N(12)), count: 1, at: time.Now().Truncate(time.Microsecond),
		})
	}
	return unique(all)
}

// unique leaves one denial of each address.
func unique(all []denial) (out []denial) {
	seen := map[string]bool{}
	for _, d := range all {
		if !seen[d.ip] {
			seen[d.ip] = true
			out = append(out, d)
		}
	}
	return out
}

func lastDenied(messages []bus.StreamMessage) (seq uint64) {
	for _, m := range messages {
		if m.Subject == denySubject {
			seq = m.Sequence
		}
	}
	return seq
}

func equal(a, b map[wire.Scope]map[string]int64) bool {
	x, err := json.Marshal(a)
	y, err2 := json.Marshal(b)
	return err == nil && err2 == nil && bytes.Equal(x, y)
}

// TestFrozenLeader freezes a leader that has just read a new block; meanwhile
// another one leads, and the block is lifted. When the first one wakes, the
// lift stays. A stall of the machine may end a term before its time, so the
// test asks who leads, and in which term.
func TestFrozenLeader(t *testing.T) {
	t.Parallel()
	stores(t, func(s *site, st store.Store) {
		t := s.t
		stores := [2]*faulty{{Store: st}, {Store: st}}
		var services [2]*Service
		for i := range services {
			services[i] = s.start(s.config(), Deps{store: stores[i]})
		}
		leads := func(i int) bool { return services[i].candidate.Load().Leads() }
		terms := func(i int) float64 { return metric(t, services[i], "ccnq_denylist_terms_total") }
		for i := range services {
			s.untilReady(services[i])
		}
		s.until("one leads, the other stands by, ready", func() bool { return leads(0) != leads(1) })
		o := s.outbox("o1")
		o.deny(denial{"203.0.113.7", 2, time.Now()})
		s.until("it is counted", func() bool { return s.explain("203.0.113.7").Days != nil })

		var first, second int
		s.until("one is frozen while it leads", func() bool {
			if leads(1) {
				first = 1
			} else {
				first = 0
			}
			stores[first].mu.Lock()
			if leads(first) {
				return true
			}
			stores[first].mu.Unlock()
			return false
		})
		second = 1 - first
		frozenIn := terms(first)
		began := time.Now()
		s.until("the second leads", func() bool { return leads(second) })
		t.Logf("taken over after %s", time.Since(began))
		o.deny(denial{"203.0.113.7", 1, time.Now()})
		s.until("the address is blocked", func() bool { return s.inForce(wire.ScopeIP, "203.0.113.7") })
		order := store.Order{Scope: wire.ScopeIP, Target: netip.MustParsePrefix("203.0.113.7/32"), By: "me"}
		_, err := st.Unblock(s.ctx(), order, false)
		require.NoError(t, err)
		s.until("and lifted", func() bool { return !s.inForce(wire.ScopeIP, "203.0.113.7") })
		before, err := st.Totals(s.ctx(), time.Now())
		require.NoError(t, err)
		s.until("and both told", func() bool {
			return len(s.changes(wire.TypeBlocked)) == 1 && len(s.changes(wire.TypeUnblocked)) == 1
		})
		stores[first].mu.Unlock()

		s.until("the first knows", func() bool { return !leads(first) || terms(first) > frozenIn })
		s.until("the second leads, unless a later term has begun", func() bool { return leads(second) || terms(first) > frozenIn })
		after, err := st.Totals(s.ctx(), time.Now())
		require.NoError(t, err)
		require.Equal(t, before.Version, after.Version)
		require.False(t, s.inForce(wire.ScopeIP, "203.0.113.7"))
		require.Len(t, s.changes(wire.TypeBlocked), 1)
		require.Len(t, s.changes(wire.TypeUnblocked), 1)
	})
}

// TestEmptyNATS loses NATS' disk: all blocks in force are published again, to
// the new bucket and the new stream, under a mark of another generation.
func TestEmptyNATS(t *testing.T) {
	t.Parallel()
	both(t, func(s *site, start func() *Service) {
		t := s.t
		d := start()
		s.untilReady(d)
		o := s.outbox("o1")
		o.deny(denial{"203.0.113.7", 3, time.Now()}, denial{"203.0.113.8", 2, time.Now()})
		s.until("the address is blocked", func() bool { return s.inForce(wire.ScopeIP, "203.0.113.7") })
		_, err := s.block(wire.BlockRequest{Target: "198.51.100.0/24", Seconds: 3600})
		require.NoError(t, err)
		var old wire.Mark
		s.until("the mark knows both", func() (ok bool) { old, ok = s.mark(); return ok && old.IPs == 1 && old.Ranges == 1 })

		s.loseDisk()
		s.until("a mark of the new bucket", func() bool {
			mark, ok := s.mark()
			if !ok {
				return false
			}
			require.NotEqual(t, old.Generation, mark.Generation)
			require.Equal(t, 1, mark.IPs)
			require.True(t, s.inForce(wire.ScopeIP, "203.0.113.7"), "a mark stands for a complete bucket")
			require.True(t, s.inForce(wire.ScopeRange, "198.51.100.0/24"))
			return true
		})
		s.until("told again", func() bool { return len(s.changes(wire.TypeBlocked)) == 2 })
		first := s.stream()[0]
		reset, err := wire.Decode[wire.Event[wire.StreamReset]](first.Data)
		require.NoError(t, err)
		require.Equal(t, wire.TypeStreamReset, reset.Type)
		require.Equal(t, "it was made anew", reset.Data.Why)
		// What was counted stays, and the new stream is counted on top.
		o.deny(denial{"203.0.113.8", 1, time.Now()})
		s.until("the other one is blocked", func() bool { return s.inForce(wire.ScopeIP, "203.0.113.8") })
	})
}

// TestLiftSurvivesARebuild lifts a block, makes the tables anew, and restarts
// the service.
func TestLiftSurvivesARebuild(t *testing.T) {
	t.Parallel()
	both(t, func(s *site, start func() *Service) {
		t := s.t
		d := start()
		s.untilReady(d)
		o := s.outbox("o1")
		now := time.Now()
		o.deny(denial{"203.0.113.7", 3, now}, denial{"198.51.100.1", 3, now}, denial{"192.0.2.1", 2, now})
		s.until("both are blocked", func() bool {
			return s.inForce(wire.ScopeIP, "203.0.113.7") && s.inForce(wire.ScopeIP, "198.51.100.1")
		})
		_, err := s.unblock(wire.UnblockRequest{Target: "203.0.113.7"})
		require.NoError(t, err)
		s.until("lifted", func() bool { return !s.inForce(wire.ScopeIP, "203.0.113.7") && len(s.changes(wire.TypeUnblocked)) == 1 })
		told := len(s.stream())

		check := func() {
			require.True(t, s.explain("198.51.100.1").Blocked)
			require.False(t, s.explain("203.0.113.7").Blocked)
			require.Empty(t, s.explain("203.0.113.7").Days, "forgiven")
			require.EqualValues(t, 2, s.explain("192.0.2.1").Days[0].Count)
			require.Len(t, s.stream(), told, "nothing changed, so nothing is told")
			require.False(t, s.inForce(wire.ScopeIP, "203.0.113.7"))
			require.True(t, s.inForce(wire.ScopeIP, "198.51.100.1"))
		}
		reply, err := ask[wire.RebuildRequest, wire.RebuildReply](s, wire.SubjectRebuild, wire.RebuildRequest{By: "me"})
		require.NoError(t, err)
		require.EqualValues(t, told, reply.Events)
		s.until("rebuilt", func() bool { return metric(t, d, "ccnq_denylist_rebuilds_total") == 1 })
		check()

		require.NoError(t, d.Stop(s.ctx()))
		d = start()
		s.untilReady(d)
		s.until("compared", func() bool { return metric(t, d, "ccnq_denylist_comparisons_total") > 0 })
		check()
		o.deny(denial{"192.0.2.1", 1, now})
		s.until("counts are kept", func() bool { return s.inForce(wire.ScopeIP, "192.0.2.1") })
	})
}

// metric returns the value of a counter or gauge without labels.
func metric(t testing.TB, d *Service, name string) float64 {
	t.Helper()
	families, err := d.registry.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetCounter().GetValue() + f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	require.Fail(t, "no such metric", name)
	return 0
}

// TestOperatorsSQL lifts blocks as the seed's notes say.
func TestOperatorsSQL(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	environ, db := s.database()
	s.untilReady(s.start(s.config(environ...), Deps{}))
	conn, err := pgx.ConnectConfig(s.ctx(), db.Config())
	require.NoError(t, err)
	defer conn.Close(s.ctx())
	s.outbox("o1").deny(denial{"203.0.113.7", 3, time.Now()}, denial{"203.0.113.8", 3, time.Now()},
		denial{"203.0.113.9", 1, time.Now()}, denial{"203.0.113.10", 1, time.Now()})
	for _, test := range []struct {
		scope       wire.Scope
		target, sql string
	}{
		{wire.ScopeIP, "203.0.113.7", `UPDATE %s.ip_block SET blocked_until = NOW() WHERE ip = '203.0.113.7'`},
		{wire.ScopeIP, "203.0.113.8", `DELETE FROM %s.ip_block WHERE ip = '203.0.113.8'`},
		{wire.ScopeRange, "203.0.113.0/24", `UPDATE %s.ip_group_block SET blocked_until = NOW() WHERE ip_group = '203.0.113.0/24'`},
	} {
		s.until("blocked", func() bool { return s.inForce(test.scope, test.target) })
		_, err := conn.Exec(s.ctx(), fmt.Sprintf(test.sql, db.Schema))
		require.NoError(t, err)
		s.until("lifted", func() bool { return !s.inForce(test.scope, test.target) })
	}
	s.until("told", func() bool { return len(s.changes(wire.TypeUnblocked)) == 3 })
	for _, c := range s.changes(wire.TypeUnblocked) {
		require.NotEqual(t, store.ByDenylist, c.By)
		require.True(t, c.KeepCounts)
	}
}

// TestTablesLost drops the tables of a running service: they are made anew
// from the stream, and no block is lifted.
func TestTablesLost(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	environ, db := s.database()
	d := s.start(s.config(environ...), Deps{})
	s.untilReady(d)
	o := s.outbox("o1")
	o.deny(denial{"203.0.113.7", 3, time.Now()}, denial{"203.0.113.8", 2, time.Now()})
	s.until("blocked", func() bool { return s.inForce(wire.ScopeIP, "203.0.113.7") && len(s.changes(wire.TypeBlocked)) == 1 })
	conn, err := pgx.ConnectConfig(s.ctx(), db.Config())
	require.NoError(t, err)
	defer conn.Close(s.ctx())
	_, err = conn.Exec(s.ctx(), "DROP SCHEMA "+db.Schema+" CASCADE")
	require.NoError(t, err)
	s.until("made anew", func() bool { return metric(t, d, "ccnq_denylist_rebuilds_total") == 1 })
	s.untilReady(d)
	require.True(t, s.inForce(wire.ScopeIP, "203.0.113.7"))
	require.True(t, s.explain("203.0.113.7").Blocked)
	o.deny(denial{"203.0.113.8", 1, time.Now()})
	s.until("counted on", func() bool { return s.inForce(wire.ScopeIP, "203.0.113.8") })
	require.Empty(t, s.changes(wire.TypeUnblocked))
}

// TestStartsWithoutItsParts starts a service while NATS and Postgres are away.
func TestStartsWithoutItsParts(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	environ, _ := s.database()
	cfg := s.config(environ...)
	there := cfg.Postgres
	cfg.Postgres = postgres.Config{
		Host: "127.0.0.1", Port: 1, User: "u", Password: "p", Database: "d", Schema: "queue", PoolMax: 2,
		StatementTimeout: there.StatementTimeout, SSLMode: "disable",
	}
	d := s.start(cfg, Deps{})
	s.until("NATS is there", func() bool { return d.natsStatus().String() == "ok" && d.streamsStatus().String() == "ok" })
	ok, body := ready(t, d)
	require.False(t, ok)
	require.Contains(t, body, `"denylist_store":"not ready: away, or not prepared yet"`)
	_, err := s.block(wire.BlockRequest{Target: "192.0.2.1", Seconds: 60})
	require.Equal(t, bus.CodeUnavailable, bus.CodeOf(err))

	s.nats.Stop()
	other := s.start(s.config(environ...), Deps{})
	s.until("Postgres is there", func() bool { return other.storeStatus().String() == "ok" })
	ok, body = ready(t, other)
	require.False(t, ok)
	require.Contains(t, body, `"denylist_nats":"not ready: not connected"`)
	s.startNATS()
	s.untilReady(other)
	s.outbox("o1").deny(denial{"203.0.113.7", 3, time.Now()})
	s.until("it works", func() bool { return s.inForce(wire.ScopeIP, "203.0.113.7") })
}
