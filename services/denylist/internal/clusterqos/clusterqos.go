package clusterqos

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ccnq/ccnq/pkg/admin"
	"github.com/ccnq/ccnq/pkg/bus"
	"github.com/ccnq/ccnq/pkg/qos"
	"github.com/ccnq/ccnq/pkg/wire"
	"github.com/ccnq/ccnq/services/denylist/internal/lead"
)

const (
	// waitNew is how long one read waits at the end of the stream.
	waitNew  = 500 * time.Millisecond
	minRetry = 100 * time.Millisecond
	maxRetry = 2 * time.Second
	// hitsBytes and listsBytes bound the streams, of which the oldest messages go.
	hitsBytes  = 128 << 20
	listsBytes = 32 << 20
	leaseBytes = 1 << 20
	// minHitsAge is how long hits stay in the stream at least, and three windows.
	minHitsAge = 10 * time.Second
	// listsAge is how long lists stay in the stream that nobody writes again.
	listsAge = time.Minute
	// refusedEvery is the time between two log lines about refused messages.
	refusedEvery = 10 * time.Second
)

// Options say what is counted and what it is compared with.
type Options struct {
	// Conn is the connection to NATS. It may be down.
	Conn *bus.Conn
	// Limits are those of the cluster.
	Limits qos.ClusterLimits
	// Holder is unique for this process.
	Holder string
	// Wait returns once the streams are there.
	Wait func(context.Context) error
	// Missing is told that a stream is not there. It must not block.
	Missing  func()
	Logger   *slog.Logger
	Registry prometheus.Registerer
}

// Aggregator is one process' part in the counting. Make one with [New].
type Aggregator struct {
	opts      Options
	counts    *counts
	clock     *clock
	metrics   *metrics
	candidate *lead.Candidate

	current atomic.Bool   // all that is in the stream has been read
	counted chan struct{} // rung when something has been counted

	mu         sync.Mutex
	reading    error // why hits are not read now
	publishing error // why lists are not published now
	refused    time.Time
}

// New returns an aggregator that does nothing yet.
func New(opts Options) *Aggregator {
	opts.Logger = opts.Logger.With("part", "qos")
	a := &Aggregator{opts: opts, counts: newCounts(opts.Limits), clock: newClock(), counted: make(chan struct{}, 1)}
	a.metrics = newMetrics(opts.Registry, a.counts)
	a.candidate = lead.New(lead.Options{
		Name:   "denylist_qos",
		Lease:  &lease{conn: opts.Conn, observe: a.clock.observe, missing: opts.Missing},
		Holder: opts.Holder, Eligible: a.eligible, Ping: opts.Conn.Ping, Prepare: opts.Wait, Work: a.publish,
		Logger: opts.Logger, Registry: opts.Registry,
	})
	return a
}

// Streams are the streams that the aggregator and the edges need.
func Streams(limits qos.ClusterLimits) []bus.StreamSpec {
	return []bus.StreamSpec{
		{
			Name: wire.StreamQoSHits, Description: "what edges tracked for the load-aware limits",
			Subjects: []string{wire.SubjectQoSHits}, Memory: true, MaxAge: max(3*limits.Window, minHitsAge),
			MaxBytes: hitsBytes, MaxMessageBytes: wire.MaxMessage,
		},
		{
			Name: wire.StreamQoSLists, Description: "who is above the load-aware limits of the cluster",
			Subjects: []string{wire.SubjectQoSLists}, Memory: true, MaxAge: listsAge, MaxPerSubject: 1,
			MaxBytes: listsBytes, MaxMessageBytes: wire.MaxMessage, Direct: true,
		},
		{
			Name: wire.StreamQoSLease, Description: "which process publishes these lists",
			Subjects: []string{wire.SubjectQoSLease}, Memory: true, MaxPerSubject: 1,
			MaxBytes: leaseBytes, Direct: true, MessageTTL: true, Bucket: true,
		},
	}
}

// Run counts until ctx ends, and publishes while this process leads.
func (a *Aggregator) Run(ctx context.Context) {
	var parts sync.WaitGroup
	parts.Go(func() { a.read(ctx) })
	parts.Go(func() { a.candidate.Run(ctx) })
	parts.Wait()
}

// Leads reports whether this process publishes the lists.
func (a *Aggregator) Leads() bool { return a.candidate.Leads() }

// Status is degraded while hits are not counted, or lists not published by the
// process that should.
func (a *Aggregator) Status() admin.Status {
	a.mu.Lock()
	reading, publishing := a.reading, a.publishing
	a.mu.Unlock()
	switch {
	case reading != nil:
		return admin.Degraded("the hits of edges are not read: " + reading.Error())
	case publishing != nil && a.Leads():
		return admin.Degraded("blocklists are not published: " + publishing.Error())
	}
	return admin.OK
}

// eligible says that this process knows what the lists should be.
func (a *Aggregator) eligible() bool { return a.opts.Conn.Connected() && a.current.Load() }

// read follows the stream of hits until ctx ends.
func (a *Aggregator) read(ctx context.Context) {
	var at place
	delay := minRetry
	for {
		if a.opts.Wait(ctx) != nil {
			return
		}
		before := at
		err := a.follow(ctx, &at)
		if ctx.Err() != nil {
			return
		}
		a.current.Store(false)
		if at != before {
			delay = minRetry
		}
		a.fail(&a.reading, "read their hits", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(delay):
			delay = min(2*delay, maxRetry)
		}
	}
}

// place is how far a life of the stream has been read.
type place struct {
	created time.Time
	seq     uint64
}

// follow reads on from a place until something is in the way.
func (a *Aggregator) follow(ctx context.Context, at *place) error {
	reader, err := bus.OpenReader(ctx, a.opts.Conn, wire.StreamQoSHits, at.seq+1)
	if err != nil {
		return err
	}
	defer reader.Close(context.WithoutCancel(ctx))
	if made := reader.Stream().Created; !made.Equal(at.created) {
		again := at.seq > 0
		*at = place{created: made}
		if again {
			return errAnother
		}
	}
	for {
		if reader.Pending() == 0 {
			a.current.Store(true)
			a.fail(&a.reading, "", nil)
		}
		messages, err := reader.Next(ctx, waitNew)
		for i := range messages {
			a.take(&messages[i])
			at.seq = messages[i].Sequence
		}
		if len(messages) > 0 {
			select {
			case a.counted <- struct{}{}:
			default:
			}
		}
		if err != nil {
			return err
		}
		if !a.opts.Conn.Connected() {
			return bus.ErrDisconnected // sooner than the reader finds out
		}
	}
}

var errAnother = errors.New("the stream was made anew")

// take counts one message.
func (a *Aggregator) take(m *bus.StreamMessage) {
	a.clock.observe(m.Time)
	edge, err := wire.EdgeOf(wire.SubjectQoSHits, m.Subject)
	var hits wire.QoSHits
	if err == nil {
		hits, err = wire.Decode[wire.QoSHits](m.Data)
	}
	if err != nil {
		a.refuse(m.Subject, err)
		return
	}
	if a.counts.add(edge, m.Time, &hits) {
		a.metrics.counted.Inc()
		a.metrics.hits.Add(float64(hits.Total))
	} else {
		a.metrics.duplicate.Inc()
	}
}

// refuse counts a message that is not valid, and logs some of them.
func (a *Aggregator) refuse(subject string, err error) {
	a.metrics.refused.Inc()
	a.mu.Lock()
	defer a.mu.Unlock()
	if now := time.Now(); now.Sub(a.refused) >= refusedEvery {
		a.refused = now
		a.opts.Logger.Warn("a message about hits is refused", "subject", subject, "error", err)
	}
}

// fail keeps why something does not work, and logs it unless it is known.
func (a *Aggregator) fail(what *error, cannot string, err error) {
	a.mu.Lock()
	last := *what
	*what = err
	a.mu.Unlock()
	if err == nil {
		return
	}
	a.metrics.failures.Inc()
	if errors.Is(err, bus.ErrNotFound) || errors.Is(err, bus.ErrNoResponders) {
		a.opts.Missing()
	}
	if (last == nil || last.Error() != err.Error()) && !errors.Is(err, bus.ErrDisconnected) {
		a.opts.Logger.Warn("edges do not count together now; trying on", "cannot", cannot, "error", err)
	}
}
