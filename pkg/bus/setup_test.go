package bus

import (
	"bytes"
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/pkg/bus/embed"
	"github.com/ccnq/ccnq/pkg/wire"
)

const (
	edgeID      = "edge-1"
	serviceName = "test-service"
)

func server(t testing.TB, opts embed.Options) *embed.Server {
	t.Helper()
	s, err := embed.Start(opts)
	require.NoError(t, err)
	t.Cleanup(s.Stop)
	return s
}

// client is a connection with what it said about itself.
type client struct {
	*Conn
	changes chan bool
	log     *lockedBuffer
}

func connect(t testing.TB, opts Options) *client {
	t.Helper()
	c := &client{changes: make(chan bool, 100), log: new(lockedBuffer)}
	opts.Logger = slog.New(slog.NewTextHandler(c.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	opts.OnChange = func(connected bool) { c.changes <- connected }
	conn, err := Connect(opts)
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	c.Conn = conn
	return c
}

func connectTo(t testing.TB, s *embed.Server) *client {
	t.Helper()
	return connect(t, Options{InProcess: s.InProcess()})
}

// until waits for the connection to come up or go down.
func (c *client) until(t testing.TB, connected bool) {
	t.Helper()
	for {
		select {
		case now := <-c.changes:
			if now == connected {
				return
			}
		case <-deadline(t).Done():
			require.Fail(t, "the connection did not change", "want connected = %v", connected)
		}
	}
}

func deadline(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// serve registers a service with one endpoint for cancels.
func serve(t testing.TB, c *client, handler func(*Call[wire.CancelRequest, wire.CancelReply])) (*Service, *refusals) {
	t.Helper()
	refused := new(refusals)
	s, err := NewService(c.Conn, serviceName, "1.0.0", refused.add)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Stop()) })
	require.NoError(t, Handle(s, "cancel", wire.SubjectCancel, handler))
	if c.Connected() {
		require.NoError(t, c.Ping(deadline(t)))
	}
	return s, refused
}

func pending(call *Call[wire.CancelRequest, wire.CancelReply]) {
	call.Reply(wire.CancelReply{Was: wire.WasPending})
}

func ask(ctx context.Context, c *client) (wire.Was, error) {
	reply, err := Request[wire.CancelRequest, wire.CancelReply](ctx, c.Conn, wire.EdgeSubject(wire.SubjectCancel, edgeID),
		wire.CancelRequest{RequestID: wire.RequestID{15: 1}, Bucket: wire.Bucket{Kind: wire.KindGroup, Key: "g"}})
	return reply.Was, err
}

// refusals are the messages that a service refused.
type refusals struct {
	mu   sync.Mutex
	list []string
}

func (r *refusals) add(subject string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, subject+": "+err.Error())
}

func (r *refusals) all() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.list...)
}

// lockedBuffer is a log that may be read while it is written.
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
