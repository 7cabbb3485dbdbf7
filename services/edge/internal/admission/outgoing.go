package admission

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/ccnq/ccnq/pkg/bus"
	"github.com/ccnq/ccnq/pkg/wire"
)

const (
	// senders is the number of messages of one kind under way at once; the
	// releases that gather meanwhile go as one message. There are enough of
	// them that a few groups which are locked in the store hold up no others.
	senders = 8
	// retryWait is the pause before a message that was answered with an error
	// is sent again.
	retryWait = 250 * time.Millisecond
	// maxOutgoing bounds what waits to be sent, of each kind. What is dropped
	// beyond it the store frees by itself, since no status lists it.
	maxOutgoing = 100_000
)

// outgoing sends releases and cancels until they are acknowledged.
type outgoing struct {
	gate    *Gate
	stopped chan struct{} // closed when nothing is sent any more

	mu       sync.Mutex
	releases pile
	cancels  pile
	inFlight int           // tickets
	empty    chan struct{} // closed when nothing is left to send; nil while nobody waits for that
}

// pile is what waits to be sent of one kind.
type pile struct {
	tickets []*Ticket
	wake    chan struct{}
}

func newOutgoing(g *Gate) *outgoing {
	return &outgoing{
		gate:     g,
		stopped:  make(chan struct{}),
		releases: pile{wake: make(chan struct{}, senders)},
		cancels:  pile{wake: make(chan struct{}, senders)},
	}
}

// release gives back the place of a ticket that is over.
func (o *outgoing) release(t *Ticket) {
	o.gate.groups.freed(t.group.prefix)
	o.add(&o.releases, t)
}

// cancel takes back a ticket whose place in the store is not known.
func (o *outgoing) cancel(t *Ticket) { o.add(&o.cancels, t) }

func (o *outgoing) add(p *pile, tickets ...*Ticket) {
	o.mu.Lock()
	p.tickets = append(p.tickets, tickets...)
	if over := len(p.tickets) - maxOutgoing; over > 0 {
		o.gate.metrics.dropped.Add(float64(over))
		p.tickets = p.tickets[over:]
	}
	o.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default: // as many senders as there are will look
	}
}

func (o *outgoing) run(ctx context.Context) {
	defer close(o.stopped)
	var workers sync.WaitGroup
	for range senders {
		workers.Go(func() { o.work(ctx, &o.releases, wire.MaxItems, o.sendReleases) })
		workers.Go(func() { o.work(ctx, &o.cancels, 1, o.sendCancel) })
	}
	workers.Wait()
}

// work sends from one pile, at most so many tickets with one message. What is
// not answered soon is sent again, as an admit is, since it may have gone to a
// coordinator that is frozen; and then with more patience each time, since all
// of them may be busy.
func (o *outgoing) work(ctx context.Context, p *pile, most int, send func(context.Context, []*Ticket) error) {
	patience := askAgain
	for ctx.Err() == nil {
		tickets := o.take(p, most)
		if tickets == nil {
			select {
			case <-p.wake:
			case <-ctx.Done():
			}
			continue
		}
		sending, cancel := context.WithTimeout(ctx, patience)
		err := send(sending, tickets)
		cancel()
		switch {
		case err == nil:
			patience = askAgain
		case errors.Is(err, bus.ErrTimeout):
			patience = min(2*patience, o.gate.opts.AdmitTimeout)
			o.add(p, tickets...)
		case bus.CodeOf(err) == bus.CodeInvalid:
			// No coordinator will ever accept it.
			o.gate.metrics.dropped.Add(float64(len(tickets)))
			o.gate.opts.Logger.Error("a coordinator refuses what this edge gives back", "error", err, "count", len(tickets))
		default:
			select {
			case <-time.After(retryWait):
			case <-ctx.Done():
			}
			o.add(p, tickets...)
		}
		o.settle(len(tickets))
	}
}

func (o *outgoing) take(p *pile, most int) []*Ticket {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := min(len(p.tickets), most)
	if n == 0 {
		return nil
	}
	var taken []*Ticket
	taken, p.tickets = p.tickets[:n:n], p.tickets[n:]
	if len(p.tickets) == 0 {
		p.tickets = nil
	}
	o.inFlight += n
	return taken
}

// settle ends what take began.
func (o *outgoing) settle(n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.inFlight -= n
	if o.empty != nil && o.left() == 0 {
		close(o.empty)
		o.empty = nil
	}
}

// left is called with the mutex held.
func (o *outgoing) left() int { return o.inFlight + len(o.releases.tickets) + len(o.cancels.tickets) }

// sendReleases ends the memo once more: what was asked after the place was
// given up may have overtaken the release.
func (o *outgoing) sendReleases(ctx context.Context, tickets []*Ticket) error {
	err := o.gate.giveBack(ctx, tickets)
	if err == nil {
		for _, t := range tickets {
			o.gate.groups.freed(t.group.prefix)
		}
	}
	return err
}

// sendCancel cancels one ticket. One that had been admitted behind this edge's
// back keeps its place as long as its request runs.
func (o *outgoing) sendCancel(ctx context.Context, tickets []*Ticket) error {
	t := tickets[0]
	was, err := o.gate.takeBack(ctx, t)
	if err != nil {
		return err
	}
	o.gate.groups.freed(t.group.prefix)
	if was == wire.WasActive && !t.promote() && t.is(done) {
		o.release(t)
	}
	return nil
}

// drain returns when nothing is left to send, when ctx ends, or when nothing is
// sent any more. It returns how many tickets are left.
func (o *outgoing) drain(ctx context.Context) int {
	o.mu.Lock()
	if o.left() == 0 {
		o.mu.Unlock()
		return 0
	}
	if o.empty == nil {
		o.empty = make(chan struct{})
	}
	empty := o.empty
	o.mu.Unlock()
	select {
	case <-empty:
		return 0
	case <-ctx.Done():
	case <-o.stopped:
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.left()
}
