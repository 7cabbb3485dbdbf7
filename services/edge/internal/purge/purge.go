package purge

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ccnq/ccnq/pkg/bus"
	"github.com/ccnq/ccnq/pkg/wire"
)

const (
	// interval is how often the stream is looked at.
	interval = 5 * time.Second
	// timeout bounds one look.
	timeout = 5 * time.Second
	// purgeTimeout bounds the wait for the disk with one purge, which is in effect
	// by then. Whoever asked for it waits for the answer a little longer than that.
	purgeTimeout = 2 * time.Second
	// page is how many purges are read at once.
	page = 100
	// stillYoung is how long after its beginning an edge has missed nothing that
	// the stream does not hold: less than the day that purges are kept.
	stillYoung = 12 * time.Hour
	// maxSeen is how many purges are remembered, so that one that came live is
	// not applied again from the stream, nor one that somebody sends again.
	maxSeen = 1024
)

// Cache is what is purged. See package cache.
type Cache interface {
	// PurgeTargets removes targets at once. The error says that they may come
	// back.
	PurgeTargets(ctx context.Context, targets []wire.PurgeTarget) error
	// PurgeAll removes everything at once. The error says that it may come back.
	PurgeAll(ctx context.Context) error
	// Empty says whether nothing is stored.
	Empty() bool
}

// Options say what a [Listener] works with. All but Conn are required.
type Options struct {
	// EdgeID is how the edge names itself.
	EdgeID string
	// Conn is NATS; nil means that only the admin listener purges.
	Conn *bus.Conn
	// Cache is purged.
	Cache Cache
	// Dir is the folder of the file with the place in the stream.
	Dir string
	// Registerer receives the metrics.
	Registerer prometheus.Registerer
	// Logger is told of purges and faults.
	Logger *slog.Logger
}

// Listener purges the cache of one edge. It is safe for concurrent use.
type Listener struct {
	opts   Options
	purges *prometheus.CounterVec

	mu   sync.Mutex // held while a purge is applied
	seen []string   // ids of purges that are done with

	began    time.Time
	fresh    bool // nothing was stored when the edge began
	position position
	trouble  string   // of the last look, so that it is logged once
	unkept   string   // id of the purge of the stream that was applied and could not be kept, likewise
	emptied  position // for which the cache was emptied, likewise
	interval time.Duration
	cancel   context.CancelFunc
	tasks    sync.WaitGroup
}

// Where a purge came from.
const (
	fromAdmin  = "admin"
	fromNATS   = "nats"
	fromStream = "stream"
	fromGap    = "gap" // the cache was emptied
)

// New returns a listener that does nothing yet.
func New(opts Options) *Listener {
	l := &Listener{
		opts: opts,
		purges: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ccnq_cache_purges_total",
			Help: "Purges that were applied, by where they came from; gap means that some were missed for good and the cache was emptied.",
		}, []string{"from"}),
		began:    time.Now(),
		fresh:    opts.Cache.Empty(),
		position: loadPosition(opts.Dir),
		interval: interval,
	}
	for _, from := range []string{fromAdmin, fromNATS, fromStream, fromGap} {
		l.purges.WithLabelValues(from)
	}
	opts.Registerer.MustRegister(l.purges)
	return l
}

// Start begins to listen, if there is NATS.
func (l *Listener) Start() error {
	if l.opts.Conn == nil {
		return nil
	}
	err := bus.Answer(l.opts.Conn, wire.SubjectPurge, wire.SubjectPurged, l.opts.EdgeID, l.answer, func(err error) {
		l.opts.Logger.Warn("a purge that cannot be read is refused", "error", err)
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	l.cancel = cancel
	l.tasks.Go(func() { l.run(ctx) })
	return nil
}

// Stop ends it. It may be called without Start, and twice.
func (l *Listener) Stop() {
	if l.cancel != nil {
		l.cancel()
	}
	l.tasks.Wait()
}

// answer applies a purge that has just been asked for.
func (l *Listener) answer(req wire.PurgeRequest) wire.PurgeReply {
	return l.apply(context.Background(), fromNATS, req)
}

// apply purges, and says how that went.
func (l *Listener) apply(ctx context.Context, from string, req wire.PurgeRequest) wire.PurgeReply {
	l.mu.Lock()
	defer l.mu.Unlock()
	var reply wire.PurgeReply
	if from != fromAdmin && slices.Contains(l.seen, req.ID) {
		return reply
	}
	ctx, cancel := context.WithTimeout(ctx, purgeTimeout)
	defer cancel()
	if err := l.opts.Cache.PurgeTargets(ctx, req.Targets); err != nil {
		reply.Warning = err.Error()[:min(len(err.Error()), wire.MaxWords)]
	} else if from != fromAdmin {
		l.seen = append(l.seen, req.ID)
		l.seen = l.seen[max(0, len(l.seen)-maxSeen):]
	}
	if from == fromStream {
		again := req.ID == l.unkept
		l.unkept = ""
		if reply.Warning != "" {
			l.unkept = req.ID
		}
		if again { // it is tried at every look
			return reply
		}
	}
	l.purges.WithLabelValues(from).Inc()
	l.opts.Logger.Info("purged", "from", from, "id", req.ID, "by", req.By, "targets", req.Targets, "warning", reply.Warning)
	return reply
}

// run looks at the stream until ctx ends.
func (l *Listener) run(ctx context.Context) {
	tick := time.NewTicker(l.interval)
	defer tick.Stop()
	for {
		l.catchUp(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// catchUp applies what the stream holds behind the edge's place.
func (l *Listener) catchUp(ctx context.Context) {
	looking, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := l.read(looking)
	switch {
	case ctx.Err() != nil:
		return
	case err == nil:
		l.trouble = ""
		return
	case errors.Is(err, bus.ErrDisconnected), errors.Is(err, bus.ErrNotFound), errors.Is(err, bus.ErrNoResponders):
		return // no NATS, or nobody keeps purges: nothing to catch up with
	}
	if text := err.Error(); text != l.trouble {
		l.trouble = text
		l.opts.Logger.Warn("the purges that this edge may have missed cannot be read; trying on", "error", err)
	}
}

func (l *Listener) read(ctx context.Context) error {
	state, err := bus.StreamInfo(ctx, l.opts.Conn, wire.StreamPurges)
	if err != nil {
		return err
	}
	known := l.position.Created.Equal(state.Created)
	switch {
	case known && l.position.Seq == state.Last:
		return nil
	case known && l.position.Seq < state.Last && state.First <= l.position.Seq+1:
		return l.readOn(ctx, state.Last)
	}
	if (l.position == position{}) && l.fresh && time.Since(l.began) < stillYoung {
		// Whatever is stored, or is being fetched, was asked for after the edge
		// began, and the stream holds every purge since then. Those before do no harm.
		if err := l.moveTo(position{state.Created, state.First - 1}); err != nil {
			return err
		}
		return l.readOn(ctx, state.Last)
	}
	// Some are missed for good, or may be. Also an empty cache is purged, for what
	// is being fetched just now.
	last := position{state.Created, state.Last}
	again := l.emptied.Seq == last.Seq && l.emptied.Created.Equal(last.Created) // and that could not be kept, so it is tried at every look
	l.emptied = last
	if !again && !l.opts.Cache.Empty() {
		l.opts.Logger.Warn("this edge may have missed purges that nobody keeps any more: its cache is emptied",
			"known", known, "place", l.position.Seq, "first", state.First, "last", state.Last)
	}
	l.mu.Lock()
	err = l.opts.Cache.PurgeAll(ctx)
	l.mu.Unlock()
	if !again {
		l.purges.WithLabelValues(fromGap).Inc()
	}
	if err != nil {
		return err
	}
	return l.moveTo(last)
}

// readOn applies the purges up to last, all of which the stream held just now.
func (l *Listener) readOn(ctx context.Context, last uint64) error {
	for l.position.Seq < last {
		p, err := bus.DirectGetPage(ctx, l.opts.Conn, wire.StreamPurges, l.position.Seq+1, page, "")
		if err != nil {
			return err
		}
		next := l.position
		for _, m := range p.Messages {
			if m.Sequence != next.Seq+1 {
				return errors.New("a purge has left the stream just now") // the next look sees a gap
			}
			next.Seq = m.Sequence
			req, err := wire.Decode[wire.PurgeRequest](m.Data)
			if err != nil { // every edge has refused it
				continue
			}
			if reply := l.apply(ctx, fromStream, req); reply.Warning != "" {
				return errors.New(reply.Warning)
			}
		}
		if len(p.Messages) == 0 {
			return errors.New("the stream has no purges where it said so")
		}
		if err := l.moveTo(next); err != nil {
			return err
		}
	}
	return nil
}

// moveTo keeps the edge's place.
func (l *Listener) moveTo(p position) error {
	l.position = p
	return p.save(l.opts.Dir)
}
