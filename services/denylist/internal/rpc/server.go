package rpc

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ccnq/ccnq/pkg/bus"
	"github.com/ccnq/ccnq/pkg/clientip"
	"github.com/ccnq/ccnq/pkg/wire"
	"github.com/ccnq/ccnq/services/denylist/internal/store"
)

const (
	// ServiceName is the name under which NATS lists the service, and its queue
	// group.
	ServiceName = "ccnq-denylist"
	// callTimeout bounds one request.
	callTimeout = 5 * time.Second
	// maxInFlight bounds the requests that are worked on at once.
	maxInFlight = 8
	// logEvery spaces out lines about refused messages.
	logEvery = time.Second
)

// Options say what a server serves.
type Options struct {
	Conn  *bus.Conn
	Store store.Store
	// Version is what NATS lists; semantic, such as 1.2.3.
	Version string
	// Ready returns nil if the store can be asked, or else why it cannot, in
	// words for the operator.
	Ready func() error
	// Changed is told that blocks changed. It must not block.
	Changed func()
	// Rebuild begins a rebuild; it is false if one is under way.
	Rebuild func() bool
	// Trusted are the proxies that must not be blocked, Allowlist what no block
	// holds for.
	Trusted, Allowlist *clientip.Set
	// Inert is a warning for each new block, such as that no edge enforces it;
	// empty for none.
	Inert string
	// Volatile returns a warning if the change of that version might not outlive
	// the process, or nothing.
	Volatile func(ctx context.Context, version int64) string
	Logger   *slog.Logger
	Registry prometheus.Registerer
}

// warning joins what there is to warn of.
func warning(all ...string) string {
	return strings.Join(slices.DeleteFunc(all, func(w string) bool { return w == "" }), "; ")
}

// The operations, as endpoints and in metrics.
const (
	opBlock   = "block"
	opUnblock = "unblock"
	opList    = "list"
	opExplain = "explain"
	opRebuild = "rebuild"
)

var (
	operations = []string{opBlock, opUnblock, opList, opExplain, opRebuild}
	results    = []string{"ok", string(bus.CodeBusy), string(bus.CodeInvalid), string(bus.CodeUnavailable), string(bus.CodeExpired)}
)

// Server answers requests. Make one with [New].
type Server struct {
	opts     Options
	requests *prometheus.CounterVec
	slots    chan struct{}
	logged   atomic.Int64 // Unix nanoseconds of the last line about a refused message
	service  *bus.Service
}

// New returns a server that serves nothing yet.
func New(opts Options) *Server {
	s := &Server{
		opts: opts, slots: make(chan struct{}, maxInFlight),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ccnq_denylist_requests_total", Help: "Requests of operators by operation and result.",
		}, []string{"op", "result"}),
	}
	for _, op := range operations {
		for _, result := range results {
			s.requests.WithLabelValues(op, result)
		}
	}
	opts.Registry.MustRegister(s.requests)
	return s
}

// Start begins to serve all requests but rebuild. Without a connection it
// serves as soon as there is one.
func (s *Server) Start() error {
	service, err := bus.NewService(s.opts.Conn, ServiceName, s.opts.Version, s.refuse)
	if err != nil {
		return err
	}
	s.service = service
	return errors.Join(
		handle(s, service, opBlock, wire.SubjectBlock, s.block),
		handle(s, service, opUnblock, wire.SubjectUnblock, s.unblock),
		handle(s, service, opList, wire.SubjectList, s.list),
		handle(s, service, opExplain, wire.SubjectExplain, s.explain),
	)
}

// Stop takes no more requests and returns when all are answered. It may be
// called before Start.
func (s *Server) Stop() error {
	if s.service == nil {
		return nil
	}
	return s.service.Stop()
}

// Lead serves what only the leader does, until the function that it returns is
// called.
func (s *Server) Lead() (stop func() error, err error) {
	service, err := bus.NewService(s.opts.Conn, ServiceName, s.opts.Version, s.refuse)
	if err != nil {
		return nil, err
	}
	if err := handle(s, service, opRebuild, wire.SubjectRebuild, s.rebuild); err != nil {
		return nil, errors.Join(err, service.Stop())
	}
	return service.Stop, nil
}

// refusal is an error that is the operator's to mend, or tells him to wait.
type refusal struct {
	code    bus.Code
	message string
}

func (r refusal) Error() string { return r.message }

// handle serves one operation.
func handle[Req, Resp wire.Message](s *Server, service *bus.Service, op, subject string,
	do func(context.Context, Req) (Resp, error),
) error {
	return bus.Handle(service, op, subject, func(call *bus.Call[Req, Resp]) {
		select {
		case s.slots <- struct{}{}:
		default:
			s.fail(op, refusal{bus.CodeBusy, "too many requests at once"}, call.Fail)
			return
		}
		go func() {
			defer func() { <-s.slots }()
			if err := s.opts.Ready(); err != nil {
				s.fail(op, refusal{bus.CodeUnavailable, err.Error()}, call.Fail)
				return
			}
			ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
			defer cancel()
			resp, err := do(ctx, call.Request)
			if err != nil {
				s.fail(op, err, call.Fail)
				return
			}
			s.requests.WithLabelValues(op, "ok").Inc()
			call.Reply(resp)
		}()
	})
}

// fail answers with an error. What went wrong inside is for the log.
func (s *Server) fail(op string, err error, answer func(bus.Code, string)) {
	out, ok := errors.AsType[refusal](err)
	switch {
	case ok:
	case errors.Is(err, context.DeadlineExceeded):
		out = refusal{bus.CodeExpired, "the store did not answer in time"}
	default:
		out = refusal{bus.CodeUnavailable, "the store cannot be reached"}
	}
	if !ok {
		s.opts.Logger.Warn("request failed", "op", op, "error", err)
	}
	s.requests.WithLabelValues(op, string(out.code)).Inc()
	answer(out.code, out.message)
}

// refuse is told of each message that cannot be decoded.
func (s *Server) refuse(subject string, err error) {
	for op, of := range map[string]string{
		opBlock: wire.SubjectBlock, opUnblock: wire.SubjectUnblock, opList: wire.SubjectList,
		opExplain: wire.SubjectExplain, opRebuild: wire.SubjectRebuild,
	} {
		if subject == of {
			s.requests.WithLabelValues(op, string(bus.CodeInvalid)).Inc()
		}
	}
	now, last := time.Now().UnixNano(), s.logged.Load()
	if now-last >= int64(logEvery) && s.logged.CompareAndSwap(last, now) {
		s.opts.Logger.Warn("message refused", "subject", subject, "error", err)
	}
}
