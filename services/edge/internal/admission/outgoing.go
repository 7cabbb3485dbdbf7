package admission

import (
	"context"
	"sync"
	"time"

	"github.com/ccnq/ccnq/pkg/bus"
	"github.com/ccnq/ccnq/pkg/wire"
)

const (
	// senders is the number of releases and cancels under way at once; what
	// gathers meanwhile goes as one message.
	senders = 4
	// retryWait is the pause after a message that was not acknowledged.
	retryWait = 250 * time.Millisecond
	// maxOutgoing bounds what waits to be sent. What is dropped beyond it the
	// store frees by itself, since no status lists it.
	maxOutgoing = 100_000
)

// outgoing sends releases and cancels until they are acknowledged.
type outgoing struct {
	gate *Gate
	wake chan struct{}

	mu       sync.Mutex
	releases []*Ticket
	cancels  []*Ticket
	inFlight int
	empty    chan struct{} // closed when nothing is left to send; nil while nobody waits for that
}

func newOutgoing(g *Gate) *outgoing {
	return &outgoing{gate: g, wake: make(chan struct{}, senders)}
}

// release gives back the place of a ticket that is over.
func (o *outgoing) release(t *Ticket) {
	t.group.freed()
	o.add(&o.releases, t)
}

// cancel takes back a ticket whose place in the store is not known.
func (o *outgoing) cancel(t *Ticket) { o.add(&o.cancels, t) }

func (o *outgoing) add(queue *[]*Ticket, tickets ...*Ticket) {
	o.mu.Lock()
	*queue = append(*queue, tickets...)
	if over := len(*queue) - maxOutgoing; over > 0 {
		o.gate.metrics.dropped.Add(float64(over))
		*queue = (*queue)[over:]
	}
	o.mu.Unlock()
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

func (o *outgoing) run(ctx context.Context) {
	var workers sync.WaitGroup
	for range senders {
		workers.Go(func() { o.send(ctx) })
	}
	workers.Wait()
}

func (o *outgoing) send(ctx context.Context) {
	for ctx.Err() == nil {
		releases, cancel := o.take()
		switch {
		case cancel != nil:
			was, err := o.gate.takeBack(ctx, cancel)
			switch {
			case err == nil:
				o.cancelled(cancel, was)
			case bus.CodeOf(err) == bus.CodeInvalid:
				o.giveUp(err, 1)
			default:
				o.add(&o.cancels, cancel)
			}
			o.settle(ctx, err)
		case releases != nil:
			err := o.gate.giveBack(ctx, releases)
			switch {
			case err == nil:
				for _, t := range releases {
					t.group.freed()
				}
			case bus.CodeOf(err) == bus.CodeInvalid:
				o.giveUp(err, len(releases))
			default:
				o.add(&o.releases, releases...)
			}
			o.settle(ctx, err)
		default:
			select {
			case <-o.wake:
			case <-ctx.Done():
			}
		}
	}
}

// giveUp drops what a coordinator will never accept.
func (o *outgoing) giveUp(err error, n int) {
	o.gate.metrics.dropped.Add(float64(n))
	o.gate.opts.Logger.Error("a coordinator refuses what this edge gives back", "error", err, "count", n)
}

// take returns what to send next: all releases that fit into one message, or
// one cancel.
func (o *outgoing) take() (releases []*Ticket, cancel *Ticket) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case len(o.releases) > 0:
		n := min(len(o.releases), wire.MaxItems)
		releases, o.releases = o.releases[:n:n], o.releases[n:]
		if len(o.releases) == 0 {
			o.releases = nil
		}
	case len(o.cancels) > 0:
		cancel, o.cancels = o.cancels[0], o.cancels[1:]
	default:
		return nil, nil
	}
	o.inFlight++
	return releases, cancel
}

// settle ends what take began, and pauses after a failure.
func (o *outgoing) settle(ctx context.Context, err error) {
	o.mu.Lock()
	o.inFlight--
	if o.empty != nil && o.inFlight == 0 && len(o.releases) == 0 && len(o.cancels) == 0 {
		close(o.empty)
		o.empty = nil
	}
	o.mu.Unlock()
	if err == nil {
		return
	}
	select {
	case <-time.After(retryWait):
	case <-ctx.Done():
	}
}

// cancelled notes what a cancelled ticket was. One that had been admitted
// behind this edge's back keeps its place as long as its request runs.
func (o *outgoing) cancelled(t *Ticket, was wire.Was) {
	t.group.freed()
	if was == wire.WasActive && !t.promote() && t.is(done) {
		o.release(t)
	}
}

// drain returns when nothing is left to send, or when ctx ends.
func (o *outgoing) drain(ctx context.Context) {
	o.mu.Lock()
	if o.inFlight == 0 && len(o.releases) == 0 && len(o.cancels) == 0 {
		o.mu.Unlock()
		return
	}
	if o.empty == nil {
		o.empty = make(chan struct{})
	}
	empty := o.empty
	o.mu.Unlock()
	select {
	case <-empty:
	case <-ctx.Done():
	}
}

// giveBack sends one release.
func (g *Gate) giveBack(ctx context.Context, tickets []*Ticket) error {
	ctx, cancel := context.WithTimeout(ctx, g.opts.AdmitTimeout)
	defer cancel()
	items := make([]wire.Item, len(tickets))
	for i, t := range tickets {
		items[i] = t.item()
	}
	_, err := call[wire.ReleaseRequest, wire.ReleaseReply](ctx, g, wire.SubjectRelease, wire.ReleaseRequest{Items: items})
	return err
}
