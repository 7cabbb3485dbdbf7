package admission

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/sony/gobreaker/v2"

	"github.com/ccnq/ccnq/pkg/bus"
	"github.com/ccnq/ccnq/pkg/wire"
)

// defaultRetryAfter is what a refused client is told when the coordinator
// gives no advice: the seed's five seconds.
const defaultRetryAfter = 5 * time.Second

// Options configure a [Gate]. All durations are positive unless said.
type Options struct {
	// EdgeID is this edge's id, see [wire.CheckEdgeID].
	EdgeID string
	// Conn reaches the coordinators.
	Conn *bus.Conn
	// AdmitTimeout bounds the wait for any answer of a coordinator.
	AdmitTimeout time.Duration
	// PendingTimeout is how long a request may wait in line, from its arrival.
	PendingTimeout time.Duration
	// PollInterval is the time between two status messages while requests
	// wait.
	PollInterval time.Duration
	// Lease is how long the places of this edge outlive its last message.
	Lease time.Duration
	// Monitor decides and counts, and refuses nobody.
	Monitor bool
	// Fallback counts with this edge's own eyes while nobody answers, instead
	// of letting everything pass.
	Fallback bool
	// Limits are used by the fallback until a coordinator has told its own.
	Limits wire.Limits
	// Registerer receives the metrics.
	Registerer prometheus.Registerer
	// Logger receives state changes; single requests are not logged.
	Logger *slog.Logger
}

// Gate decides which requests may go on to the origin. It is safe for
// concurrent use.
type Gate struct {
	opts     Options
	metrics  *metrics
	tickets  registry
	groups   groupTable
	breaker  *gobreaker.TwoStepCircuitBreaker[any]
	outgoing *outgoing
	limits   atomic.Pointer[wire.Limits]

	waiting atomic.Int64  // requests in line at the store
	poll    chan struct{} // wakes the status loop when the first request waits
	epoch   int64         // of the last status; used by the status loop alone

	began      time.Time
	lastAnswer atomic.Int64 // of a coordinator, a duration since began

	heard atomic.Pointer[string] // the coordinator that answered last, nil if it is silent now

	mu           sync.Mutex
	breakerState gobreaker.State
	downContext  context.Context //nolint:containedctx // no request's: it ends with the beginning of an outage
	setDown      context.CancelFunc
	up           chan struct{} // closed with the end of an outage

	stop context.CancelFunc
	done sync.WaitGroup
}

// New returns a gate that does nothing until [Gate.Start].
func New(opts Options) *Gate {
	g := &Gate{
		opts:    opts,
		metrics: newMetrics(opts.Registerer),
		poll:    make(chan struct{}, 1),
		up:      make(chan struct{}),
		began:   time.Now(),
	}
	close(g.up)
	g.tickets.init()
	g.groups.init()
	g.limits.Store(&opts.Limits)
	g.breaker = g.newBreaker()
	g.outgoing = newOutgoing(g)
	return g
}

// Start subscribes to promotions and begins to send status messages. It needs
// no server to be there yet.
func (g *Gate) Start() error {
	subject := wire.EdgeSubject(wire.SubjectPromoted, g.opts.EdgeID)
	if err := bus.Subscribe(g.opts.Conn, subject, g.onPromoted, g.onRefusedMessage); err != nil {
		return fmt.Errorf("admission: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	g.stop = cancel
	g.done.Go(func() { g.statusLoop(ctx) })
	g.done.Go(func() { g.outgoing.run(ctx) })
	return nil
}

// Stop sends the releases that are still to be sent, until ctx ends, and ends
// the background work. All tickets must be done. It may be called before
// Start, and twice.
func (g *Gate) Stop(ctx context.Context) {
	if g.stop == nil {
		return
	}
	if left := g.outgoing.drain(ctx); left > 0 {
		g.opts.Logger.Warn("not all places could be given back: the lease frees them", "count", left)
	}
	g.stop()
	g.done.Wait()
}

// Degraded says why the gate does not decide, or returns the empty string.
func (g *Gate) Degraded() string {
	if g.whenDown().Err() == nil {
		return ""
	}
	if g.opts.Fallback {
		return "no coordinator answers: this edge counts alone"
	}
	return "no coordinator answers: requests pass undecided"
}

// Admit decides on one request of a group and returns when it may go on, is
// refused, or its client is gone, which ctx tells and, when it is not nil,
// gone, which is asked once in each poll interval while the request stands in
// line. The pending timeout counts from arrived. When the outcome says Pass,
// [Ticket.Done] must be called on the ticket, which may be nil, once the
// exchange with the origin has ended.
func (g *Gate) Admit(ctx context.Context, group netip.Prefix, arrived time.Time, gone func() bool) (*Ticket, Outcome) {
	visit := visit{gate: g, gone: gone, arrived: arrived, began: time.Now(), prefix: group}
	ticket, outcome := visit.run(ctx)
	if outcome.Reason != QueueFull && outcome.Reason != FailOpen {
		g.metrics.waited.Observe(outcome.Waited.Seconds())
	}
	if outcome.Reason == FailOpen {
		g.metrics.failOpen.WithLabelValues(string(outcome.Cause)).Inc()
	}
	return ticket, outcome
}

func (g *Gate) onPromoted(m wire.Promoted) {
	for _, id := range m.RequestIDs {
		if t := g.tickets.get(id); t != nil && t.promote() {
			g.metrics.promotion.Observe(float64(m.AgeUS) / 1e6)
		}
	}
}

func (g *Gate) onRefusedMessage(err error) {
	g.metrics.refused.Inc()
	g.opts.Logger.Warn("a message was refused", "error", err)
}

// newID makes a UUIDv7.
func newID() wire.RequestID {
	return wire.RequestID(uuid.Must(uuid.NewV7()))
}
