package admission

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/pkg/bus"
	"github.com/ccnq/ccnq/pkg/bus/embed"
	"github.com/ccnq/ccnq/pkg/wire"
)

// The tests run a real NATS server, a gate and a scripted coordinator inside a
// bubble of testing/synctest: the clock stands still while any of them works,
// so "no message yet" and "at once" are facts and not guesses.

const (
	testAdmitTimeout   = time.Second
	testPendingTimeout = 10 * time.Second
	testPollInterval   = 250 * time.Millisecond
)

var (
	groupA = netip.MustParsePrefix("203.0.113.0/24")
	groupB = netip.MustParsePrefix("2001:db8::/64")

	testLimits = wire.Limits{MaxServed: 2, MaxPending: 3}
	admitted   = wire.AdmitReply{Decision: wire.Admitted, Limits: testLimits}
	queued     = wire.AdmitReply{Decision: wire.Queued, Limits: testLimits}
)

func rejected(fullForMS int64) wire.AdmitReply {
	return wire.AdmitReply{Decision: wire.Rejected, RetryAfterMS: 5000, FullForMS: fullForMS, Limits: testLimits}
}

type world struct {
	t    *testing.T
	nats *broker
	gate *Gate
	co   *coordinator

	visitors []*visitor
}

// run plays a test with a gate that has been started and a coordinator that
// admits everybody.
func run(t *testing.T, change func(*Options), play func(*world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, change)
		w.co.serve()
		require.NoError(t, w.gate.Start())
		t.Cleanup(func() {
			for _, v := range w.visitors {
				v.leave()
			}
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			w.gate.Stop(ctx)
		})
		synctest.Wait()
		play(w)
	})
}

// newWorld returns one in which nothing has been started but NATS.
func newWorld(t *testing.T, change func(*Options)) *world {
	t.Helper()
	w := &world{t: t, nats: newBroker(t)}
	conn, _ := w.nats.dial("edge")
	opts := Options{
		EdgeID:         "edge-1",
		Conn:           conn,
		AdmitTimeout:   testAdmitTimeout,
		PendingTimeout: testPendingTimeout,
		PollInterval:   testPollInterval,
		Lease:          5 * time.Second,
		Limits:         testLimits,
		Registerer:     prometheus.NewRegistry(),
		Logger:         slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(&opts)
	}
	w.gate = New(opts)
	w.co = w.coordinator()
	return w
}

// coordinator returns another one, which does not serve yet.
func (w *world) coordinator() *coordinator {
	conn, cable := w.nats.dial("coordinator")
	return &coordinator{t: w.t, conn: conn, cable: cable, admit: admitted, cancel: wire.WasGone}
}

// pass lets time go by until everything that is due has happened.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// visitor is one request at the gate.
type visitor struct {
	leave   context.CancelFunc
	decided chan struct{}

	ticket  *Ticket
	outcome Outcome
}

// arrive sends a request to the gate and returns when it has been decided or
// waits for something.
func (w *world) arrive(group netip.Prefix, gone func() bool) *visitor {
	v := w.enter(group, gone)
	synctest.Wait()
	return v
}

// enter is arrive without the wait.
func (w *world) enter(group netip.Prefix, gone func() bool) *visitor {
	v := &visitor{decided: make(chan struct{})}
	ctx, leave := context.WithCancel(context.Background())
	v.leave = leave
	w.visitors = append(w.visitors, v)
	go func() {
		v.ticket, v.outcome = w.gate.Admit(ctx, group, time.Now(), gone)
		close(v.decided)
	}()
	return v
}

// is requires that the visitor has been decided on, with this reason.
func (w *world) is(v *visitor, reason Reason) Outcome {
	w.t.Helper()
	select {
	case <-v.decided:
	default:
		require.Fail(w.t, "not decided", "want %s", reason)
	}
	require.Equal(w.t, reason, v.outcome.Reason, "cause %q", v.outcome.Cause)
	return v.outcome
}

// undecided requires that the visitor still waits.
func (w *world) undecided(v *visitor) {
	w.t.Helper()
	select {
	case <-v.decided:
		require.Fail(w.t, "decided", "%+v", v.outcome)
	default:
	}
}

// finish ends an exchange.
func (w *world) finish(v *visitor) {
	<-v.decided
	v.ticket.Done()
	synctest.Wait()
}

// clean requires that the gate remembers nothing of any request.
func (w *world) clean() {
	w.t.Helper()
	synctest.Wait()
	require.Empty(w.t, w.leftovers())
}

// leftovers says what the gate still remembers.
func (w *world) leftovers() string {
	g := w.gate
	var tickets, groups int
	g.groups.sweep(time.Now().Add(time.Hour))
	for i := range shards {
		tickets += len(g.tickets.shard[i].byID)
		groups += len(g.groups.shard[i].byPrefix)
	}
	g.outgoing.mu.Lock()
	defer g.outgoing.mu.Unlock()
	left := []int{
		tickets, groups, g.outgoing.left(), int(g.waiting.Load()),
		value(g.metrics.held), value(g.metrics.waiting),
	}
	if slices.Max(left) == 0 && slices.Min(left) == 0 {
		return ""
	}
	return fmt.Sprintf("tickets, groups, outgoing, waiting, held metric, waiting metric: %v", left)
}

func value(m prometheus.Metric) int {
	var out dto.Metric
	if m.Write(&out) != nil {
		return -1
	}
	return int(out.GetCounter().GetValue() + out.GetGauge().GetValue())
}

// broker is a NATS server that can be stopped and started again, and whose
// connections can be cut.
type broker struct {
	t testing.TB

	mu     sync.Mutex
	server *embed.Server
	conns  []*bus.Conn
}

func newBroker(t testing.TB) *broker {
	t.Helper()
	b := &broker{t: t}
	b.start()
	t.Cleanup(func() {
		// Connections are closed after the server, since the client library
		// flushes a live one with a timer that all bubbles would share.
		b.stop()
		for _, conn := range b.conns {
			conn.Close()
		}
	})
	return b
}

func (b *broker) start() {
	server, err := embed.Start(embed.Options{})
	require.NoError(b.t, err)
	b.mu.Lock()
	b.server = server
	b.mu.Unlock()
}

// stop returns when every connection has noticed.
func (b *broker) stop() {
	b.mu.Lock()
	server := b.server
	b.server = nil
	b.mu.Unlock()
	if server != nil {
		server.Stop()
		synctest.Wait()
	}
}

func (b *broker) dial(name string) (*bus.Conn, *cable) {
	c := &cable{broker: b}
	conn, err := bus.Connect(bus.Options{InProcess: c, Name: name, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(b.t, err)
	b.conns = append(b.conns, conn)
	return conn, c
}

// cable is what connects one client.
type cable struct {
	broker *broker

	mu   sync.Mutex
	conn net.Conn
	dead bool
}

// InProcessConn dials the server of the moment.
func (c *cable) InProcessConn() (net.Conn, error) {
	c.broker.mu.Lock()
	server := c.broker.server
	c.broker.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if server == nil || c.dead {
		return nil, errors.New("no server")
	}
	conn, err := server.InProcess().InProcessConn()
	c.conn = conn
	return conn, err
}

// cut ends the connection for good, as when the process is killed.
func (c *cable) cut() {
	c.mu.Lock()
	c.dead = true
	conn := c.conn
	c.mu.Unlock()
	if conn != nil {
		_ = conn.Close() // a pipe's never fails
	}
	synctest.Wait()
}

type (
	admitCall   = bus.Call[wire.AdmitRequest, wire.AdmitReply]
	releaseCall = bus.Call[wire.ReleaseRequest, wire.ReleaseReply]
	cancelCall  = bus.Call[wire.CancelRequest, wire.CancelReply]
	statusCall  = bus.Call[wire.StatusRequest, wire.StatusReply]
)

// coordinator answers as it is told, and records what it is asked.
type coordinator struct {
	t     testing.TB
	conn  *bus.Conn
	cable *cable

	mu sync.Mutex
	// The answers of those that have no function of their own below.
	admit  wire.AdmitReply
	cancel wire.Was
	status wire.StatusReply
	// With code everything fails, when mute is set nothing is answered.
	code bus.Code
	mute bool

	onAdmit   func(*admitCall)
	onCancel  func(*cancelCall)
	onRelease func(*releaseCall)
	onStatus  func(*statusCall)

	admits   []wire.AdmitRequest
	releases []wire.Item // answered
	cancels  []wire.CancelRequest
	statuses []wire.StatusRequest
}

// serve returns when the coordinator can be reached.
func (c *coordinator) serve() {
	service, err := bus.NewService(c.conn, "coordinator", "1.0.0", func(_ string, err error) {
		c.t.Errorf("the gate sent what is not valid: %v", err)
	})
	require.NoError(c.t, err)
	by := wire.By{Coordinator: service.ID()}
	require.NoError(c.t, bus.HandleOwn(service, "admit", wire.SubjectAdmit, func(call *admitCall) {
		c.mu.Lock()
		c.admits = append(c.admits, call.Request)
		handle, reply := c.onAdmit, c.admit
		c.mu.Unlock()
		reply.By = by
		answer(c, call, handle, reply)
	}))
	require.NoError(c.t, bus.HandleOwn(service, "cancel", wire.SubjectCancel, func(call *cancelCall) {
		c.mu.Lock()
		c.cancels = append(c.cancels, call.Request)
		handle, reply := c.onCancel, wire.CancelReply{By: by, Was: c.cancel}
		c.mu.Unlock()
		answer(c, call, handle, reply)
	}))
	require.NoError(c.t, bus.HandleOwn(service, "release", wire.SubjectRelease, func(call *releaseCall) {
		c.mu.Lock()
		if !c.mute && c.code == "" {
			c.releases = append(c.releases, call.Request.Items...)
		}
		handle := c.onRelease
		c.mu.Unlock()
		answer(c, call, handle, wire.ReleaseReply{By: by})
	}))
	require.NoError(c.t, bus.HandleOwn(service, "status", wire.SubjectStatus, func(call *statusCall) {
		c.mu.Lock()
		c.statuses = append(c.statuses, call.Request)
		handle, reply := c.onStatus, c.status
		c.mu.Unlock()
		reply.By = by
		answer(c, call, handle, reply)
	}))
	synctest.Wait()
}

func answer[Req, Resp wire.Message](c *coordinator, call *bus.Call[Req, Resp], handle func(*bus.Call[Req, Resp]), reply Resp) {
	c.mu.Lock()
	code, mute := c.code, c.mute
	c.mu.Unlock()
	switch {
	case mute:
	case code != "":
		call.Fail(code, "as told")
	case handle != nil:
		handle(call)
	default:
		call.Reply(reply)
	}
}

// tell changes the script.
func (c *coordinator) tell(change func(*coordinator)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(c)
}

// asked returns the admits so far.
func (c *coordinator) asked() []wire.AdmitRequest {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.admits
}

func (c *coordinator) released() []wire.Item {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.releases
}

func (c *coordinator) cancelled() []wire.CancelRequest {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cancels
}

func (c *coordinator) polled() []wire.StatusRequest {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.statuses
}

// admitCalls makes the admits wait for the test, which answers them.
func (c *coordinator) admitCalls() <-chan *admitCall {
	calls := make(chan *admitCall, 3)
	c.tell(func(c *coordinator) { c.onAdmit = func(call *admitCall) { calls <- call } })
	return calls
}

// cancelCalls does the same with cancels.
func (c *coordinator) cancelCalls() <-chan *cancelCall {
	calls := make(chan *cancelCall, 3)
	c.tell(func(c *coordinator) { c.onCancel = func(call *cancelCall) { calls <- call } })
	return calls
}

// promote pushes a promotion.
func (c *coordinator) promote(ids ...wire.RequestID) {
	subject := wire.EdgeSubject(wire.SubjectPromoted, "edge-1")
	require.NoError(c.t, bus.Publish(c.conn, subject, wire.Promoted{RequestIDs: ids, AgeUS: 10}))
}
