package outbox

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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

// broker is a NATS server with the stream of events that keeps its port and
// folder over restarts.
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

// stream makes the stream of events. Its window for repetitions is NATS'
// default; what the tests count does not depend on it.
func (b *broker) stream(t testing.TB, maxBytes int64) *bus.Conn {
	t.Helper()
	c := dial(t, bus.Options{InProcess: b.InProcess()})
	_, err := bus.EnsureStream(deadline(t), c, bus.StreamSpec{
		Name: wire.StreamEvents, Subjects: []string{"ccnq.v1.events.denied.queue-full.*", "ccnq.v1.events.denied.queue-timeout.*"},
		MaxBytes: maxBytes, RefuseWhenFull: true,
	})
	require.NoError(t, err)
	return c
}

func dial(t testing.TB, opts bus.Options) *bus.Conn {
	t.Helper()
	opts.Logger = slog.New(slog.DiscardHandler)
	c, err := bus.Connect(opts)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

func acked(c *bus.Conn) Publish {
	return func(ctx context.Context, subject string, payload []byte, id string) error {
		return bus.PublishAcked(ctx, c, subject, payload, id)
	}
}

// applied reads the stream as the projector does, and returns how many requests
// it counts and how many messages it skips.
func applied(t testing.TB, c *bus.Conn) (requests, skipped int) {
	t.Helper()
	r, err := bus.OpenReader(deadline(t), c, wire.StreamEvents, 1)
	require.NoError(t, err)
	defer r.Close(deadline(t))
	s := newStream()
	for r.Pending() > 0 {
		messages, err := r.Next(deadline(t), time.Minute)
		require.NoError(t, err)
		for _, m := range messages {
			e, err := wire.Decode[wire.Event[wire.Denied]](m.Data)
			require.NoError(t, err)
			before := len(s.events)
			s.apply(e)
			skipped += 1 - (len(s.events) - before)
		}
	}
	return s.requests, skipped
}

func (b *bundle) untilSent(t testing.TB) {
	t.Helper()
	require.Eventually(t, func() bool {
		// In the order in which denials move on: what left the collector before
		// it was asked is in a queue by the time that one is asked.
		if b.denials.held.Load() != 0 {
			return false
		}
		records, _, _ := b.waiting()
		return records == 0
	}, time.Minute, time.Millisecond, "everything is acknowledged and removed")
}

// relay passes connections on to a server; it can swallow what the server says.
type relay struct {
	listener net.Listener
	target   string
	deaf     atomic.Bool // the client hears nothing
	swallows chan struct{}

	mu    sync.Mutex
	conns []net.Conn
	wg    sync.WaitGroup
}

func startRelay(t testing.TB, target string) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	r := &relay{listener: l, target: target, swallows: make(chan struct{}, 1)}
	r.wg.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", r.target)
			if err != nil {
				_ = client.Close()
				continue
			}
			r.mu.Lock()
			r.conns = append(r.conns, client, server)
			r.mu.Unlock()
			r.wg.Go(func() { _, _ = io.Copy(server, client); _ = server.Close() })
			r.wg.Go(func() { r.back(client, server); _ = client.Close() })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		r.cut()
		r.wg.Wait()
	})
	return r
}

// back copies what the server says, or drops it.
func (r *relay) back(client, server net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := server.Read(buf)
		if err != nil {
			return
		}
		if r.deaf.Load() {
			select {
			case r.swallows <- struct{}{}:
			default:
			}
			continue
		}
		if _, err := client.Write(buf[:n]); err != nil {
			return
		}
	}
}

// cut ends all connections.
func (r *relay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.conns {
		_ = c.Close()
	}
	r.conns = nil
}

// TestLostAcknowledgements lets the stream take messages whose acknowledgement
// never comes back, again and again, and restarts the server and the edge
// between. The reader's count is exact.
func TestLostAcknowledgements(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	reader := b.stream(t, 0)
	u, err := url.Parse(b.ClientURL())
	require.NoError(t, err)
	r := startRelay(t, u.Host)
	conn := dial(t, bus.Options{URL: "nats://" + r.listener.Addr().String()})
	dir := t.TempDir()
	o := start(t, dir, acked(conn))
	total := 0
	deny := func(n int) { o.deny(n); total += n }
	deny(100)
	o.untilSent(t)
	for range 2 {
		r.deaf.Store(true)
		deny(100)
		<-r.swallows // the server has answered
		r.cut()
		r.deaf.Store(false)
		deny(50)
		o.untilSent(t)
	}
	// An edge that stops before it hears the acknowledgement sends again under
	// the same id when it returns.
	r.deaf.Store(true)
	deny(70)
	<-r.swallows
	o.stop(0)
	r.cut()
	r.deaf.Store(false)
	o = start(t, dir, acked(conn))
	deny(30)
	o.untilSent(t)
	requests, _ := applied(t, reader)
	require.Equal(t, total, requests)
}

// TestRepetitionsInTheStream sends everything twice, as after an outage that
// was longer than the stream remembers ids: the reader counts once.
func TestRepetitionsInTheStream(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	conn := b.stream(t, 0)
	var calls atomic.Int64
	o := start(t, t.TempDir(), func(ctx context.Context, subject string, payload []byte, id string) error {
		// Stored, forgotten by the stream's memory of ids, and not acknowledged.
		err := bus.PublishAcked(ctx, conn, subject, payload, id+"-"+strconv.FormatInt(calls.Add(1), 10))
		if err == nil && calls.Load()%2 == 1 {
			return errAway
		}
		return err
	})
	total := 0
	for i := range 5 {
		o.deny(20 + i)
		total += 20 + i
		o.untilSent(t)
	}
	requests, skipped := applied(t, conn)
	require.Equal(t, total, requests)
	require.Positive(t, skipped, "the stream holds repetitions")
}

func TestOutageOfNATS(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	b.stream(t, 0)
	conn := dial(t, bus.Options{URL: b.ClientURL()})
	dir := t.TempDir()
	o := start(t, dir, acked(conn))
	o.deny(40)
	o.untilSent(t)
	b.Stop()
	o.deny(60)
	require.Eventually(t, func() bool { n, _, _ := o.waiting(); return n > 0 }, time.Minute, time.Millisecond)
	o.stop(0) // the edge ends during the outage
	o = start(t, dir, acked(conn))
	o.deny(25)
	b.start(t)
	o.untilSent(t)
	requests, _ := applied(t, b.stream(t, 0))
	require.Equal(t, 125, requests)
}

// TestAFullStream refuses until somebody makes room.
func TestAFullStream(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	conn := b.stream(t, 1)
	refused := make(chan error, 100)
	o := start(t, t.TempDir(), func(ctx context.Context, subject string, payload []byte, id string) error {
		err := bus.PublishAcked(ctx, conn, subject, payload, id)
		if err != nil {
			select {
			case refused <- err:
			default:
			}
		}
		return err
	})
	o.deny(40)
	require.ErrorIs(t, <-refused, bus.ErrRefused)
	b.stream(t, 0)
	o.untilSent(t)
	requests, skipped := applied(t, conn)
	require.Equal(t, 40, requests)
	require.Zero(t, skipped)
}

func TestStartedBeforeNATS(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	b.Stop()
	conn := dial(t, bus.Options{URL: "nats://127.0.0.1:" + strconv.Itoa(b.opts.Port)})
	o := start(t, t.TempDir(), acked(conn))
	o.deny(10)
	b.start(t)
	reader := b.stream(t, 0)
	o.untilSent(t)
	requests, _ := applied(t, reader)
	require.Equal(t, 10, requests)
}
