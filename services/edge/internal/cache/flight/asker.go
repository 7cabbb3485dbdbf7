package flight

import (
	"context"
	"errors"
	"io"
)

// Errors of [Asker.Next].
var (
	// ErrBroken means that the fetch ended before the body did.
	ErrBroken = errors.New("the fetch broke off")
	// ErrTooSlow means that the reader held up others for too long.
	ErrTooSlow = errors.New("a slow reader held up others")
)

// ErrUnwanted is why the context of a fetch ends that failed, see [Feed.Fail], when
// everybody has left it.
var ErrUnwanted = errors.New("nobody wants the rest of the body")

// News is what an asker waits for.
type News int

// What [Asker.Await] returns.
const (
	// HeadCame means that [Asker.Head] and the body are this asker's to read.
	HeadCame News = iota
	// InterimCame means that [Asker.Interim] has something ahead of the head. Only
	// who leads is told.
	InterimCame
	// Refused means that the queue refused this asker, see [Asker.Seat].
	Refused
	// LetGo means that the flight brings nothing for this asker, see
	// [Asker.Reason].
	LetGo
)

// Errand is what a flight does for an asker, in another goroutine.
type Errand[H any] interface {
	// Board asks the queue for a place, until ctx ends. It may be called after the
	// asker has left.
	Board(ctx context.Context) Seat
	// Fetch makes the fetch and reports whether it is complete. It is called once at
	// most. The seat is given back when it returns.
	Fetch(ctx context.Context, seat Seat, feed *Feed[H]) (complete bool)
	// Over is called once, without a lock, when the flight that the asker led has
	// ended and everybody has left it.
	Over()
}

// Asker is one request that wants what a flight brings. The exported fields are
// set before [Table.Join] and not changed. Its methods are called by one
// goroutine, after Join.
type Asker[H any] struct {
	// Context is the request's. Its values are the fetch's too.
	Context context.Context //nolint:containedctx // as in http.Request
	// Lane is whom it shares a place in the queue with.
	Lane Lane
	// Errand is done for it, or for the one of its lane who leads.
	Errand Errand[H]

	flight *flight[H]

	// Guarded by the flight's lock.
	index   int
	lane    *lane[H] // in which it waits; nil when it waits in none
	seat    Seat
	refused bool
	cut     bool
	seen    int   // of the interim heads
	offset  int64 // in the body
}

// Await waits for news. Its error is that of ctx, when that ends first.
func (a *Asker[H]) Await(ctx context.Context) (News, error) {
	f := a.flight
	for {
		f.mu.Lock()
		news, ok := a.newsLocked()
		if ok {
			f.mu.Unlock()
			return news, nil
		}
		more := f.news()
		f.mu.Unlock()
		select {
		case <-more:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}

func (a *Asker[H]) newsLocked() (News, bool) {
	f := a.flight
	leads := f.leader == a
	switch {
	case a.refused:
		return Refused, true
	case f.reason != nil && !(leads && f.hasHead):
		return LetGo, true
	case leads && a.seen < len(f.interim):
		a.seen++
		return InterimCame, true
	case f.hasHead && (leads || f.shared):
		return HeadCame, true
	case f.ended:
		return LetGo, true
	}
	return 0, false
}

// Head is the head of what came, after [HeadCame].
func (a *Asker[H]) Head() H {
	f := a.flight
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.head
}

// Interim is what came ahead of the head, after [InterimCame].
func (a *Asker[H]) Interim() H {
	f := a.flight
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.interim[a.seen-1]
}

// Seat is what the queue said to this asker; the zero value if it was not asked
// on its behalf, or has not answered.
func (a *Asker[H]) Seat() Seat {
	f := a.flight
	f.mu.Lock()
	defer f.mu.Unlock()
	return a.seat
}

// Leads reports whether the fetch is made with this asker's request.
func (a *Asker[H]) Leads() bool {
	f := a.flight
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.leader == a
}

// Reason says why the asker was let go: what [Feed.Alone] or [Feed.Fail] was
// given, or [ErrBroken].
func (a *Asker[H]) Reason() error {
	f := a.flight
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.reason != nil {
		return f.reason
	}
	return ErrBroken
}

// Next returns the next piece of the body, which stays valid until the asker
// leaves, waiting for it if need be. Before it waits it calls idle, if that is
// not nil. At the end it returns [io.EOF]; other errors are [ErrBroken],
// [ErrTooSlow] and that of ctx.
func (a *Asker[H]) Next(ctx context.Context, idle func()) ([]byte, error) {
	f := a.flight
	for {
		f.mu.Lock()
		if a.cut {
			f.mu.Unlock()
			return nil, ErrTooSlow
		}
		if piece := f.body.read(a.offset); piece != nil {
			a.offset += int64(len(piece))
			f.mu.Unlock()
			f.poke()
			return piece, nil
		}
		if f.ended {
			complete := f.complete
			f.mu.Unlock()
			if complete {
				return nil, io.EOF
			}
			return nil, ErrBroken
		}
		more := f.news()
		f.mu.Unlock()
		if idle != nil {
			idle()
			idle = nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// Whole returns how long the body is, if all of it is there.
func (a *Asker[H]) Whole() (size int64, ok bool) {
	f := a.flight
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.body.produced, f.ended && f.complete
}

// Keep lets the fetch go on to its end, or to the limit of an item, even if
// nobody reads: what it brings is wanted for later.
func (a *Asker[H]) Keep() {
	f := a.flight
	f.mu.Lock()
	f.keep = true
	f.mu.Unlock()
	f.poke()
}

// Leave ends the asker's part. It is called once.
func (a *Asker[H]) Leave() { a.flight.leave(a) }
