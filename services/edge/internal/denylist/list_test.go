package denylist

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/pkg/admin"
	"github.com/ccnq/ccnq/pkg/bus"
	"github.com/ccnq/ccnq/pkg/bus/embed"
	"github.com/ccnq/ccnq/pkg/testport"
	"github.com/ccnq/ccnq/pkg/wire"
)

func deadline(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// broker is a NATS server that can be restarted on its port.
type broker struct {
	*embed.Server
	opts embed.Options
}

func startBroker(t testing.TB) *broker {
	t.Helper()
	b := &broker{opts: embed.Options{Host: "127.0.0.1", Port: testport.Reserve(t), StoreDir: t.TempDir()}}
	b.start(t)
	t.Cleanup(func() { b.Stop() })
	return b
}

func (b *broker) start(t testing.TB) {
	t.Helper()
	s, err := embed.Start(b.opts)
	require.NoError(t, err)
	b.Server = s
}

func (b *broker) connect(t testing.TB, url string, changed func(bool)) *bus.Conn {
	t.Helper()
	opts := bus.Options{URL: url, OnChange: changed, Logger: slog.New(slog.DiscardHandler)}
	if url == "" {
		opts.InProcess = b.InProcess()
	}
	c, err := bus.Connect(opts)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// service writes what the denylist service would.
type service struct {
	conn    *bus.Conn
	version int64
	mark    wire.Mark
}

func (b *broker) service(t testing.TB, generation string) *service {
	t.Helper()
	s := &service{conn: b.connect(t, "", nil), mark: wire.Mark{Generation: generation}}
	_, err := bus.EnsureBlocksBucket(deadline(t), s.conn, 1, 0)
	require.NoError(t, err)
	return s
}

func (s *service) put(t testing.TB, text string, until time.Time) {
	t.Helper()
	scope, p := target(t, text)
	s.version++
	s.write(t, wire.BlockKey(scope, wire.TargetText(scope, p)), wire.Block{BlockedUntil: until, Version: s.version, Since: time.Now()})
}

func (s *service) write(t testing.TB, name string, value any) {
	t.Helper()
	data, err := json.Marshal(value)
	require.NoError(t, err)
	_, err = bus.PutBlock(deadline(t), s.conn, bus.Put{Subject: wire.KVSubject(name), Data: data})
	require.NoError(t, err)
}

// publish writes the mark.
func (s *service) publish(t testing.TB, ips, ranges int) {
	t.Helper()
	s.mark.Version, s.mark.IPs, s.mark.Ranges, s.mark.Written = s.version, ips, ranges, time.Now()
	s.write(t, wire.KeyMark, s.mark)
}

type bundle struct {
	*List
	log *lockedBuffer
}

func follow(t testing.TB, conn *bus.Conn, readyWithin time.Duration) *bundle {
	t.Helper()
	b := &bundle{log: new(lockedBuffer)}
	b.List = New(Options{
		Conn: conn, ReadyWithin: readyWithin, Registerer: prometheus.NewRegistry(), Logger: slog.New(slog.NewTextHandler(b.log, nil)),
	})
	require.NoError(t, b.Start())
	t.Cleanup(b.Stop)
	return b
}

// until waits for an address to be blocked until a time, or free.
func (b *bundle) until(t testing.TB, addr string, want time.Time) {
	t.Helper()
	require.Eventually(t, func() bool {
		end, yes := b.Check(netip.MustParseAddr(addr), time.Now())
		return yes == !want.IsZero() && (!yes || end.Equal(want))
	}, time.Minute, time.Millisecond, addr)
}

func (b *bundle) status(t testing.TB, want string) {
	t.Helper()
	if !assert.Eventually(t, func() bool { return b.Status().String() == want }, time.Minute, time.Millisecond) {
		require.Equal(t, want, b.Status().String())
	}
}

// readBecause waits for a reading of a cause to be logged.
func (b *bundle) readBecause(t testing.TB, cause string) {
	t.Helper()
	require.Eventually(t, func() bool { return strings.Contains(b.log.String(), fmt.Sprintf("cause=%q", cause)) },
		time.Minute, time.Millisecond, cause)
}

var later = time.Now().Add(time.Hour).Truncate(time.Microsecond)

func TestListFollowsTheBucket(t *testing.T) {
	t.Parallel()
	broker := startBroker(t)
	s := broker.service(t, "one")
	s.put(t, "192.0.2.1", later)
	s.put(t, "2001:db8::/32", later)
	s.put(t, "192.0.2.9", time.Now().Add(-time.Second)) // lifted
	s.write(t, "ip.nonsense", "x")
	s.write(t, "other", "x")
	s.publish(t, 1, 1)
	first, second := follow(t, broker.connect(t, "", nil), 0), follow(t, broker.connect(t, "", nil), 0)
	for _, l := range []*bundle{first, second} {
		l.status(t, "ok")
		blocked(t, l.table, "192.0.2.1", time.Now(), later)
		blocked(t, l.table, "2001:db8:1::1", time.Now(), later)
		blocked(t, l.table, "192.0.2.9", time.Now(), free)
	}
	// Live: every edge sees it.
	s.put(t, "192.0.2.2", later)
	s.put(t, "192.0.2.1", later.Add(time.Hour))
	s.put(t, "2001:db8::/32", time.Now())
	for _, l := range []*bundle{first, second} {
		l.until(t, "192.0.2.2", later)
		l.until(t, "192.0.2.1", later.Add(time.Hour))
		l.until(t, "2001:db8:1::1", free)
	}
	require.False(t, first.Monitor())
	s.mark.Monitor = true
	s.publish(t, 2, 0)
	require.Eventually(t, first.Monitor, time.Minute, time.Millisecond)
	require.Contains(t, first.log.String(), "refused")
	third := follow(t, broker.connect(t, "", nil), 0)
	third.status(t, "ok")
	require.True(t, third.Monitor(), "from the mark that was read")
	blocked(t, third.table, "192.0.2.1", time.Now(), later.Add(time.Hour))
}

// TestF19_AFreshEdge loads the state after a range was lifted.
func TestF19_AFreshEdge(t *testing.T) {
	t.Parallel()
	broker := startBroker(t)
	s := broker.service(t, "one")
	s.put(t, "198.51.100.7", later.Add(3*time.Hour))
	s.put(t, "198.51.100.0/24", later.Add(2*time.Hour))
	s.publish(t, 1, 1)
	old := follow(t, broker.connect(t, "", nil), 0)
	old.until(t, "198.51.100.8", later.Add(2*time.Hour))
	s.put(t, "198.51.100.0/24", time.Now())
	s.publish(t, 1, 0)
	fresh := follow(t, broker.connect(t, "", nil), 0)
	for _, l := range []*bundle{old, fresh} {
		l.until(t, "198.51.100.7", later.Add(3*time.Hour))
		l.until(t, "198.51.100.8", free)
	}
}

func TestWithoutAMarkNothingIsRead(t *testing.T) {
	t.Parallel()
	broker := startBroker(t)
	l := follow(t, broker.connect(t, "", nil), time.Hour)
	const words = "the blocks have not been read: "
	require.Contains(t, l.Status().String(), "not ready: the blocks have not been read")
	s := broker.service(t, "one")
	l.status(t, "not ready: "+words+errNoMark.Error())
	open := follow(t, broker.connect(t, "", nil), time.Nanosecond)
	open.status(t, "degraded: "+words+errNoMark.Error()+"; nobody unknown is refused")
	s.put(t, "192.0.2.1", later)
	open.until(t, "192.0.2.1", later) // what is heard is known at once
	require.True(t, open.Monitor(), "and enforced when the service says that blocks are")
	s.publish(t, 1, 0)
	l.status(t, "ok")
	open.status(t, "ok")
	require.False(t, open.Monitor())
	blocked(t, l.table, "192.0.2.1", time.Now(), later)
}

func TestChangesWhileNATSWasAway(t *testing.T) {
	t.Parallel()
	broker := startBroker(t)
	s := broker.service(t, "one")
	s.put(t, "192.0.2.1", later)
	s.publish(t, 1, 0)
	changes := make(chan bool, 100)
	l := follow(t, broker.connect(t, broker.ClientURL(), func(up bool) { changes <- up }), 0)
	l.status(t, "ok")
	broker.Stop()
	for <-changes {
	}
	require.Contains(t, l.Status().String(), "degraded: NATS is away")
	blocked(t, l.table, "192.0.2.1", time.Now(), later)

	// The server returns on another port first: the edge misses what is written.
	port := broker.opts.Port
	broker.opts.Port = 0
	broker.start(t)
	again := broker.service(t, "one")
	again.version = s.version
	again.put(t, "192.0.2.1", time.Now())
	again.put(t, "192.0.2.2", later)
	again.publish(t, 1, 0)
	broker.Stop()
	broker.opts.Port = port
	broker.start(t)
	l.until(t, "192.0.2.1", free)
	l.until(t, "192.0.2.2", later)
	l.status(t, "ok")
}

func TestNATSWithAnEmptyDisk(t *testing.T) {
	t.Parallel()
	broker := startBroker(t)
	s := broker.service(t, "one")
	for i := range 40 {
		s.put(t, fmt.Sprintf("192.0.2.%d", i), later)
	}
	s.put(t, "198.51.100.0/24", later)
	s.publish(t, 40, 1)
	l := follow(t, broker.connect(t, broker.ClientURL(), nil), 0)
	l.status(t, "ok")
	broker.Stop()
	broker.opts.StoreDir = t.TempDir()
	broker.start(t)
	inForce := func() {
		for i := range 40 {
			blocked(t, l.table, fmt.Sprintf("192.0.2.%d", i), time.Now(), later)
		}
		blocked(t, l.table, "198.51.100.1", time.Now(), later)
	}
	l.status(t, "degraded: the last known blocks are in force: read $KV.CCNQ_BLOCKS.mark: no service answers")
	inForce()
	s2 := broker.service(t, "two")
	l.status(t, "degraded: the last known blocks are in force: "+errNoMark.Error())
	inForce()
	// The service fills it again, and says early what it will hold.
	s2.version = 100
	s2.put(t, "203.0.113.1", later)
	s2.publish(t, 40, 1)
	l.until(t, "203.0.113.1", later)
	l.status(t, "degraded: the last known blocks are in force: "+errShort.Error()+": 1 of 40 addresses, 0 of 1 ranges")
	inForce()
	for i := range 39 { // 192.0.2.39 was lifted meanwhile
		s2.put(t, fmt.Sprintf("192.0.2.%d", i), later)
	}
	s2.put(t, "198.51.100.0/24", later)
	s2.publish(t, 40, 1)
	l.status(t, "ok")
	l.until(t, "192.0.2.39", free)
	blocked(t, l.table, "192.0.2.38", time.Now(), later)
	require.Equal(t, "two", l.table.state(time.Now()).generation)
}

// TestMarksFindWhatWasMissed makes the table differ from the bucket in each way.
func TestMarksFindWhatWasMissed(t *testing.T) {
	t.Parallel()
	broker := startBroker(t)
	s := broker.service(t, "one")
	s.put(t, "192.0.2.1", later)
	s.publish(t, 1, 0)
	l := follow(t, broker.connect(t, "", nil), 0)
	l.status(t, "ok")

	// A lift that was missed: the edge has one block too many.
	scope, p := target(t, "192.0.2.66")
	l.table.put(newChange(scope, p, wire.Block{BlockedUntil: later, Version: s.version}))
	blocked(t, l.table, "192.0.2.66", time.Now(), later)
	for range 3 { // no more than one reading takes: a second could undo what comes below
		s.publish(t, 1, 0)
	}
	l.until(t, "192.0.2.66", free)
	l.readBecause(t, "counts differ")

	// A block that was missed, with its version.
	s.put(t, "192.0.2.2", later)
	l.until(t, "192.0.2.2", later)
	v := newView()
	l.table.swap(v, "one", 1)
	s.publish(t, 2, 0)
	l.until(t, "192.0.2.2", later)
	l.until(t, "192.0.2.1", later)
	l.readBecause(t, "fell behind")

	// A bucket made anew by a service that begins at version 1.
	s.mark.Generation, s.version = "two", 0
	s.put(t, "192.0.2.1", later.Add(-time.Minute))
	s.put(t, "192.0.2.2", later.Add(-time.Minute))
	s.publish(t, 2, 0)
	l.until(t, "192.0.2.1", later.Add(-time.Minute))
	l.readBecause(t, "new generation")

	// A mark of a service that no longer leads says nothing.
	stale := s.mark
	stale.Version, stale.IPs, stale.Monitor = 1, 77, true
	s.write(t, wire.KeyMark, stale)
	s.put(t, "192.0.2.3", later)
	l.until(t, "192.0.2.3", later)
	require.False(t, l.Monitor())
}

func TestDeletedKeys(t *testing.T) {
	t.Parallel()
	broker := startBroker(t)
	s := broker.service(t, "one")
	s.put(t, "192.0.2.1", later)
	s.put(t, "192.0.2.0/24", later)
	s.publish(t, 1, 1)
	l := follow(t, broker.connect(t, "", nil), 0)
	l.status(t, "ok")
	for _, name := range []string{"ip.192-0-2-1", "range.192-0-2-0/24", wire.KeyMark} {
		l.live(bus.StreamMessage{Subject: wire.KVSubject(name), Deleted: true})
	}
	blocked(t, l.table, "192.0.2.1", time.Now(), free)
}

func TestAnOverdueMarkIsRead(t *testing.T) {
	t.Parallel()
	broker := startBroker(t)
	s := broker.service(t, "one")
	s.publish(t, 0, 0)
	l := follow(t, broker.connect(t, "", nil), 0)
	l.status(t, "ok")
	scope, p := target(t, "192.0.2.66")
	l.mu.Lock()
	l.markAt = time.Now().Add(-time.Hour) // none was heard since
	l.mark.Written = l.mark.Written.Add(-time.Hour)
	l.differs = 5
	l.table.put(newChange(scope, p, wire.Block{BlockedUntil: later}))
	l.mu.Unlock()
	l.until(t, "192.0.2.66", free)
}

func TestListWithoutNATS(t *testing.T) {
	t.Parallel()
	conn, err := bus.Connect(bus.Options{URL: "nats://127.0.0.1:1", Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	l := follow(t, conn, time.Nanosecond)
	require.Contains(t, l.Status().String(), "degraded: the blocks have not been read")
	blocked(t, l.table, "192.0.2.1", time.Now(), free)
	l.Stop()
	l.Stop()
	New(Options{Conn: conn, Registerer: prometheus.NewRegistry()}).Stop()
	conn.Close()
	require.Error(t, New(Options{Conn: conn, Registerer: prometheus.NewRegistry()}).Start())
}

func FuzzLive(f *testing.F) {
	for _, seed := range []struct{ key, data string }{
		{"mark", `{"generation":"g","version":3,"ips":1,"ranges":0,"written":"2026-01-02T03:04:05Z"}`},
		{"ip.192-0-2-1", `{"blocked_until":"2036-01-02T03:04:05Z","version":7,"since":"2026-01-02T03:04:05Z"}`},
		{"ip.2001_db8__1", `{"blocked_until":"0001-01-01T00:00:00Z","version":7}`},
		{"range.10-0-0-0/8", `{"blocked_until":"9999-12-31T23:59:59Z","version":9223372036854775807}`},
		{"range.__/0", `{"version":-1}`},
		{"ip.", `{`}, {"", ``}, {"ip.::1", `null`},
	} {
		f.Add(seed.key, []byte(seed.data), false)
		f.Add(seed.key, []byte(seed.data), true)
	}
	l := New(Options{Registerer: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler)})
	l.read.Store(true)
	addr := netip.MustParseAddr("192.0.2.200")
	f.Fuzz(func(t *testing.T, name string, data []byte, deleted bool) {
		m := bus.StreamMessage{Subject: wire.KVSubject(name), Data: data, Deleted: deleted}
		l.live(m)
		c, ok := l.decode(m)
		if ok && (c.block.until < 1 || c.block.version < 1 || !c.target.IsValid()) {
			t.Fatalf("%+v", c)
		}
		if ok { // what one reading understands, all do
			back, p, err := wire.ParseBlockKey(wire.BlockKey(c.scope, wire.TargetText(c.scope, c.target)))
			if err != nil || back != c.scope || p != c.target {
				t.Fatalf("%v %v %v", back, p, err)
			}
			l.table.remove(c.scope, c.target)
		}
		if until, yes := l.Check(addr, time.Now()); yes {
			t.Fatalf("%s is blocked until %s", addr, until)
		}
	})
}

// BenchmarkStart fills a bucket with 1,000,000 blocks once, and starts a list
// again and again.
func BenchmarkStart(b *testing.B) {
	const n = 1_000_000
	broker := startBroker(b)
	s := broker.service(b, "bench")
	for i := 0; i < n; {
		puts := make([]bus.Put, 0, 50_000)
		for ; len(puts) < cap(puts); i++ {
			data, err := json.Marshal(wire.Block{BlockedUntil: later, Version: int64(i + 1), Reason: "denials", Since: later.Add(-time.Hour)})
			require.NoError(b, err)
			puts = append(puts, bus.Put{
				Subject: wire.KVSubject(wire.BlockKey(wire.ScopeIP, spread(i).String())), Data: data, TTL: time.Hour,
			})
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		results, err := bus.PutAll(ctx, s.conn, puts)
		cancel()
		require.NoError(b, err)
		require.NoError(b, results[len(results)-1].Err)
	}
	s.version = n
	s.publish(b, n, 0)
	conn := broker.connect(b, broker.ClientURL(), nil)
	for b.Loop() {
		l := follow(b, conn, 0)
		require.Eventually(b, func() bool { return l.Status() == admin.OK }, 10*time.Minute, time.Millisecond)
		l.Stop()
	}
}
