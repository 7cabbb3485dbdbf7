package publish

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/ccnq/ccnq/pkg/bus"
	"github.com/ccnq/ccnq/pkg/wire"
	"github.com/ccnq/ccnq/services/denylist/internal/lead"
	"github.com/ccnq/ccnq/services/denylist/internal/store"
)

// events publishes changes as events, for one term.
type events struct {
	p    *Publisher
	term *lead.Term
	feed *feed
}

func newEvents(p *Publisher, term *lead.Term) *events {
	e := &events{p: p, term: term}
	e.feed = &feed{p: p, way: toEvents, epoch: term.Epoch, push: e.push}
	return e
}

// step publishes what there is.
func (e *events) step(ctx context.Context) error {
	e.p.hold.Lock()
	defer e.p.hold.Unlock()
	return e.feed.drain(ctx, all)
}

// push publishes changes, all of them or it fails.
func (e *events) push(ctx context.Context, changes []store.Change) error {
	if !e.term.Valid() {
		return errOver
	}
	puts := make([]bus.Put, len(changes))
	for i, c := range changes {
		put, err := e.event(c)
		if err != nil {
			return err
		}
		puts[i] = put
	}
	ctx, cancel := context.WithTimeout(ctx, ackTimeout)
	defer cancel()
	results, err := bus.PutAll(ctx, e.p.opts.Conn, puts)
	if err != nil {
		return err
	}
	for i, r := range results {
		if r.Err != nil {
			return r.Err
		}
		e.p.metrics.events[changes[i].Kind].Inc()
	}
	return nil
}

// event is a change as an event. Its id is the same whenever it is published.
// The time is part of it, as versions may begin anew in a store that was lost.
func (e *events) event(c store.Change) (bus.Put, error) {
	typ, subject := wire.TypeBlocked, wire.SubjectBlocked
	switch {
	case c.Kind == store.KindUnblocked:
		typ, subject = wire.TypeUnblocked, wire.SubjectUnblocked
	case e.p.opts.Monitor:
		typ, subject = wire.TypeWouldBlock, wire.SubjectWouldBlock
	}
	id := fmt.Sprintf("change-%d-%d", c.Version, c.At.UnixMicro())
	data, err := json.Marshal(wire.NewEvent(id, wire.DenylistSource, typ, c.Target, c.At, c.BlockChange))
	return bus.Put{Subject: fmt.Sprintf(subject, c.Scope), Data: data, ID: id}, err
}
