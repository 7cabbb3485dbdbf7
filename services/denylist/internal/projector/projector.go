package projector

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/ccnq/ccnq/pkg/bus"
	"github.com/ccnq/ccnq/pkg/wire"
	"github.com/ccnq/ccnq/services/denylist/internal/store"
)

const (
	// waitNew is how long one read waits at the end of the stream.
	waitNew = 500 * time.Millisecond
	// maxMessages is the greatest number of messages in a batch: what one read
	// of the stream gives.
	maxMessages = 1_000
	minRetry    = 250 * time.Millisecond
	maxRetry    = 2 * time.Second
	// resetRenew is how many blocks are published again in one step.
	resetRenew = 1_000
)

// Options say what is projected.
type Options struct {
	Conn  *bus.Conn
	Store store.Store
	// Wait returns once the stream is there.
	Wait func(context.Context) error
	// Missing is told that the stream is not there. It must not block.
	Missing func()
	// Changed is told that blocks changed. It must not block.
	Changed func()
	// Hold keeps events about blocks from being published until the function
	// that it returns is called.
	Hold func() (release func())
	// Rebuilt is told that the tables were made anew, and the readers' copies
	// must be compared with them.
	Rebuilt  func()
	Logger   *slog.Logger
	Registry prometheus.Registerer
}

// Projector applies the stream for one leader after the other. Make one with
// [New]. [Projector.Run] is for one goroutine at a time, the rest is safe for
// concurrent use.
type Projector struct {
	opts    Options
	metrics *metrics
	limit   int // messages in the next batch
	aside   asideLog
	asked   atomic.Bool
	failure atomic.Pointer[error] // why nothing is applied now
}

// New returns a projector that does nothing yet.
func New(opts Options) *Projector {
	return &Projector{opts: opts, metrics: newMetrics(opts.Registry), limit: maxMessages, aside: asideLog{logger: opts.Logger}}
}

// Err returns why events are not applied now, or nil.
func (p *Projector) Err() error {
	if err := p.failure.Load(); err != nil {
		return *err
	}
	return nil
}

// Rebuild asks the leader to make the tables anew. It is false if that has been
// asked already.
func (p *Projector) Rebuild() bool { return p.asked.CompareAndSwap(false, true) }

// Run applies the stream until ctx ends or the epoch is no longer that of the
// leader. It calls begun once the store is on the present stream.
func (p *Projector) Run(ctx context.Context, epoch int64, begun func()) {
	defer func() {
		p.fail(nil)
		p.aside.flush()
		p.asked.Store(false) // whoever leads next has not been asked
	}()
	delay := minRetry
	for {
		if p.opts.Wait(ctx) != nil {
			return
		}
		applied, err := p.follow(ctx, epoch, begun)
		if ctx.Err() != nil || errors.Is(err, store.ErrNotLeader) {
			return
		}
		if applied {
			delay = minRetry
		}
		if err == nil {
			continue
		}
		p.fail(err)
		if errors.Is(err, bus.ErrNotFound) || errors.Is(err, bus.ErrNoResponders) {
			p.opts.Missing()
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(delay):
			delay = min(2*delay, maxRetry)
		}
	}
}

// fail keeps and logs why nothing is applied, and nil that all is well.
func (p *Projector) fail(err error) {
	var last error
	if before := p.failure.Load(); before != nil {
		last = *before
	}
	if err == nil {
		p.failure.Store(nil)
		return
	}
	p.failure.Store(&err)
	p.metrics.failures.Inc()
	if last == nil || last.Error() != err.Error() {
		p.opts.Logger.Warn("events are not applied now; trying on", "error", err)
	}
}

// follow applies the stream from the checkpoint on, until something is in the
// way. It reports whether it applied anything.
func (p *Projector) follow(ctx context.Context, epoch int64, begun func()) (applied bool, err error) {
	at, err := p.opts.Store.Checkpoint(ctx)
	if err != nil {
		return false, err
	}
	reader, err := bus.OpenReader(ctx, p.opts.Conn, wire.StreamEvents, at.Seq+1, deniedSubjects...)
	if err != nil {
		return false, err
	}
	defer reader.Close(context.WithoutCancel(ctx))
	stream := reader.Stream()
	switch {
	case at.Created.IsZero():
		return false, p.restore(ctx, epoch, stream)
	case !at.Of(stream.Created):
		return false, p.reset(ctx, epoch, stream, "it was made anew")
	case at.Seq > stream.Last:
		return false, p.reset(ctx, epoch, stream, "it ends before the checkpoint")
	}
	begun()
	p.fail(nil)
	ctx, cancel := context.WithCancel(ctx)
	pages := read(ctx, reader, at)
	defer func() {
		cancel()
		for range pages { // until the reader is no longer used
			continue
		}
	}()
	for page := range pages {
		if p.asked.Load() {
			err := p.rebuild(ctx, epoch, at)
			if err == nil || errors.Is(err, store.ErrNotLeader) {
				p.asked.Store(false)
			}
			return applied, err
		}
		for len(page.messages) > 0 {
			p.metrics.lag.Set(float64(len(page.messages)) + float64(page.behind))
			n, err := p.apply(ctx, epoch, at, &page)
			if err != nil {
				return applied, err
			}
			applied = true
			at.Seq = page.messages[n-1].Sequence
			page.drop(n)
		}
		p.aside.tell()
		p.metrics.lag.Set(float64(page.behind))
		if page.err != nil {
			return applied, page.err
		}
	}
	return applied, ctx.Err()
}

// apply applies the first messages of a page, and returns how many. If there
// was too much in them, or one that the store cannot take, the next attempt is
// about half as many, until that one is found.
func (p *Projector) apply(ctx context.Context, epoch int64, at store.Checkpoint, page *page) (int, error) {
	n := min(len(page.messages), p.limit)
	b := page.first(n)
	result, err := p.opts.Store.Apply(ctx, epoch, at, b)
	if err != nil && n == 1 && isContent(err) {
		b = store.Batch{Next: b.Next, Quarantined: []store.Quarantined{aside(page.messages[0], err)}}
		result, err = p.opts.Store.Apply(ctx, epoch, at, b)
	}
	if err != nil {
		if ctx.Err() == nil && (isContent(err) || isTooMuch(err)) {
			p.limit = max(1, n/2)
		}
		return 0, err
	}
	p.limit = min(2*p.limit, maxMessages)
	p.metrics.add(result, len(b.Quarantined))
	if result.Changes > 0 {
		p.opts.Changed()
	}
	p.aside.add(b.Quarantined)
	return n, nil
}

// isContent reports whether a store refused a batch for what is in it (the
// classes 22, 23 and 54 of SQLSTATE).
func isContent(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (strings.HasPrefix(pg.Code, "22") || strings.HasPrefix(pg.Code, "23") || strings.HasPrefix(pg.Code, "54"))
}

// isTooMuch reports whether a store had not the time or the room for a batch (a
// cancelled statement, and the class 53 of SQLSTATE), so that a smaller one may
// pass. A database that cannot be reached is no reason for smaller ones.
func isTooMuch(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (pg.Code == "57014" || strings.HasPrefix(pg.Code, "53"))
}

// reset begins at the start of another stream.
func (p *Projector) reset(ctx context.Context, epoch int64, stream bus.StreamState, why string) error {
	p.opts.Logger.Warn("another event stream; beginning at its start", "why", why, "created", stream.Created)
	if err := p.announce(ctx, stream, why); err != nil {
		return err
	}
	if err := p.opts.Store.Reset(ctx, epoch, stream.Created); err != nil {
		return err
	}
	p.metrics.resets.Inc()
	now := time.Now()
	for {
		n, err := p.opts.Store.Renew(ctx, epoch, now, resetRenew)
		p.opts.Changed()
		if err != nil || n < resetRenew {
			return err
		}
	}
}

// announce publishes a stream-reset event.
func (p *Projector) announce(ctx context.Context, stream bus.StreamState, why string) error {
	id := fmt.Sprintf("stream-reset-%d", stream.Created.UnixNano())
	event := wire.NewEvent(id, wire.DenylistSource, wire.TypeStreamReset, "", time.Now(),
		wire.StreamReset{Created: stream.Created.UTC(), Why: why})
	payload, err := json.Marshal(event)
	if err != nil {
		return err
	}
	return bus.PublishAcked(ctx, p.opts.Conn, wire.SubjectStreamReset, payload, id)
}
