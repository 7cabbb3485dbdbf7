package rpc

import (
	"bytes"
	"context"
	"encoding/binary"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/pkg/bus"
	"github.com/ccnq/ccnq/pkg/bus/embed"
	"github.com/ccnq/ccnq/pkg/wire"
	"github.com/ccnq/ccnq/services/queue-coordinator/internal/push"
	"github.com/ccnq/ccnq/services/queue-coordinator/internal/store"
	"github.com/ccnq/ccnq/services/queue-coordinator/internal/store/memstore"
)

var limits = store.Limits{MaxServed: 1, MaxPending: 1, Lease: 5 * time.Second, StaleActive: 5 * time.Minute}

// system is a NATS server with coordinators on one store.
type system struct {
	t    testing.TB
	nats *embed.Server
	log  lockedBuffer
}

func newSystem(t testing.TB) *system {
	t.Helper()
	server, err := embed.Start(embed.Options{})
	require.NoError(t, err)
	t.Cleanup(server.Stop)
	s := &system{t: t, nats: server}
	return s
}

func (s *system) connect(name string) *bus.Conn {
	conn, err := bus.Connect(bus.Options{
		InProcess: s.nats.InProcess(), Name: name, Logger: slog.New(slog.NewJSONHandler(&s.log, nil)),
	})
	require.NoError(s.t, err)
	s.t.Cleanup(conn.Close)
	return conn
}

// memory is a store whose promotions are pushed over conn, the coordinator's
// own connection.
func (s *system) memory(conn *bus.Conn) store.Store {
	pusher := push.New(conn, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	m := memstore.New(time.Now, pusher.Promoted)
	s.t.Cleanup(m.Close)
	return m
}

// serve starts a coordinator; change may alter its options.
func (s *system) serve(conn *bus.Conn, st store.Store, change func(*Options)) (*Server, *prometheus.Registry) {
	registry := prometheus.NewRegistry()
	opts := Options{
		Conn: conn, Store: st, Limits: limits, Version: "1.0.0",
		Logger: slog.New(slog.NewJSONHandler(&s.log, nil)), Registry: registry,
	}
	if change != nil {
		change(&opts)
	}
	server := New(opts)
	require.NoError(s.t, server.Start())
	s.t.Cleanup(func() { require.NoError(s.t, server.Stop()) })
	require.NoError(s.t, conn.Ping(s.ctx()), "the subscriptions have reached the server")
	return server, registry
}

func (s *system) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	s.t.Cleanup(cancel)
	return ctx
}

// edge asks under one edge id.
type edge struct {
	*system
	id   string
	conn *bus.Conn
}

func (s *system) edge(id string) *edge { return &edge{s, id, s.connect(id)} }

func (e *edge) admit(req wire.AdmitRequest) (wire.AdmitReply, error) {
	if req.BudgetMS == 0 {
		req.BudgetMS = 10_000
	}
	return bus.Request[wire.AdmitRequest, wire.AdmitReply](e.ctx(), e.conn, wire.EdgeSubject(wire.SubjectAdmit, e.id), req)
}

func (e *edge) decide(n int, group string) wire.Decision {
	reply, err := e.admit(wire.AdmitRequest{RequestID: id(n), Bucket: bucket(group)})
	require.NoError(e.t, err)
	return reply.Decision
}

func (e *edge) release(group string, ns ...int) error {
	var req wire.ReleaseRequest
	for _, n := range ns {
		req.Items = append(req.Items, wire.Item{RequestID: id(n), Bucket: bucket(group)})
	}
	_, err := bus.Request[wire.ReleaseRequest, wire.ReleaseReply](e.ctx(), e.conn, wire.EdgeSubject(wire.SubjectRelease, e.id), req)
	return err
}

func (e *edge) cancel(n int, group string) (wire.Was, error) {
	reply, err := bus.Request[wire.CancelRequest, wire.CancelReply](e.ctx(), e.conn,
		wire.EdgeSubject(wire.SubjectCancel, e.id), wire.CancelRequest{RequestID: id(n), Bucket: bucket(group)})
	return reply.Was, err
}

func (e *edge) status(req wire.StatusRequest) (wire.StatusReply, error) {
	return bus.Request[wire.StatusRequest, wire.StatusReply](e.ctx(), e.conn, wire.EdgeSubject(wire.SubjectStatus, e.id), req)
}

func id(n int) (id wire.RequestID) {
	binary.BigEndian.PutUint64(id[8:], uint64(n))
	return id
}

func bucket(group string) wire.Bucket { return wire.Bucket{Kind: wire.KindGroup, Key: group} }

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

// heldStore passes calls on when the test lets it.
type heldStore struct {
	store.Store
	entered chan string
	pass    chan struct{}
}

func hold(st store.Store) *heldStore {
	return &heldStore{Store: st, entered: make(chan string), pass: make(chan struct{})}
}

func (h *heldStore) wait(op string) {
	h.entered <- op
	<-h.pass
}

func (h *heldStore) Admit(ctx context.Context, l store.Limits, items []store.AdmitItem, done func(int, store.AdmitResult)) {
	h.wait(opAdmit)
	h.Store.Admit(ctx, l, items, done)
}

func (h *heldStore) Release(ctx context.Context, l store.Limits, items []store.Item, done func(int, error)) {
	h.wait(opRelease)
	h.Store.Release(ctx, l, items, done)
}

// failingStore fails every call with one error.
type failingStore struct {
	store.Store
	err error
}

func (f failingStore) Admit(_ context.Context, _ store.Limits, items []store.AdmitItem, done func(int, store.AdmitResult)) {
	for i := range items {
		done(i, store.AdmitResult{Err: f.err})
	}
}

func (f failingStore) Cancel(_ context.Context, _ store.Limits, items []store.Item, done func(int, store.CancelResult)) {
	for i := range items {
		done(i, store.CancelResult{Err: f.err})
	}
}

// Release fails the last item of each call only.
func (f failingStore) Release(_ context.Context, _ store.Limits, items []store.Item, done func(int, error)) {
	for i := range items {
		if i == len(items)-1 {
			done(i, f.err)
		} else {
			done(i, nil)
		}
	}
}

func (f failingStore) Status(context.Context, store.Limits, store.Status) (store.StatusResult, error) {
	return store.StatusResult{}, f.err
}
