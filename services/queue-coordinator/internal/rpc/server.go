package rpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ccnq/ccnq/pkg/bus"
	"github.com/ccnq/ccnq/pkg/wire"
	"github.com/ccnq/ccnq/services/queue-coordinator/internal/batch"
	"github.com/ccnq/ccnq/services/queue-coordinator/internal/store"
)

const (
	// ServiceName is the name under which NATS lists the coordinators, and
	// their queue group.
	ServiceName = "ccnq-queue-coordinator"
	// retryAfter is the advice to clients that are refused, as in the seed.
	retryAfter = 5 * time.Second
	// opTimeout bounds the requests that carry no budget of their own.
	opTimeout = 2 * time.Second

	maxBatch    = 512
	maxInFlight = 2
	// maxWaiting bounds the requests of one kind that wait for the store.
	maxWaiting = 16_384
	// maxStatusInFlight is the number of status calls at once. They are not
	// batched: each concerns one edge and may list thousands of requests.
	maxStatusInFlight = 4
	maxStatusWaiting  = 1_024
	// unbatchedInFlight stands for no bound, for comparison.
	unbatchedInFlight = 1_024
)

// Options say what a server serves.
type Options struct {
	Conn   *bus.Conn
	Store  store.Store
	Limits store.Limits
	// Version is what NATS lists; semantic, such as 1.2.3.
	Version string
	// Unbatched makes one store call for each request: the measure of what
	// batching brings.
	Unbatched bool
	Logger    *slog.Logger
	Registry  prometheus.Registerer
}

// Server answers the edges.
type Server struct {
	opts    Options
	metrics *metrics
	refused *refusals
	service *bus.Service
	by      wire.By // this one, in its answers
	pulse   *pulse

	stopPulse context.CancelFunc

	admits   *batch.Batcher[*admitCall]
	cancels  *batch.Batcher[*cancelCall]
	releases *batch.Batcher[releaseItem]
	statuses *batch.Batcher[*statusCall]
}

type (
	admitCall  = bus.Call[wire.AdmitRequest, wire.AdmitReply]
	cancelCall = bus.Call[wire.CancelRequest, wire.CancelReply]
	statusCall = bus.Call[wire.StatusRequest, wire.StatusReply]
)

// New returns a server that serves nothing yet.
func New(opts Options) *Server {
	s := &Server{opts: opts, metrics: newMetrics(), stopPulse: func() {}}
	s.refused = &refusals{logger: opts.Logger, metrics: s.metrics}
	s.admits = batch.New(batchOptions(s, opAdmit, s.runAdmits, failCall[wire.AdmitRequest, wire.AdmitReply]))
	s.cancels = batch.New(batchOptions(s, opCancel, s.runCancels, failCall[wire.CancelRequest, wire.CancelReply]))
	s.releases = batch.New(batchOptions(s, opRelease, s.runReleases, releaseItem.fail))
	statuses := batchOptions(s, opStatus, s.runStatus, failCall[wire.StatusRequest, wire.StatusReply])
	statuses.MaxBatch, statuses.MaxInFlight, statuses.MaxWaiting = 1, maxStatusInFlight, maxStatusWaiting
	s.statuses = batch.New(statuses)
	s.metrics.register(opts.Registry, map[string]func() int{
		opAdmit: s.admits.InFlight, opCancel: s.cancels.InFlight,
		opRelease: s.releases.InFlight, opStatus: s.statuses.InFlight,
	})
	return s
}

// batchOptions returns the options of the batches of one operation. Fail
// answers an item with an error, and returns the code.
func batchOptions[T any](s *Server, op string, run func([]T), fail func(T, error) bus.Code) batch.Options[T] {
	size := s.metrics.batchSize.WithLabelValues(op)
	opts := batch.Options[T]{
		Run: func(items []T) {
			size.Observe(float64(len(items)))
			run(items)
		},
		Drop: func(item T, reason error) { s.metrics.count(op, string(fail(item, reason))) },

		MaxBatch: maxBatch, MaxInFlight: maxInFlight, MaxWaiting: maxWaiting,
	}
	if s.opts.Unbatched {
		opts.MaxBatch, opts.MaxInFlight = 1, unbatchedInFlight
	}
	return opts
}

// Start begins to serve. Without a connection it serves as soon as there is
// one.
func (s *Server) Start() error {
	service, err := bus.NewService(s.opts.Conn, ServiceName, s.opts.Version, s.refused.refuse)
	if err != nil {
		return err
	}
	s.service, s.by = service, wire.By{Coordinator: service.ID()}
	ctx, cancel := context.WithCancel(context.Background())
	s.stopPulse = cancel
	s.pulse = newPulse()
	go s.pulse.run(ctx)
	return errors.Join(
		bus.HandleOwn(service, opAdmit, wire.SubjectAdmit, s.admit),
		bus.HandleOwn(service, opCancel, wire.SubjectCancel, s.cancel),
		bus.HandleOwn(service, opRelease, wire.SubjectRelease, s.release),
		bus.HandleOwn(service, opStatus, wire.SubjectStatus, s.status),
	)
}

// Stop takes no more requests, answers those that wait, and returns when all
// are answered. It may be called before Start.
func (s *Server) Stop() error {
	var err error
	if s.service != nil {
		err = s.service.Stop()
	}
	s.stopPulse()
	s.admits.Stop()
	s.cancels.Stop()
	s.releases.Stop()
	s.statuses.Stop()
	return err
}

// admit drops what waited while this process stood still: its request is over,
// or has been admitted by another coordinator, and would take a place in vain.
func (s *Server) admit(call *admitCall) {
	if s.pulse.stale() {
		s.metrics.count(opAdmit, string(failCall(call, batch.ErrExpired)))
		return
	}
	s.admits.Submit(call, call.Received.Add(call.Request.Budget()))
}

func (s *Server) runAdmits(batch []*admitCall) {
	// The store may report an item after it returned; the batcher takes its
	// slice back before. Each item has its own deadline, the call needs none.
	calls := append([]*admitCall(nil), batch...)
	items := make([]store.AdmitItem, len(calls))
	for i, call := range calls {
		items[i] = store.AdmitItem{
			Item: storeItem(call.Edge, call.Request.RequestID, call.Request.Bucket, call.Received,
				call.Received.Add(call.Request.Budget())),
			Mode: call.Request.Mode,
		}
	}
	s.opts.Store.Admit(context.Background(), s.opts.Limits, items, func(i int, r store.AdmitResult) {
		call := calls[i]
		if r.Err != nil {
			s.metrics.count(opAdmit, string(failCall(call, r.Err)))
			return
		}
		reply := wire.AdmitReply{
			By:       s.by,
			Decision: r.Decision,
			Limits:   wire.Limits{MaxServed: s.opts.Limits.MaxServed, MaxPending: s.opts.Limits.MaxPending},
		}
		if r.Decision == wire.Rejected {
			reply.RetryAfterMS = retryAfter.Milliseconds()
			reply.FullForMS = r.FullFor.Milliseconds()
		}
		call.Reply(reply)
		s.metrics.count(opAdmit, string(r.Decision))
		if call.Request.Mode == wire.ModeHeld {
			s.metrics.asserted.Inc()
		}
	})
}

func (s *Server) cancel(call *cancelCall) {
	s.cancels.Submit(call, call.Received.Add(opTimeout))
}

func (s *Server) runCancels(batch []*cancelCall) {
	calls := append([]*cancelCall(nil), batch...)
	items := make([]store.Item, len(calls))
	for i, call := range calls {
		items[i] = storeItem(call.Edge, call.Request.RequestID, call.Request.Bucket, call.Received,
			call.Received.Add(opTimeout))
	}
	s.opts.Store.Cancel(context.Background(), s.opts.Limits, items, func(i int, r store.CancelResult) {
		if r.Err != nil {
			s.metrics.count(opCancel, string(failCall(calls[i], r.Err)))
			return
		}
		calls[i].Reply(wire.CancelReply{By: s.by, Was: r.Was})
		s.metrics.count(opCancel, string(r.Was))
	})
}

func (s *Server) status(call *statusCall) {
	s.statuses.Submit(call, call.Received.Add(statusTimeout(call.Request)))
}

// statusTimeout bounds a status. It frees what is older than StaleMS and not
// listed, so a list that is half as old is no longer used.
func statusTimeout(r wire.StatusRequest) time.Duration {
	if stale := time.Duration(r.StaleMS) * time.Millisecond; stale > 0 {
		return min(opTimeout, stale/2)
	}
	return opTimeout
}

func (s *Server) runStatus(batch []*statusCall) {
	call := batch[0]
	ctx, cancel := context.WithDeadline(context.Background(), call.Received.Add(statusTimeout(call.Request)))
	defer cancel()
	r, err := s.opts.Store.Status(ctx, s.opts.Limits, store.Status{
		EdgeID: call.Edge,
		Epoch:  call.Request.Epoch,
		Lease:  time.Duration(call.Request.LeaseMS) * time.Millisecond,
		Stale:  time.Duration(call.Request.StaleMS) * time.Millisecond,
		Part:   call.Request.Part, Parts: call.Request.Parts,
		Waiting: call.Request.Waiting, Active: call.Request.Active,
	})
	if err != nil {
		s.metrics.count(opStatus, string(failCall(call, err)))
		return
	}
	call.Reply(wire.StatusReply{By: s.by, Promoted: r.Promoted, Unknown: r.Unknown})
	s.metrics.count(opStatus, resultOK)
	s.metrics.repaired.Add(float64(r.Freed))
}

func storeItem(edge string, id wire.RequestID, bucket wire.Bucket, received, deadline time.Time) store.Item {
	return store.Item{ID: id, Group: bucket.Key, EdgeID: edge, Received: received, Deadline: deadline}
}

// failCall answers a call with the error that kept it from being served.
func failCall[Req, Resp wire.Message](call *bus.Call[Req, Resp], err error) bus.Code {
	code, message := codeOf(err)
	call.Fail(code, message)
	return code
}

// codeOf turns an error of the batcher or the store into what an edge is told.
// What went wrong inside is for the log, not for the edge.
func codeOf(err error) (bus.Code, string) {
	switch {
	case errors.Is(err, batch.ErrExpired), errors.Is(err, store.ErrExpired), errors.Is(err, context.DeadlineExceeded):
		return bus.CodeExpired, "the request waited past its budget"
	case errors.Is(err, batch.ErrFull):
		return bus.CodeBusy, "too many requests wait for the store"
	case errors.Is(err, store.ErrBusy):
		return bus.CodeBusy, fmt.Sprint(store.ErrBusy)
	case errors.Is(err, store.ErrForeign):
		return bus.CodeInvalid, fmt.Sprint(store.ErrForeign)
	default:
		return bus.CodeUnavailable, "the store cannot be reached"
	}
}
