package rpc

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/pkg/bus"
	"github.com/ccnq/ccnq/pkg/wire"
	"github.com/ccnq/ccnq/services/queue-coordinator/internal/store"
)

const group = "203.0.113.0/24"

func TestOneRoundOfEverything(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	conn := s.connect("coordinator")
	_, registry := s.serve(conn, s.memory(conn), nil)
	e := s.edge("edge-1")
	promoted := make(chan wire.Promoted, 10)
	require.NoError(t, bus.Subscribe(e.conn, wire.EdgeSubject(wire.SubjectPromoted, e.id),
		func(m wire.Promoted) { promoted <- m }, func(err error) { t.Error(err) }))
	require.NoError(t, e.conn.Ping(s.ctx()))

	reply, err := e.admit(wire.AdmitRequest{RequestID: id(1), Bucket: bucket(group)})
	require.NoError(t, err)
	require.NotEmpty(t, reply.Coordinator)
	require.Equal(t, wire.AdmitReply{By: reply.By, Decision: wire.Admitted, Limits: wire.Limits{MaxServed: 1, MaxPending: 1}}, reply)
	own := wire.EdgeSubject(wire.OwnSubject(wire.SubjectAdmit, reply.Coordinator), e.id)
	again, err := bus.Request[wire.AdmitRequest, wire.AdmitReply](s.ctx(), e.conn, own,
		wire.AdmitRequest{RequestID: id(1), Bucket: bucket(group), BudgetMS: 1000})
	require.NoError(t, err)
	require.Equal(t, reply, again, "asked by its id")
	require.Equal(t, wire.Queued, e.decide(2, group))
	reply, err = e.admit(wire.AdmitRequest{RequestID: id(3), Bucket: bucket(group)})
	require.NoError(t, err)
	require.Equal(t, wire.Rejected, reply.Decision)
	require.EqualValues(t, 5_000, reply.RetryAfterMS)
	require.Equal(t, wire.Admitted, e.decide(1, group), "asked again")
	require.Equal(t, wire.Admitted, e.decide(4, "198.51.100.0/24"), "another group")

	reply, err = e.admit(wire.AdmitRequest{RequestID: id(5), Bucket: bucket(group), Mode: wire.ModeHeld})
	require.NoError(t, err)
	require.Equal(t, wire.Admitted, reply.Decision, "asserted places do not count against the limit")
	require.NoError(t, e.release(group, 5))

	require.NoError(t, e.release(group, 1))
	m := <-promoted
	require.Equal(t, []wire.RequestID{id(2)}, m.RequestIDs)
	require.Positive(t, m.AgeUS)

	status, err := e.status(wire.StatusRequest{Epoch: 1, Waiting: []wire.RequestID{id(2), id(9)}})
	require.NoError(t, err)
	require.Equal(t, wire.StatusReply{By: reply.By, Promoted: []wire.RequestID{id(2)}, Unknown: []wire.RequestID{id(9)}}, status)

	for n, want := range map[int]wire.Was{2: wire.WasActive, 9: wire.WasGone} {
		was, err := e.cancel(n, group)
		require.NoError(t, err)
		require.Equal(t, want, was)
	}
	require.Equal(t, wire.Queued, e.decide(6, group))
	was, err := e.cancel(6, group)
	require.NoError(t, err)
	require.Equal(t, wire.WasPending, was)

	require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP ccnq_coordinator_asserted_total Places that edges held already and the store did not know; only these may exceed the limit.
# TYPE ccnq_coordinator_asserted_total counter
ccnq_coordinator_asserted_total 1
# HELP ccnq_coordinator_requests_total Requests of edges (of a release: its items) by operation and result.
# TYPE ccnq_coordinator_requests_total counter
ccnq_coordinator_requests_total{op="admit",result="admitted"} 5
ccnq_coordinator_requests_total{op="admit",result="busy"} 0
ccnq_coordinator_requests_total{op="admit",result="expired"} 0
ccnq_coordinator_requests_total{op="admit",result="invalid"} 0
ccnq_coordinator_requests_total{op="admit",result="queued"} 2
ccnq_coordinator_requests_total{op="admit",result="rejected"} 1
ccnq_coordinator_requests_total{op="admit",result="unavailable"} 0
ccnq_coordinator_requests_total{op="cancel",result="active"} 1
ccnq_coordinator_requests_total{op="cancel",result="busy"} 0
ccnq_coordinator_requests_total{op="cancel",result="expired"} 0
ccnq_coordinator_requests_total{op="cancel",result="gone"} 1
ccnq_coordinator_requests_total{op="cancel",result="invalid"} 0
ccnq_coordinator_requests_total{op="cancel",result="pending"} 1
ccnq_coordinator_requests_total{op="cancel",result="unavailable"} 0
ccnq_coordinator_requests_total{op="release",result="busy"} 0
ccnq_coordinator_requests_total{op="release",result="expired"} 0
ccnq_coordinator_requests_total{op="release",result="invalid"} 0
ccnq_coordinator_requests_total{op="release",result="ok"} 2
ccnq_coordinator_requests_total{op="release",result="unavailable"} 0
ccnq_coordinator_requests_total{op="status",result="busy"} 0
ccnq_coordinator_requests_total{op="status",result="expired"} 0
ccnq_coordinator_requests_total{op="status",result="invalid"} 0
ccnq_coordinator_requests_total{op="status",result="ok"} 1
ccnq_coordinator_requests_total{op="status",result="unavailable"} 0
`), "ccnq_coordinator_asserted_total", "ccnq_coordinator_requests_total"))
}

// TestPromotionLeavesBeforeTheReply watches, as a third party, the order in
// which the server passes on what the coordinator sends.
func TestPromotionLeavesBeforeTheReply(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	conn := s.connect("coordinator")
	s.serve(conn, s.memory(conn), nil)
	e := s.edge("edge-1")
	require.Equal(t, wire.Admitted, e.decide(1, group))
	require.Equal(t, wire.Queued, e.decide(2, group))

	watcher, err := nats.Connect("", nats.InProcessServer(s.nats.InProcess()))
	require.NoError(t, err)
	defer watcher.Close()
	all, err := watcher.SubscribeSync(">")
	require.NoError(t, err)
	require.NoError(t, watcher.Flush())

	require.NoError(t, e.release(group, 1))
	var subjects []string
	for range 3 {
		msg, err := all.NextMsgWithContext(s.ctx())
		require.NoError(t, err)
		subjects = append(subjects, msg.Subject)
	}
	require.Equal(t, "ccnq.v1.queue.release.edge-1", subjects[0])
	require.Equal(t, "ccnq.v1.edge.edge-1.promoted", subjects[1])
	require.True(t, strings.HasPrefix(subjects[2], "_INBOX."), subjects[2])
}

func TestStoreErrorsBecomeCodes(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		err  error
		want bus.Code
	}{
		{store.ErrBusy, bus.CodeBusy},
		{store.ErrExpired, bus.CodeExpired},
		{fmt.Errorf("admit: %w", context.DeadlineExceeded), bus.CodeExpired},
		{store.ErrForeign, bus.CodeInvalid},
		{store.ErrClosed, bus.CodeUnavailable},
		{errors.New("password of postgres is hunter2"), bus.CodeUnavailable},
	} {
		t.Run(test.err.Error(), func(t *testing.T) {
			t.Parallel()
			s := newSystem(t)
			s.serve(s.connect("coordinator"), failingStore{err: test.err}, nil)
			e := s.edge("edge-1")
			_, admitErr := e.admit(wire.AdmitRequest{RequestID: id(1), Bucket: bucket(group)})
			_, cancelErr := e.cancel(1, group)
			_, statusErr := e.status(wire.StatusRequest{Epoch: 1})
			releaseErr := e.release(group, 1, 2, 3)
			for _, err := range []error{admitErr, cancelErr, statusErr, releaseErr} {
				require.Equal(t, test.want, bus.CodeOf(err), "%v", err)
				require.NotContains(t, err.Error(), "hunter2")
			}
		})
	}
}

func TestBadMessagesAreRefusedAndLoggedOnce(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	conn := s.connect("coordinator")
	_, registry := s.serve(conn, s.memory(conn), nil)
	e := s.edge("edge-1")
	for n := range 20 {
		_, err := e.admit(wire.AdmitRequest{RequestID: id(n + 1), Bucket: wire.Bucket{Kind: "class", Key: "x"}})
		require.Equal(t, bus.CodeInvalid, bus.CodeOf(err))
		require.ErrorContains(t, err, `bucket kind "class" is not known`)
	}
	_, err := e.status(wire.StatusRequest{})
	require.ErrorContains(t, err, "epoch 0 is not positive")
	require.Equal(t, bus.CodeInvalid, bus.CodeOf(e.release(group)))
	_, err = e.cancel(0, group)
	require.ErrorContains(t, err, "request id is the zero UUID")
	require.Equal(t, wire.Admitted, e.decide(1, group), "the service goes on")

	for op, want := range map[string]float64{opAdmit: 20, opCancel: 1, opRelease: 1, opStatus: 1} {
		require.InDelta(t, want, counter(t, registry, op, "invalid"), 0, op)
	}
	require.Less(t, strings.Count(s.log.String(), "message refused"), 20, "not a line for each")
	require.Contains(t, s.log.String(), `bucket kind \"class\"`)
}

func counter(t testing.TB, registry *prometheus.Registry, op, result string) float64 {
	t.Helper()
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, family := range families {
		if family.GetName() != "ccnq_coordinator_requests_total" {
			continue
		}
		for _, m := range family.GetMetric() {
			if m.GetLabel()[0].GetValue() == op && m.GetLabel()[1].GetValue() == result {
				return m.GetCounter().GetValue()
			}
		}
	}
	require.Fail(t, "no such counter", "%s %s", op, result)
	return 0
}

// TestItemsPastTheirBudgetAreDropped keeps both calls of the store busy while
// a third request waits past its budget.
func TestItemsPastTheirBudgetAreDropped(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	conn := s.connect("coordinator")
	held := hold(s.memory(conn))
	server, _ := s.serve(conn, held, nil)
	e := s.edge("edge-1")
	results := make(chan error, 3)
	ask := func(n int, budget int64) {
		go func() {
			_, err := e.admit(wire.AdmitRequest{RequestID: id(n), Bucket: bucket(fmt.Sprint(n)), BudgetMS: budget})
			results <- err
		}()
	}
	ask(1, 10_000)
	require.Equal(t, opAdmit, <-held.entered)
	ask(2, 10_000)
	require.Equal(t, opAdmit, <-held.entered)
	ask(3, 1)
	require.Eventually(t, func() bool { return server.admits.Waiting() == 1 }, 10*time.Second, time.Millisecond)
	late, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	<-late.Done()
	close(held.pass)
	var expired int
	for range 3 {
		if err := <-results; bus.CodeOf(err) == bus.CodeExpired {
			expired++
		} else {
			require.NoError(t, err)
		}
	}
	require.Equal(t, 1, expired)
	status, err := e.status(wire.StatusRequest{Epoch: 1, Active: []wire.RequestID{id(1), id(2), id(3)}})
	require.NoError(t, err)
	require.Equal(t, []wire.RequestID{id(3)}, status.Unknown, "the store was not asked")
}

func TestStopAnswersWhatItTook(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	conn := s.connect("coordinator")
	held := hold(s.memory(conn))
	server, _ := s.serve(conn, held, nil)
	e := s.edge("edge-1")
	const n = 50
	results := make(chan error, n)
	ask := func(i int) {
		_, err := e.admit(wire.AdmitRequest{RequestID: id(i + 1), Bucket: bucket(fmt.Sprint(i))})
		results <- err
	}
	for i := range maxInFlight {
		go ask(i)
		<-held.entered
	}
	for i := maxInFlight; i < n; i++ {
		go ask(i)
	}
	require.Eventually(t, func() bool { return server.admits.Waiting() == n-maxInFlight },
		10*time.Second, time.Millisecond)
	stopped := make(chan error)
	go func() { stopped <- server.Stop() }()
	go func() {
		for range held.entered {
		}
	}()
	close(held.pass)
	require.NoError(t, <-stopped)
	close(held.entered)
	for range n {
		require.NoError(t, <-results)
	}
	_, err := e.admit(wire.AdmitRequest{RequestID: id(1), Bucket: bucket("0")})
	require.ErrorIs(t, err, bus.ErrNoResponders)
}

// TestAnotherCoordinatorAnswers replaces the coordinator between two asks.
func TestAnotherCoordinatorAnswers(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	first := s.connect("first")
	st := s.memory(first)
	server, _ := s.serve(first, st, nil)
	e := s.edge("edge-1")
	require.Equal(t, wire.Admitted, e.decide(1, group))
	require.Equal(t, wire.Queued, e.decide(2, group))
	require.NoError(t, server.Stop())
	s.serve(s.connect("second"), st, nil)
	require.Equal(t, wire.Admitted, e.decide(1, group))
	require.Equal(t, wire.Queued, e.decide(2, group))
	require.NoError(t, e.release(group, 1))
	status, err := e.status(wire.StatusRequest{Epoch: 1, Waiting: []wire.RequestID{id(2)}})
	require.NoError(t, err)
	require.Equal(t, []wire.RequestID{id(2)}, status.Promoted)
}

// TestF17_MoreThanTheLimitUnderARace sends 200 requests of one group from two
// edges to two coordinators that share a limit of 10.
func TestF17_MoreThanTheLimitUnderARace(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	first, second := s.connect("first"), s.connect("second")
	st := s.memory(first)
	ten := func(o *Options) { o.Limits.MaxServed, o.Limits.MaxPending = 10, 1_000 }
	s.serve(first, st, ten)
	s.serve(second, st, ten)
	var origin struct {
		sync.Mutex
		now, most, served int
	}
	var wg sync.WaitGroup
	for _, e := range []*edge{s.edge("edge-1"), s.edge("edge-2")} {
		turn := make(map[wire.RequestID]chan struct{})
		for i := range 100 {
			turn[unique(e, i)] = make(chan struct{}, 1)
		}
		require.NoError(t, bus.Subscribe(e.conn, wire.EdgeSubject(wire.SubjectPromoted, e.id), func(m wire.Promoted) {
			for _, id := range m.RequestIDs {
				turn[id] <- struct{}{}
			}
		}, func(err error) { t.Error(err) }))
		for i := range 100 {
			wg.Go(func() {
				reply, err := e.admit(wire.AdmitRequest{RequestID: unique(e, i), Bucket: bucket(group)})
				if err != nil {
					t.Error(err)
					return
				}
				if reply.Decision == wire.Queued {
					<-turn[unique(e, i)]
				}
				origin.Lock()
				origin.now++
				origin.served++
				origin.most = max(origin.most, origin.now)
				origin.Unlock()
				origin.Lock()
				origin.now--
				origin.Unlock()
				_, err = bus.Request[wire.ReleaseRequest, wire.ReleaseReply](e.ctx(), e.conn,
					wire.EdgeSubject(wire.SubjectRelease, e.id),
					wire.ReleaseRequest{Items: []wire.Item{{RequestID: unique(e, i), Bucket: bucket(group)}}})
				if err != nil {
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()
	require.LessOrEqual(t, origin.most, 10)
	require.Equal(t, 200, origin.served)
	totals, err := st.Totals(s.ctx())
	require.NoError(t, err)
	require.Zero(t, totals.Active)
	require.Zero(t, totals.Waiting)
}

// unique is the id of the i-th request of an edge.
func unique(e *edge, i int) wire.RequestID {
	n := id(i + 1)
	copy(n[:8], e.id)
	return n
}

// deadlines notes until when statuses may run.
type deadlines struct {
	store.Store
	left chan time.Duration
}

func (d deadlines) Status(ctx context.Context, _ store.Limits, _ store.Status) (store.StatusResult, error) {
	until, _ := ctx.Deadline()
	d.left <- time.Until(until)
	return store.StatusResult{}, nil
}

// A status frees what is older than its StaleMS and not listed. What was given to
// the edge after it made the list must not become that old meanwhile.
func TestOldListsFreeNothing(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	st := deadlines{left: make(chan time.Duration, 1)}
	s.serve(s.connect("coordinator"), st, nil)
	e := s.edge("edge-1")
	for _, test := range []struct {
		stale int64
		most  time.Duration
	}{{60_000, opTimeout}, {3_000, 1500 * time.Millisecond}, {0, opTimeout}} {
		_, err := e.status(wire.StatusRequest{Epoch: 1, LeaseMS: 5_000, StaleMS: test.stale})
		require.NoError(t, err)
		require.LessOrEqual(t, <-st.left, test.most)
	}
}
