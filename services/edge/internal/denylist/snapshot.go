package denylist

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ccnq/ccnq/pkg/bus"
	"github.com/ccnq/ccnq/pkg/wire"
)

const (
	// pageMessages is how many messages are read at once.
	pageMessages = 20_000
	pageTimeout  = 30 * time.Second
	markTimeout  = 2 * time.Second
	// After a reading that failed the next one waits this long, twice as long
	// each time.
	firstPause = 100 * time.Millisecond
	lastPause  = 5 * time.Second
)

// Why a reading does not count.
var (
	errNoMark  = errors.New("the bucket has no mark: the denylist service has not filled it yet")
	errChanged = errors.New("the bucket was made anew while it was read")
	errShort   = errors.New("the bucket holds fewer blocks than its mark says")
)

// readUntilDone reads the bucket until that succeeds or ctx ends.
func (l *List) readUntilDone(ctx context.Context) {
	l.mu.Lock()
	cause := l.cause
	l.cause = ""
	l.mu.Unlock()
	if cause == "" {
		return
	}
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		began := time.Now()
		err := l.snapshot(ctx)
		if ctx.Err() != nil {
			return
		}
		l.metrics.readings.WithLabelValues(outcome(err)).Inc()
		if err == nil {
			l.finish(cause, time.Since(began))
			return
		}
		l.mu.Lock()
		if l.problem != err.Error() {
			l.problem = err.Error()
			if l.read.Load() || time.Since(l.started) >= l.opts.ReadyWithin {
				l.opts.Logger.Warn("the blocks cannot be read: the known ones stay in force", "cause", cause, "error", err)
			} else { // the service may be starting too
				l.opts.Logger.Info("the blocks cannot be read yet", "cause", cause, "error", err)
			}
		}
		l.mu.Unlock()
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

func (l *List) finish(cause string, took time.Duration) {
	l.metrics.reading.Observe(took.Seconds())
	l.mu.Lock()
	l.problem = ""
	l.differs = -1 // the next mark may be older than what was read
	l.mu.Unlock()
	l.read.Store(true)
	s := l.table.state(time.Now())
	l.opts.Logger.Info("the blocks were read", "cause", cause, "ips", s.ips.most, "ranges", s.ranges.most,
		"version", s.version, "seconds", took.Seconds())
}

// snapshot reads all of the bucket beside the table and swaps it in.
func (l *List) snapshot(ctx context.Context) error {
	// The server has the live subscription before anything is read.
	ping, cancel := context.WithTimeout(ctx, markTimeout)
	defer cancel()
	if err := l.opts.Conn.Ping(ping); err != nil {
		return err
	}
	first, err := l.readMark(ctx)
	if err != nil {
		return err
	}
	v := l.table.begin()
	defer l.table.abandon()
	if err := l.readPages(ctx, v); err != nil {
		return err
	}
	last, err := l.readMark(ctx)
	if err != nil {
		return err
	}
	if first.Generation != last.Generation {
		return errChanged
	}
	l.compareMark(last)
	built := l.table.stateOf(v, last.Written)
	if short(built.ips, last.IPs) || short(built.ranges, last.Ranges) {
		// It is being filled: lifting what is not there yet would be wrong.
		l.table.merge(v)
		return fmt.Errorf("%w: %d of %d addresses, %d of %d ranges",
			errShort, built.ips.most, last.IPs, built.ranges.most, last.Ranges)
	}
	l.table.swap(v, first.Generation, first.Version)
	return nil
}

// compareMark keeps a mark that was read, not heard.
func (l *List) compareMark(mark wire.Mark) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mark, l.markAt = mark, time.Now()
	l.monitor.Store(mark.Monitor)
}

// short reports whether far fewer blocks were read than the mark says. Those
// that ended since it was written may be gone: a few, or one in a hundred.
func short(read count, marked int) bool { return read.most < marked-marked/100-10 }

// readMark returns the newest mark.
func (l *List) readMark(ctx context.Context) (wire.Mark, error) {
	ctx, cancel := context.WithTimeout(ctx, markTimeout)
	defer cancel()
	m, err := bus.DirectGetLast(ctx, l.opts.Conn, wire.StreamBlocks, wire.KVSubject(wire.KeyMark))
	if errors.Is(err, bus.ErrNotFound) || err == nil && m.Deleted {
		return wire.Mark{}, errNoMark
	}
	if err != nil {
		return wire.Mark{}, err
	}
	return wire.Decode[wire.Mark](m.Data)
}

// readPages fills v with all of the bucket. The next page is on its way while
// one is decoded.
func (l *List) readPages(ctx context.Context, v *view) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	pages := make(chan bus.Page)
	failed := make(chan error, 1)
	go func() {
		defer close(pages)
		failed <- l.fetch(ctx, pages)
	}()
	for page := range pages {
		changes := make([]change, 0, len(page.Messages))
		for _, m := range page.Messages {
			if c, ok := l.decode(m); ok {
				changes = append(changes, c)
			}
		}
		l.table.fill(v, changes)
	}
	return <-failed
}

// fetch hands over all pages of the bucket in order.
func (l *List) fetch(ctx context.Context, pages chan<- bus.Page) error {
	for next, done := uint64(1), false; !done; {
		page, err := l.readPage(ctx, next)
		if err != nil {
			return err
		}
		select {
		case pages <- page:
		case <-ctx.Done():
			return ctx.Err()
		}
		next, done = page.Next, page.Done
	}
	return nil
}

func (l *List) readPage(ctx context.Context, from uint64) (bus.Page, error) {
	ctx, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	return bus.DirectGetPage(ctx, l.opts.Conn, wire.StreamBlocks, from, pageMessages, "")
}

// decode reads a message of a page; false if it is none of a block.
func (l *List) decode(m bus.StreamMessage) (change, bool) {
	name := wire.KVKey(m.Subject)
	if name == wire.KeyMark || m.Deleted {
		return change{}, false
	}
	scope, target, err := wire.ParseBlockKey(name)
	if err != nil {
		l.refuse(err)
		return change{}, false
	}
	b, err := wire.DecodeBlock(m.Data)
	if err != nil {
		l.refuse(fmt.Errorf("%s: %w", name, err))
		return change{}, false
	}
	return newChange(scope, target, b), true
}

// outcome is the label of a reading.
func outcome(err error) string {
	switch {
	case err == nil:
		return "read"
	case errors.Is(err, errNoMark):
		return "no mark"
	case errors.Is(err, errShort):
		return "incomplete"
	}
	return "failed"
}
