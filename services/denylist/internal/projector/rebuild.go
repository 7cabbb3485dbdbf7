package projector

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/ccnq/ccnq/pkg/bus"
	"github.com/ccnq/ccnq/pkg/wire"
	"github.com/ccnq/ccnq/services/denylist/internal/store"
)

// restore fills a store without a checkpoint. Denials up to the last lift decide
// nothing, so that it stays one, nor do those whose decisions are known to be
// published. The others decide: a block that was published is extended to where
// it ends already, and one that was not is made.
func (p *Projector) restore(ctx context.Context, epoch int64, stream bus.StreamState) error {
	last, err := p.last(ctx, changeSubjects)
	if err != nil {
		return err
	}
	if last == 0 {
		return p.opts.Store.Reset(ctx, epoch, stream.Created)
	}
	lifted, err := p.last(ctx, liftSubjects)
	if err != nil {
		return err
	}
	settled, err := p.settled(ctx, stream)
	if err != nil {
		return err
	}
	to := min(max(lifted, settled), stream.Last)
	p.opts.Logger.Info("the store has no checkpoint; replaying the events", "to", to)
	return p.rebuild(ctx, epoch, store.Checkpoint{Created: stream.Created, Seq: to})
}

// settled returns the place up to which the mark of the blocks says that
// everything decided is published, 0 if it does not say so of this stream.
func (p *Projector) settled(ctx context.Context, stream bus.StreamState) (uint64, error) {
	m, err := bus.DirectGetLast(ctx, p.opts.Conn, wire.StreamBlocks, wire.KVSubject(wire.KeyMark))
	if errors.Is(err, bus.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	mark, err := wire.Decode[wire.Mark](m.Data)
	if err != nil || !(store.Checkpoint{Created: mark.Stream}).Of(stream.Created) {
		return 0, nil //nolint:nilerr // what is no mark says nothing
	}
	return mark.Applied, nil
}

// last returns the place of the last event on any of the subjects, 0 for none.
func (p *Projector) last(ctx context.Context, subjects []string) (uint64, error) {
	var last uint64
	for _, subject := range subjects {
		m, err := bus.DirectGetLast(ctx, p.opts.Conn, wire.StreamEvents, subject)
		if errors.Is(err, bus.ErrNotFound) {
			continue
		}
		if err != nil {
			return 0, err
		}
		last = max(last, m.Sequence)
	}
	return last, nil
}

// rebuild makes the tables anew, with the denials up to the checkpoint and all
// changes of blocks. The projection stands still meanwhile, what is in force
// stays.
func (p *Projector) rebuild(ctx context.Context, epoch int64, to store.Checkpoint) error {
	begun := time.Now()
	defer p.metrics.rebuilding.Set(0)
	if err := p.opts.Store.BeginRebuild(ctx, epoch); err != nil {
		return err
	}
	var total store.Result
	next, err := p.replay(ctx, epoch, to, 1, &total)
	if err != nil {
		return err
	}
	// No change may be published, and not be among those that were replayed,
	// when the old tables are given up.
	release := p.opts.Hold()
	defer release()
	if _, err = p.replay(ctx, epoch, to, next, &total); err != nil {
		return err
	}
	swapped, err := p.opts.Store.FinishRebuild(ctx, epoch, to)
	if err != nil {
		return err
	}
	p.metrics.rebuilds.Inc()
	p.opts.Logger.Info("the tables were made anew", "events", total.Applied, "denials", total.Denials,
		"changes", swapped.Changes, "seconds", time.Since(begun).Seconds())
	p.opts.Rebuilt()
	return nil
}

// replay replays the stream from a place to its present end, and returns the
// place behind that.
func (p *Projector) replay(ctx context.Context, epoch int64, to store.Checkpoint, from uint64, total *store.Result) (uint64, error) {
	for {
		next, more, err := p.replayFrom(ctx, epoch, to, from, total)
		if err != nil || !more {
			return next, err
		}
		from = next
	}
}

// replayFrom is one attempt of [Projector.replay]. There is more if the stream
// fell silent before the end that it had announced: it was slow, or dropped
// what was old.
func (p *Projector) replayFrom(ctx context.Context, epoch int64, to store.Checkpoint, from uint64,
	total *store.Result,
) (next uint64, more bool, err error) {
	reader, err := bus.OpenReader(ctx, p.opts.Conn, wire.StreamEvents, from, slices.Concat(deniedSubjects, changeSubjects)...)
	if err != nil {
		return from, false, err
	}
	defer reader.Close(context.WithoutCancel(ctx))
	if !to.Of(reader.Stream().Created) {
		return from, false, errAnother
	}
	for reader.Pending() > 0 {
		p.metrics.rebuilding.Set(float64(reader.Pending()))
		messages, err := reader.Next(ctx, waitNew)
		if err != nil {
			return from, false, err
		}
		if len(messages) == 0 {
			return from, true, nil
		}
		result, err := p.opts.Store.Replay(ctx, epoch, p.events(messages, to))
		if err != nil {
			return from, false, err
		}
		total.Add(result)
		from = messages[len(messages)-1].Sequence + 1
	}
	return from, false, nil
}

var errAnother = errors.New("the event stream was made anew during the rebuild")

// events decodes what a rebuild needs of the messages. What cannot be
// understood was moved aside when it came.
func (p *Projector) events(messages []bus.StreamMessage, to store.Checkpoint) []store.Event {
	var events []store.Event
	for _, m := range messages {
		if slices.Contains(changeSubjects, m.Subject) {
			if c, err := decodeChange(m); err == nil {
				events = append(events, store.Event{Change: &c})
			}
			continue
		}
		if m.Sequence > to.Seq {
			continue
		}
		if r, err := decodeDenied(m); err == nil {
			events = append(events, store.Event{Record: &r})
		}
	}
	return events
}
