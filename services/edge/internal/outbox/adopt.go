package outbox

import (
	"context"
	"os"
	"time"
)

// adopt sends what edges that are gone have left in the folder, now and again.
func (o *Outbox) adopt() {
	ctx, cancel := context.WithCancel(o.ctx)
	defer cancel()
	o.senders.Go(func() { // an edge that stops leaves the rest to the next one
		defer cancel()
		select {
		case <-o.stop:
		case <-ctx.Done():
		}
	})
	tick := time.NewTicker(maintainEvery)
	defer tick.Stop()
	for {
		o.adoptAll(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// adoptAll sends the outboxes that nobody holds now.
func (o *Outbox) adoptAll(ctx context.Context) {
	slots, err := orphans(o.opts.Dir)
	if err != nil {
		o.opts.Logger.Warn("outboxes of other edges cannot be looked for", "error", err)
	}
	for _, s := range slots {
		if ctx.Err() == nil {
			o.adoptOne(ctx, s)
		}
		s.release()
	}
}

// adoptOne sends one outbox to its end and removes its file.
func (o *Outbox) adoptOne(ctx context.Context, s *slot) {
	q, err := o.openSlot(s)
	if err != nil {
		o.opts.Logger.Warn("the outbox of an edge that is gone cannot be opened", "file", s.path, "error", err)
		return
	}
	drain := make(chan struct{})
	close(drain) // it ends when nothing is left
	o.sender(q).run(ctx, drain)
	err = q.close()
	if left, _, _ := q.size(); err != nil || left > 0 {
		return
	}
	if err := os.Remove(s.path); err != nil {
		o.opts.Logger.Warn("an empty outbox cannot be removed", "file", s.path, "error", err)
		return
	}
	o.metrics.adopted.Inc()
	o.opts.Logger.Info("the outbox of an edge that is gone was sent", "file", s.path, "outbox", q.name())
}
