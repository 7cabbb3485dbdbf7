package coordinator

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/pkg/bus"
	"github.com/ccnq/ccnq/pkg/bus/embed"
	"github.com/ccnq/ccnq/pkg/config"
	"github.com/ccnq/ccnq/pkg/testport"
	"github.com/ccnq/ccnq/pkg/wire"
)

const group = "203.0.113.0/24"

// patience bounds every wait for something that must happen.
const patience = 90 * time.Second

// parts are what a coordinator needs, on addresses that stay the same.
type parts struct {
	t    testing.TB
	nats *embed.Server
	port int
	log  lockedBuffer
}

func newParts(t testing.TB) *parts {
	t.Helper()
	p := &parts{t: t, port: testport.Reserve(t)}
	p.startNATS()
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(p.log.String())
		}
	})
	return p
}

// startNATS starts the server again after a stop.
func (p *parts) startNATS() {
	server, err := embed.Start(embed.Options{Host: "127.0.0.1", Port: p.port})
	require.NoError(p.t, err)
	p.t.Cleanup(server.Stop)
	p.nats = server
}

// config is the configuration for the database at address.
func (p *parts) config(address, schema string) Config {
	db, err := pgx.ParseConfig(address)
	require.NoError(p.t, err)
	var c Config
	require.NoError(p.t, config.Load([]string{
		"CCNQ_ADMIN_ADDR=127.0.0.1:0",
		"CCNQ_NATS_URL=nats://127.0.0.1:" + strconv.Itoa(p.port),
		"CCNQ_PG_HOST=" + db.Host, "CCNQ_PG_PORT=" + strconv.Itoa(int(db.Port)),
		"CCNQ_PG_USER=" + db.User, "CCNQ_PG_PASSWORD=" + db.Password,
		"CCNQ_PG_DATABASE=" + db.Database, "CCNQ_PG_SCHEMA=" + schema,
		"CCNQ_PG_SSLMODE=disable", "CCNQ_QUEUE_LEASE_MS=2000",
	}, &c))
	return c
}

// start runs a coordinator until the test ends.
func (p *parts) start(cfg Config, deps Deps) *Coordinator {
	deps.Logger = slog.New(slog.NewJSONHandler(&p.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	c := New(cfg, deps)
	require.NoError(p.t, c.Start(p.ctx()))
	p.t.Cleanup(func() { require.NoError(p.t, c.Stop(p.ctx())) })
	return c
}

func (p *parts) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	p.t.Cleanup(cancel)
	return ctx
}

// readyz asks a coordinator whether it is ready.
func readyz(t testing.TB, c *Coordinator) (ready bool, body string) {
	t.Helper()
	response, err := http.Get("http://" + c.Addr().String() + "/readyz")
	require.NoError(t, err)
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	http.DefaultClient.CloseIdleConnections()
	return response.StatusCode == http.StatusOK, string(content)
}

// untilReady waits for a coordinator to become ready.
func untilReady(t testing.TB, c *Coordinator) {
	t.Helper()
	require.Eventually(t, func() bool { ready, _ := readyz(t, c); return ready }, patience, 10*time.Millisecond)
}

// edge asks under one edge id.
type edge struct {
	*parts
	id       string
	conn     *bus.Conn
	promoted chan wire.RequestID
}

func (p *parts) edge(id string) *edge {
	conn, err := bus.Connect(bus.Options{
		URL: "nats://127.0.0.1:" + strconv.Itoa(p.port), Name: id, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(p.t, err)
	p.t.Cleanup(conn.Close)
	e := &edge{parts: p, id: id, conn: conn, promoted: make(chan wire.RequestID, 1_000)}
	require.NoError(p.t, bus.Subscribe(conn, wire.EdgeSubject(wire.SubjectPromoted, id), func(m wire.Promoted) {
		for _, id := range m.RequestIDs {
			e.promoted <- id
		}
	}, func(err error) { p.t.Error(err) }))
	return e
}

func (e *edge) admit(n int, budget time.Duration) (wire.Decision, error) {
	reply, err := bus.Request[wire.AdmitRequest, wire.AdmitReply](e.ctx(), e.conn, wire.EdgeSubject(wire.SubjectAdmit, e.id),
		wire.AdmitRequest{RequestID: id(n), Bucket: bucket, BudgetMS: budget.Milliseconds()})
	return reply.Decision, err
}

// untilDecided asks until there is a decision, and returns it.
func (e *edge) untilDecided(n int) (decision wire.Decision) {
	require.Eventually(e.t, func() bool {
		var err error
		decision, err = e.admit(n, time.Second)
		return err == nil
	}, patience, 10*time.Millisecond)
	return decision
}

func (e *edge) release(ns ...int) error {
	var req wire.ReleaseRequest
	for _, n := range ns {
		req.Items = append(req.Items, wire.Item{RequestID: id(n), Bucket: bucket})
	}
	_, err := bus.Request[wire.ReleaseRequest, wire.ReleaseReply](e.ctx(), e.conn, wire.EdgeSubject(wire.SubjectRelease, e.id), req)
	return err
}

func (e *edge) status(epoch int64, active ...wire.RequestID) (wire.StatusReply, error) {
	return bus.Request[wire.StatusRequest, wire.StatusReply](e.ctx(), e.conn, wire.EdgeSubject(wire.SubjectStatus, e.id),
		wire.StatusRequest{Epoch: epoch, Active: active})
}

// beat sends a status four times a second, like a live edge, until the function
// that it returns is called. That tells what the store did not know.
func (e *edge) beat(active ...wire.RequestID) (stop func() (unknown []wire.RequestID)) {
	ctx, cancel := context.WithCancel(context.Background())
	var beating sync.WaitGroup
	var unknown []wire.RequestID
	beating.Go(func() {
		ticker := time.NewTicker(250 * time.Millisecond)
		defer ticker.Stop()
		for epoch := int64(1); ; epoch++ {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				reply, err := e.status(epoch, active...)
				if err == nil {
					unknown = append(unknown, reply.Unknown...)
				}
			}
		}
	})
	stop = func() []wire.RequestID {
		cancel()
		beating.Wait()
		return unknown
	}
	e.t.Cleanup(func() { stop() })
	return stop
}

var bucket = wire.Bucket{Kind: wire.KindGroup, Key: group}

func id(n int) (id wire.RequestID) {
	binary.BigEndian.PutUint64(id[8:], uint64(n))
	return id
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
