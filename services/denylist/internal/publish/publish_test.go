package publish

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/ccnq/ccnq/pkg/bus"
	"github.com/ccnq/ccnq/pkg/bus/embed"
	"github.com/ccnq/ccnq/pkg/wire"
	"github.com/ccnq/ccnq/services/denylist/internal/lead"
	"github.com/ccnq/ccnq/services/denylist/internal/store"
	"github.com/ccnq/ccnq/services/denylist/internal/store/memstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fixture is a bucket and a store, and a term that is valid.
type fixture struct {
	t     *testing.T
	conn  *bus.Conn
	store *memstore.Store
	term  *lead.Term
	p     *Publisher
	b     *bucket
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	server, err := embed.Start(embed.Options{StoreDir: t.TempDir()})
	require.NoError(t, err)
	t.Cleanup(server.Stop)
	conn, err := bus.Connect(bus.Options{InProcess: server.InProcess(), Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	f := &fixture{t: t, conn: conn, store: memstore.New(store.DefaultSettings(), nil)}
	_, err = bus.EnsureBlocksBucket(f.ctx(), conn, 1, 0)
	require.NoError(t, err)
	f.p = New(Options{
		Conn: conn, Store: f.store, Wait: func(ctx context.Context) error { return ctx.Err() }, Missing: func() {},
		Logger: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry(),
	})
	f.term = f.lead()
	f.b = newBucket(f.p, f.term)
	return f
}

// lead returns a term of the store.
func (f *fixture) lead() *lead.Term {
	terms := make(chan *lead.Term, 1)
	ctx, cancel := context.WithCancel(f.ctx())
	done := make(chan struct{})
	candidate := lead.New(lead.Options{
		Name: "test", Lease: f.store, Holder: "test", Eligible: func() bool { return true }, Logger: slog.New(slog.DiscardHandler),
		Registry: prometheus.NewRegistry(),
		Work: func(ctx context.Context, term *lead.Term) {
			terms <- term
			<-ctx.Done()
		},
	})
	go func() { defer close(done); candidate.Run(ctx) }()
	f.t.Cleanup(func() { cancel(); <-done })
	return <-terms
}

func (f *fixture) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	f.t.Cleanup(cancel)
	return ctx
}

func (f *fixture) key(scope wire.Scope, target string) (wire.Block, bool) {
	m, err := bus.DirectGetLast(f.ctx(), f.conn, wire.StreamBlocks, wire.KVSubject(wire.BlockKey(scope, target)))
	if errors.Is(err, bus.ErrNotFound) {
		return wire.Block{}, false
	}
	require.NoError(f.t, err)
	block, err := wire.Decode[wire.Block](m.Data)
	require.NoError(f.t, err)
	return block, true
}

// put writes a key as somebody else.
func (f *fixture) put(scope wire.Scope, target string, b wire.Block) {
	data, err := json.Marshal(b)
	require.NoError(f.t, err)
	f.putRaw(wire.BlockKey(scope, target), data)
}

func (f *fixture) putRaw(key string, data []byte) {
	_, err := bus.PutBlock(f.ctx(), f.conn, bus.Put{Subject: wire.KVSubject(key), Data: data})
	require.NoError(f.t, err)
}

func order(target string) store.Order {
	scope, prefix, err := wire.ParseTargetText(target)
	if err != nil {
		panic(err)
	}
	return store.Order{Scope: scope, Target: prefix, By: "me"}
}

// TestOlderNeverReplacesNewer is what keeps a leader that was frozen in the
// middle of a write from undoing what came after.
func TestOlderNeverReplacesNewer(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	later := time.Now().Add(time.Hour).UTC().Truncate(time.Microsecond)
	change := func(version int64, until time.Time) store.Change {
		return store.Change{Kind: store.KindBlocked, At: time.Now(), BlockChange: wire.BlockChange{
			Scope: wire.ScopeIP, Target: "192.0.2.1", BlockedUntil: until, Version: version,
		}}
	}
	require.NoError(t, f.b.push(f.ctx(), []store.Change{change(5, later)}))
	require.NoError(t, f.b.push(f.ctx(), []store.Change{change(4, later.Add(time.Hour))}))
	block, _ := f.key(wire.ScopeIP, "192.0.2.1")
	require.EqualValues(t, 5, block.Version)
	require.Equal(t, later, block.BlockedUntil)
	require.NoError(t, f.b.push(f.ctx(), []store.Change{change(6, later), change(7, time.Now().Add(-time.Second))}), "the last counts")
	block, _ = f.key(wire.ScopeIP, "192.0.2.1")
	require.EqualValues(t, 7, block.Version)
	f.putRaw(wire.BlockKey(wire.ScopeIP, "192.0.2.1"), []byte("nonsense"))
	require.NoError(t, f.b.push(f.ctx(), []store.Change{change(3, later)}), "nonsense is written over")
	block, _ = f.key(wire.ScopeIP, "192.0.2.1")
	require.EqualValues(t, 3, block.Version)

	over := newBucket(f.p, &lead.Term{Epoch: 1})
	require.ErrorIs(t, over.push(f.ctx(), []store.Change{change(9, later)}), errOver, "a term that is over writes nothing")
}

// TestCompare makes every kind of difference between bucket and tables.
func TestCompare(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	blocked := make(map[string]wire.BlockChange)
	for _, target := range []string{"192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4", "192.0.2.0/24", "2001:db8::/64"} {
		b, err := f.store.Block(f.ctx(), order(target), time.Hour)
		require.NoError(t, err)
		blocked[target] = b
	}
	now := time.Now()
	in := func(d time.Duration, version int64) wire.Block {
		return wire.Block{BlockedUntil: now.Add(d), Version: version, Since: now}
	}
	f.put(wire.ScopeIP, "192.0.2.1", value(blocked["192.0.2.1"])) // right
	f.put(wire.ScopeIP, "192.0.2.2", in(time.Minute, 1))          // older, and differs
	f.put(wire.ScopeIP, "192.0.2.3", in(time.Minute, 900))        // newer than the tables
	f.put(wire.ScopeIP, "192.0.2.4", in(-time.Minute, 800))       // a lift that the tables do not know
	f.put(wire.ScopeIP, "198.51.100.1", in(time.Hour, 1_000))     // no such block
	f.put(wire.ScopeRange, "192.0.2.1/32", in(time.Hour, 7))      // nor this: a range of one address is not the address
	f.put(wire.ScopeIP, "198.51.100.2", in(-time.Hour, 3))        // over
	f.putRaw("ip.nonsense", []byte("x"))
	f.putRaw(wire.KeyMark, []byte(`{"generation":"g","version":2000}`)) // readers have heard of that version

	c := &comparison{bucket: f.b}
	require.NoError(t, c.run(f.ctx()))
	for target, b := range blocked {
		key, ok := f.key(b.Scope, target)
		require.True(t, ok, target)
		require.True(t, b.BlockedUntil.Equal(key.BlockedUntil), target)
	}
	for _, target := range []string{"192.0.2.3", "192.0.2.4"} {
		key, _ := f.key(wire.ScopeIP, target)
		require.EqualValues(t, 2_001, key.Version, "above all that readers have seen")
	}
	surplus, _ := f.key(wire.ScopeIP, "198.51.100.1")
	require.False(t, surplus.BlockedUntil.After(time.Now()))
	require.EqualValues(t, 2_001, surplus.Version)
	surplus, _ = f.key(wire.ScopeRange, "192.0.2.1/32")
	require.False(t, surplus.BlockedUntil.After(time.Now()))

	// What changes from now on is newer than that.
	require.NoError(t, f.b.feed.drain(f.ctx(), all))
	lifted, err := f.store.Unblock(f.ctx(), order("192.0.2.3"), true)
	require.NoError(t, err)
	require.Greater(t, lifted.Version, int64(2_001))
	require.NoError(t, f.b.feed.drain(f.ctx(), all))
	key, _ := f.key(wire.ScopeIP, "192.0.2.3")
	require.Equal(t, lifted.Version, key.Version)

	totals, err := f.store.Totals(f.ctx(), now)
	require.NoError(t, err)
	require.NoError(t, (&comparison{bucket: f.b}).run(f.ctx()))
	again, err := f.store.Totals(f.ctx(), now)
	require.NoError(t, err)
	require.Equal(t, totals, again, "nothing is left to correct")
}

// TestCompareLeavesAloneWhatChangedMeanwhile changes keys between the reading
// and the writing of a comparison.
func TestCompareLeavesAloneWhatChangedMeanwhile(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	until := time.Now().Add(time.Hour)
	f.put(wire.ScopeIP, "192.0.2.1", wire.Block{BlockedUntil: until, Version: 1})
	c := &comparison{bucket: f.b}
	require.NoError(t, c.readKeys(f.ctx()))
	c.findSurplus(time.Now())
	f.put(wire.ScopeIP, "192.0.2.1", wire.Block{BlockedUntil: until, Version: 2})
	require.NoError(t, c.force(f.ctx()))
	key, _ := f.key(wire.ScopeIP, "192.0.2.1")
	require.EqualValues(t, 2, key.Version)
}

// TestMarkIsOfExactlyItsVersion lets changes come between the counting and the
// mark: they are written after it.
func TestMarkIsOfExactlyItsVersion(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	require.NoError(t, f.b.look(f.ctx()))
	require.NoError(t, f.b.mark(f.ctx()))
	_, err := bus.DirectGetLast(f.ctx(), f.conn, wire.StreamBlocks, wire.KVSubject(wire.KeyMark))
	require.ErrorIs(t, err, bus.ErrNotFound, "not before the comparison")
	f.b.compared = f.b.generation
	_, err = f.store.Block(f.ctx(), order("192.0.2.1"), time.Hour)
	require.NoError(t, err)
	require.NoError(t, f.b.mark(f.ctx()))
	read := func() wire.Mark {
		m, err := bus.DirectGetLast(f.ctx(), f.conn, wire.StreamBlocks, wire.KVSubject(wire.KeyMark))
		require.NoError(t, err)
		mark, err := wire.Decode[wire.Mark](m.Data)
		require.NoError(t, err)
		return mark
	}
	require.Equal(t, 1, read().IPs)
	require.EqualValues(t, 1, read().Version)
	_, ok := f.key(wire.ScopeIP, "192.0.2.1")
	require.True(t, ok, "the mark's version is in the bucket")

	// Another leader has written one: ours is given up, and the next attempt
	// looks again.
	f.putRaw(wire.KeyMark, []byte(`{"generation":"other"}`))
	require.NoError(t, f.b.mark(f.ctx()))
	require.Equal(t, "other", read().Generation)
	require.Empty(t, f.b.generation)
	require.NoError(t, f.b.look(f.ctx()))
	require.NoError(t, f.b.mark(f.ctx()))
	require.Equal(t, f.b.generation, read().Generation)
}

// TestLongBlocks have keys that NATS takes.
func TestLongBlocks(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	require.NoError(t, f.b.push(f.ctx(), []store.Change{{Kind: store.KindBlocked, BlockChange: wire.BlockChange{
		Scope: wire.ScopeRange, Target: netip.MustParsePrefix("192.0.2.0/24").String(), BlockedUntil: store.MaxEnd, Version: 1,
	}}}))
	block, ok := f.key(wire.ScopeRange, "192.0.2.0/24")
	require.True(t, ok)
	require.True(t, store.MaxEnd.Equal(block.BlockedUntil))
}
