package qoscluster

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/ccnq/ccnq/pkg/bus"
	"github.com/ccnq/ccnq/pkg/qos"
	"github.com/ccnq/ccnq/pkg/wire"
)

const (
	// lookEvery is how often the store looks whether it missed something.
	lookEvery = time.Second
	// markOverdue is how long the store waits for a mark before it says so, and reads
	// the stream for it.
	markOverdue = 10 * time.Second
	readTimeout = 5 * time.Second
	// pageMessages is how many messages are read at once.
	pageMessages = 256
	// A reading that failed is repeated after the first pause, then after twice as
	// long, and so on up to the longest, when it is also said.
	firstPause, longestPause = 250 * time.Millisecond, 8 * time.Second
	// maxBytes bounds the pieces that are kept while the mark is not there.
	maxBytes = 128 << 20
	// refusedEvery is the time between two log lines about refused messages.
	refusedEvery = 10 * time.Second
)

// lists are what is heard of the blocklists.
type lists struct {
	apply func(*qos.Blocklists)
	again chan struct{} // rung when the stream is to be read

	firstPause, longestPause time.Duration

	applying sync.Mutex   // held while lists are handed on
	applied  wire.QoSMark // the newest that was handed on; of applying

	mu       sync.Mutex
	pieces   map[string]piece // by subject, the newest that came
	bytes    int
	mark     wire.QoSMark // of the newest lists that are whole
	markedAt time.Time    // when any mark was heard
	refused  time.Time
}

// piece is one part of the lists, and its size as a message.
type piece struct {
	wire.QoSLists
	bytes int
}

// Start begins to hand the blocklists to apply, one after the other.
func (s *Store) Start(apply func(*qos.Blocklists)) error {
	s.lists.apply = apply
	s.lists.pieces = map[string]piece{}
	watch, err := bus.WatchSubject(s.opts.Conn, wire.SubjectQoSLists, func(m bus.StreamMessage) { s.hear(m, true) })
	if err != nil {
		return fmt.Errorf("blocklists of the load-aware limits: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.stop = func() {
		cancel()
		watch.Stop()
	}
	s.readAgain()
	s.done.Go(func() { s.follow(ctx, watch) })
	return nil
}

// Stop ends it. It may be called twice, and without a Start.
func (s *Store) Stop() {
	s.stop()
	s.done.Wait()
}

// Err is [bus.ErrDisconnected], or [ErrNoLists], or nil while all is well.
func (s *Store) Err() error {
	if !s.opts.Conn.Connected() {
		return bus.ErrDisconnected
	}
	s.lists.mu.Lock()
	defer s.lists.mu.Unlock()
	if s.lists.markedAt.IsZero() || time.Since(s.lists.markedAt) > markOverdue {
		return ErrNoLists
	}
	return nil
}

func (s *Store) readAgain() {
	select {
	case s.lists.again <- struct{}{}:
	default:
	}
}

// follow reads the stream when something may have been missed.
func (s *Store) follow(ctx context.Context, watch *bus.Watch) {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	lost, breaks := 0, watch.Reconnects()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.lists.again:
			s.read(ctx)
			continue
		case <-look.C:
		}
		nowLost, nowBreaks := watch.Lost(), watch.Reconnects()
		if nowLost != lost || nowBreaks != breaks || s.Err() == ErrNoLists { //nolint:errorlint // it is never wrapped
			lost, breaks = nowLost, nowBreaks
			s.read(ctx)
		}
	}
}

// read reads the stream, until that succeeds or the connection is gone: then it will
// be asked for again. A mark whose pieces were missed is a reason to try at once.
func (s *Store) read(ctx context.Context) {
	pause, said := s.lists.firstPause, false
	for s.opts.Conn.Connected() && ctx.Err() == nil {
		err := s.readPages(ctx)
		if err == nil || ctx.Err() != nil {
			return
		}
		if pause >= s.lists.longestPause && !said {
			said = true
			s.opts.Logger.Warn("the blocklists of the load-aware limits cannot be read from the stream: "+
				"those heard last are in force", "stream", wire.StreamQoSLists, "error", err)
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-s.lists.again:
		case <-ctx.Done():
		}
		timer.Stop()
		pause = min(2*pause, s.lists.longestPause)
	}
}

func (s *Store) readPages(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	if err := s.opts.Conn.Ping(ctx); err != nil { // the server has the live subscription
		return err
	}
	for next, done := uint64(1), false; !done; {
		page, err := bus.DirectGetPage(ctx, s.opts.Conn, wire.StreamQoSLists, next, pageMessages, "")
		if err != nil {
			return err
		}
		for _, m := range page.Messages {
			s.hear(m, false)
		}
		next, done = page.Next, page.Done
	}
	return nil
}

// hear takes a message of the stream, as it is written or read later.
func (s *Store) hear(m bus.StreamMessage, live bool) {
	if m.Deleted {
		return
	}
	if m.Subject != wire.SubjectQoSMark {
		p, err := wire.Decode[wire.QoSLists](m.Data)
		if err != nil {
			s.refuse(m.Subject, err)
			return
		}
		s.keep(m.Subject, piece{p, len(m.Data)})
		return
	}
	mark, err := wire.Decode[wire.QoSMark](m.Data)
	if err != nil {
		s.refuse(m.Subject, err)
		return
	}
	if !s.take(mark) && live {
		s.readAgain() // a piece was missed
	}
}

// keep remembers a piece until its mark comes.
func (s *Store) keep(subject string, p piece) {
	l := &s.lists
	l.mu.Lock()
	defer l.mu.Unlock()
	is, ok := l.pieces[subject]
	if is.mark().Newer(p.mark()) || !p.mark().Newer(l.mark) {
		return
	}
	if !ok && len(l.pieces) == wire.MaxQoSPieces || l.bytes+p.bytes-is.bytes > maxBytes {
		return // no such lists are published
	}
	l.bytes += p.bytes - is.bytes
	l.pieces[subject] = p
}

// mark is that of the lists of the piece, as far as the piece knows it.
func (p piece) mark() wire.QoSMark { return wire.QoSMark{Term: p.Term, Version: p.Version} }

// take puts the lists of a mark in force, unless they are old. It reports false if
// pieces of them are missing.
func (s *Store) take(mark wire.QoSMark) bool {
	whole, complete := s.assemble(mark)
	if whole == nil {
		return complete
	}
	// Making tables of long lists takes a while, for which nobody else waits but who
	// has newer ones. Those may have come first.
	l := &s.lists
	l.applying.Lock()
	defer l.applying.Unlock()
	if mark.Newer(l.applied) {
		l.applied = mark
		l.apply(whole)
	}
	return true
}

// assemble joins the pieces of a mark, nil if it is old or pieces are missing; in the
// latter case it reports false.
func (s *Store) assemble(mark wire.QoSMark) (_ *qos.Blocklists, complete bool) {
	l := &s.lists
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mark.Newer(mark) {
		return nil, true
	}
	l.markedAt = time.Now()
	if !mark.Newer(l.mark) {
		return nil, true
	}
	whole := new(qos.Blocklists)
	for i := range mark.Pieces {
		p, ok := l.pieces[wire.QoSPieceSubject(i)]
		if !ok || p.Term != mark.Term || p.Version != mark.Version {
			return nil, false
		}
		whole.IPs = append(whole.IPs, p.IPs...)
		whole.Subnets = append(whole.Subnets, p.Subnets...)
		whole.Hosts = append(whole.Hosts, p.Hosts...)
	}
	l.mark = mark
	clear(l.pieces)
	l.bytes = 0
	return whole, true
}

// refuse logs a message that is not valid, one in ten seconds.
func (s *Store) refuse(subject string, err error) {
	l := &s.lists
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); now.Sub(l.refused) >= refusedEvery {
		l.refused = now
		s.opts.Logger.Warn("a message about the blocklists of the load-aware limits is refused",
			"subject", strings.ToValidUTF8(subject, "?"), "error", err)
	}
}
