package denylist

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ccnq/ccnq/pkg/admin"
	"github.com/ccnq/ccnq/pkg/bus"
	"github.com/ccnq/ccnq/pkg/wire"
)

const (
	// upkeepEvery is how often the list looks after itself.
	upkeepEvery = time.Second
	// sweepEvery is how many times of upkeep pass between two sweeps.
	sweepEvery = 60
	// markOverdue is how long the list waits for a live mark before it reads the
	// newest one.
	markOverdue = 15 * time.Second
	// defaultReadyWithin is the default of Options.ReadyWithin.
	defaultReadyWithin = 15 * time.Second
)

// Options say how a list is kept.
type Options struct {
	// Conn is the connection to NATS. Required. It may be down.
	Conn *bus.Conn
	// ReadyWithin is how long the edge waits for the first reading of the blocks
	// before it serves without; 0 means 15 s.
	ReadyWithin time.Duration
	// Registerer receives the metrics. Required.
	Registerer prometheus.Registerer
	// Logger is required.
	Logger *slog.Logger
}

// List is the edge's copy of the blocks in force. Its methods are safe for
// concurrent use.
type List struct {
	opts    Options
	table   *Table
	metrics *metrics
	started time.Time
	monitor atomic.Bool
	read    atomic.Bool // the bucket has been read once

	mu       sync.Mutex // guards what follows
	mark     wire.Mark  // the newest; no generation before the first
	markAt   time.Time  // when it was seen
	differs  int        // marks in a row whose counts differ; negative right after a reading
	cause    string     // why the bucket is to be read again; empty if it is not
	refused  time.Time  // when a refused message was last logged
	problem  string     // what keeps the bucket from being read
	overDone int        // readings in a row because of counts

	again chan struct{} // rung when cause is set
	stop  context.CancelFunc
	done  sync.WaitGroup
}

// New makes a list that knows no blocks yet. Call Start, and Stop at the end.
func New(opts Options) *List {
	if opts.ReadyWithin == 0 {
		opts.ReadyWithin = defaultReadyWithin
	}
	l := &List{opts: opts, table: NewTable(), started: time.Now(), again: make(chan struct{}, 1), stop: func() {}}
	l.monitor.Store(true)
	l.metrics = newMetrics(opts.Registerer, l)
	return l
}

// Check is [Table.Check].
func (l *List) Check(addr netip.Addr, now time.Time) (until time.Time, blocked bool) {
	return l.table.Check(addr, now)
}

// Monitor reports whether blocks are to be counted and not enforced, as the
// newest mark says. Before the first mark they are not: a block that is heard
// earlier may be of a service that only counts.
func (l *List) Monitor() bool { return l.monitor.Load() }

// Status is not ready until the blocks were read or Options.ReadyWithin has
// passed since New, and degraded while the list may be incomplete or stale.
func (l *List) Status() admin.Status {
	l.mu.Lock()
	problem := l.problem
	l.mu.Unlock()
	switch {
	case !l.read.Load():
		reason := "the blocks have not been read"
		if problem != "" {
			reason += ": " + problem
		}
		if time.Since(l.started) < l.opts.ReadyWithin {
			return admin.NotReady(reason)
		}
		return admin.Degraded(reason + "; nobody unknown is refused")
	case !l.opts.Conn.Connected():
		return admin.Degraded("NATS is away: the last known blocks are in force")
	case problem != "":
		return admin.Degraded("the last known blocks are in force: " + problem)
	}
	return admin.OK
}

// Start begins to follow the bucket.
func (l *List) Start() error {
	watch, err := bus.WatchSubject(l.opts.Conn, wire.SubjectBlocks, l.live)
	if err != nil {
		return fmt.Errorf("denylist: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	l.stop = func() {
		cancel()
		watch.Stop()
	}
	l.readAgain("start")
	l.done.Go(func() { l.follow(ctx, watch) })
	return nil
}

// Stop ends it. Checks still answer. It may be called twice.
func (l *List) Stop() {
	l.stop()
	l.done.Wait()
}

// readAgain asks for a complete reading.
func (l *List) readAgain(cause string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ask(cause)
}

// ask is readAgain for who holds mu.
func (l *List) ask(cause string) {
	if l.cause == "" {
		l.cause = cause
	}
	select {
	case l.again <- struct{}{}:
	default:
	}
}

// live handles one message of the bucket as it is written.
func (l *List) live(m bus.StreamMessage) {
	name := wire.KVKey(m.Subject)
	if name == wire.KeyMark {
		l.liveMark(m)
		return
	}
	scope, target, err := wire.ParseBlockKey(name)
	if err != nil {
		l.refuse(err)
		return
	}
	if m.Deleted {
		l.table.remove(scope, target)
		return
	}
	b, err := wire.DecodeBlock(m.Data)
	if err != nil {
		l.refuse(fmt.Errorf("%s: %w", name, err))
		return
	}
	if !l.table.put(newChange(scope, target, b)) {
		return
	}
	// Of a block that just began the delay since then is known; an extension or
	// a block that is published again says nothing.
	if delay := time.Since(b.Since); delay >= 0 && delay < time.Minute {
		l.metrics.delay.Observe(delay.Seconds())
	}
}

func (l *List) liveMark(m bus.StreamMessage) {
	if m.Deleted {
		return
	}
	mark, err := wire.Decode[wire.Mark](m.Data)
	if err != nil {
		l.refuse(fmt.Errorf("%s: %w", wire.KeyMark, err))
		return
	}
	l.compare(mark)
}

// compare asks for a reading if the table differs from the mark.
func (l *List) compare(mark wire.Mark) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if mark.Generation == l.mark.Generation && (mark.Version < l.mark.Version || mark.Written.Before(l.mark.Written)) {
		return // of a service that does not lead any more
	}
	l.mark, l.markAt = mark, time.Now()
	if l.monitor.Swap(mark.Monitor) != mark.Monitor {
		l.opts.Logger.Info("blocks are enforced or only counted, as the denylist service says", "monitor", mark.Monitor)
	}
	now := l.table.state(mark.Written)
	switch {
	case !l.read.Load(): // it is being read anyway
	case now.generation != mark.Generation:
		l.ask("new generation")
	case now.version < mark.Version:
		l.ask("fell behind")
	case now.version > mark.Version: // newer than the mark: nothing to compare
	case now.ips.fits(mark.IPs) && now.ranges.fits(mark.Ranges):
		l.differs, l.overDone = 0, 0
	default:
		// A mark may have been made while changes were on their way; two in a
		// row may not. A difference that stays is looked at ever more rarely.
		if l.differs++; l.differs >= 2<<min(l.overDone, 8) {
			l.differs = 0
			l.overDone++
			l.ask("counts differ")
		}
	}
}

// refuse counts a message that does not decode, and logs one in ten seconds.
func (l *List) refuse(err error) {
	l.metrics.refused.Inc()
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Since(l.refused) < 10*time.Second {
		return
	}
	l.refused = time.Now()
	l.opts.Logger.Warn("a message in the bucket of the blocks is refused", "error", err)
}

// follow reads the bucket when asked to, and looks after the list.
func (l *List) follow(ctx context.Context, watch *bus.Watch) {
	upkeep := time.NewTicker(upkeepEvery)
	defer upkeep.Stop()
	lost, breaks := 0, watch.Reconnects()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-l.again:
			l.readUntilDone(ctx)
			continue
		case <-upkeep.C:
		}
		if now := watch.Lost(); now > lost {
			lost = now
			l.readAgain("could not keep up")
		}
		if now := watch.Reconnects(); now > breaks {
			breaks = now
			l.readAgain("reconnected")
		}
		if n%sweepEvery == 0 {
			l.table.sweep(time.Now())
		}
		l.lookForMark(ctx)
	}
}

// lookForMark reads the newest mark when no live one has come for long.
func (l *List) lookForMark(ctx context.Context) {
	l.mu.Lock()
	overdue := l.read.Load() && time.Since(l.markAt) > markOverdue
	l.mu.Unlock()
	if !overdue {
		return
	}
	if mark, err := l.readMark(ctx); err == nil {
		l.compare(mark)
	}
}
