package clusterqos

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/pkg/bus"
	"github.com/ccnq/ccnq/pkg/bus/embed"
	"github.com/ccnq/ccnq/pkg/testport"
	"github.com/ccnq/ccnq/pkg/wire"
)

const (
	// patience bounds every wait for something that must happen.
	patience = 60 * time.Second
	look     = 10 * time.Millisecond
)

// broker is a NATS server with the streams in memory.
type broker struct {
	t    *testing.T
	nats *embed.Server
	port int
}

func newBroker(t *testing.T) *broker {
	t.Helper()
	b := &broker{t: t, port: testport.Reserve(t)}
	b.start()
	return b
}

func (b *broker) start() {
	// While the server was away, another process may have been given its port for a
	// connection of its own.
	require.Eventually(b.t, func() bool {
		nats, err := embed.Start(embed.Options{Host: "127.0.0.1", Port: b.port, StoreDir: b.t.TempDir()})
		if err != nil {
			b.t.Log(err)
			return false
		}
		b.nats = nats
		return true
	}, patience, look)
	b.t.Cleanup(b.nats.Stop)
}

func (b *broker) connect() *bus.Conn {
	c, err := bus.Connect(bus.Options{URL: b.nats.ClientURL(), Logger: slog.New(slog.DiscardHandler)})
	require.NoError(b.t, err)
	b.t.Cleanup(c.Close)
	require.Eventually(b.t, c.Connected, patience, look)
	return c
}

func (b *broker) streams(c *bus.Conn) {
	for _, spec := range Streams(limited()) {
		require.Eventually(b.t, func() bool {
			_, err := bus.EnsureStream(b.t.Context(), c, spec)
			return err == nil
		}, patience, look)
	}
}

func TestLease(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	conn := b.connect()
	var seen time.Time
	join := func() *lease {
		return &lease{conn: conn, observe: func(at time.Time) { seen = at }, missing: func() {}}
	}
	missed := false
	none := &lease{conn: conn, observe: func(time.Time) {}, missing: func() { missed = true }}
	_, _, err := none.Lead(t.Context(), "nobody", time.Second)
	require.Error(t, err)
	require.True(t, missed, "the bucket is not there")

	b.streams(conn)
	lead := func(l *lease, holder string, length time.Duration) int64 {
		t.Helper()
		epoch, ok, err := l.Lead(t.Context(), holder, length)
		require.NoError(t, err)
		require.Equal(t, ok, epoch != 0)
		return epoch
	}
	a, c := join(), join()
	first := lead(a, "a", time.Minute)
	require.NotZero(t, first)
	require.False(t, seen.IsZero(), "the server's time is known")
	require.Zero(t, lead(c, "c", time.Minute))
	require.Equal(t, first, lead(a, "a", time.Minute), "renewed")

	// An answer was lost: the process does not know that it leads.
	again := join()
	second := lead(again, "a", time.Minute)
	require.Greater(t, second, first)
	require.NoError(t, again.Resign(t.Context(), first), "another term's")
	require.Zero(t, lead(c, "c", time.Minute))
	require.NoError(t, again.Resign(t.Context(), second))

	third := lead(c, "c", time.Minute)
	require.Greater(t, third, second, "free at once")
	require.Zero(t, lead(a, "a", time.Minute), "the first one has lost it")
	require.NoError(t, c.Resign(t.Context(), third))
	third = lead(c, "c", time.Second)
	require.NotZero(t, third)
	require.Eventually(t, func() bool { return lead(a, "a", time.Minute) > third }, patience, look, "it ends by itself")
	require.Zero(t, lead(c, "c", time.Minute))

	// The server loses it all.
	fourth := a.epoch
	b.nats.Stop()
	b.start()
	require.Eventually(t, conn.Connected, patience, look)
	b.streams(conn)
	require.Greater(t, lead(c, "c", time.Minute), fourth)
	require.Zero(t, lead(a, "a", time.Minute))
}

func TestLeaseIsNotHeldByNonsense(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	conn := b.connect()
	b.streams(conn)
	require.NoError(t, bus.PublishAcked(t.Context(), conn, wire.SubjectQoSLease, []byte("nonsense"), ""))
	l := &lease{conn: conn, observe: func(time.Time) {}, missing: func() {}}
	_, ok, err := l.Lead(t.Context(), "a", time.Minute)
	require.NoError(t, err)
	require.True(t, ok)
}
