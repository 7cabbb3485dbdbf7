package publish

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ccnq/ccnq/pkg/bus"
	"github.com/ccnq/ccnq/services/denylist/internal/lead"
	"github.com/ccnq/ccnq/services/denylist/internal/store"
)

const (
	// poll is how often changes are looked for that nobody told of.
	poll = 500 * time.Millisecond
	// look is how often [Publisher.Told] looks.
	look = 5 * time.Millisecond
	// pageSize is the number of changes that are published at once.
	pageSize = 1_000
	// ackTimeout bounds the wait for the acknowledgements of one page: those that
	// a connection lost never come.
	ackTimeout = 3 * time.Second
	maxRetry   = 2 * time.Second
	// lastTimeout bounds what is done when the work ends.
	lastTimeout = 2 * time.Second
)

// Options say what is published.
type Options struct {
	Conn  *bus.Conn
	Store store.Store
	// Wait returns once streams and bucket are there.
	Wait func(context.Context) error
	// Missing is told that one of them is not. It must not block.
	Missing func()
	// Monitor says that edges are not to enforce the blocks.
	Monitor  bool
	Logger   *slog.Logger
	Registry prometheus.Registerer
}

// Publisher publishes for one leader after the other. Make one with [New].
// [Publisher.Run] is for one goroutine at a time, the rest is safe for
// concurrent use.
type Publisher struct {
	opts      Options
	metrics   *metrics
	wakes     [2]chan struct{} // of the bucket and of the events
	compare   atomic.Bool      // bucket and tables are to be compared
	hold      sync.Mutex       // held while events are published
	failures  [2]atomic.Pointer[error]
	published publication
}

// The two ways of a change, as indices.
const (
	toBucket = iota
	toEvents
)

var names = [2]string{toBucket: "bucket", toEvents: "events"}

// New returns a publisher that does nothing yet.
func New(opts Options) *Publisher {
	p := &Publisher{opts: opts, metrics: newMetrics(opts.Registry)}
	for i := range p.wakes {
		p.wakes[i] = make(chan struct{}, 1)
	}
	return p
}

// Changed says that there may be changes to publish. It does not block.
func (p *Publisher) Changed() {
	for _, wake := range p.wakes {
		select {
		case wake <- struct{}{}:
		default:
		}
	}
}

// Compare asks for a comparison of all keys with the tables. It does not block.
func (p *Publisher) Compare() {
	p.compare.Store(true)
	p.Changed()
}

// Hold keeps events from being published until the function that it returns is
// called. Blocks still reach the bucket.
func (p *Publisher) Hold() (release func()) {
	p.hold.Lock()
	return p.hold.Unlock
}

// Err returns why something is not published now, or nil.
func (p *Publisher) Err() error {
	for i := range p.failures {
		if err := p.failures[i].Load(); err != nil {
			return *err
		}
	}
	return nil
}

// Told returns nil once the change of that version has been published as an
// event, or why that does not succeed, or the error of ctx.
func (p *Publisher) Told(ctx context.Context, version int64) error {
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		if p.published.through(toEvents) >= version {
			return nil
		}
		if err := p.failures[toEvents].Load(); err != nil {
			return *err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// Run publishes until ctx ends or the term does. When ctx ends it publishes
// what there is, for two seconds at most.
func (p *Publisher) Run(parent context.Context, term *lead.Term) {
	ctx, cancel := context.WithCancel(parent)
	defer cancel()
	var working sync.WaitGroup
	b, e := newBucket(p, term), newEvents(p, term)
	for i, step := range []func(context.Context) error{toBucket: b.step, toEvents: e.step} {
		working.Go(func() {
			defer cancel()
			p.repeat(ctx, i, term, step)
		})
	}
	working.Wait()
	b.comparing.Wait()
	if parent.Err() != nil && term.Valid() {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastTimeout)
		defer cancel()
		// What fails is published by the next leader.
		_ = b.feed.drain(last, all)
		_ = e.step(last)
	}
}

// repeat takes steps until ctx or the term ends.
func (p *Publisher) repeat(ctx context.Context, way int, term *lead.Term, step func(context.Context) error) {
	defer p.failures[way].Store(nil)
	tick := time.NewTicker(poll)
	defer tick.Stop()
	delay := poll
	for {
		err := p.opts.Wait(ctx)
		if err == nil && term.Valid() {
			err = step(ctx)
		}
		if ctx.Err() != nil || isOver(err) {
			return
		}
		if err != nil {
			p.fail(way, err)
			select {
			case <-ctx.Done():
				return
			case <-time.After(delay):
				delay = min(2*delay, maxRetry)
				continue
			}
		}
		delay = poll
		p.failures[way].Store(nil)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-p.wakes[way]:
		}
	}
}

// fail keeps and logs why something is not published.
func (p *Publisher) fail(way int, err error) {
	last := p.failures[way].Swap(&err)
	p.metrics.failures[way].Inc()
	if isMissing(err) {
		p.opts.Missing()
	}
	if last == nil || (*last).Error() != err.Error() {
		p.opts.Logger.Warn("changes of blocks are not published now; trying on", "to", names[way], "error", err)
	}
}
