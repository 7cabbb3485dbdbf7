package publish

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/ccnq/ccnq/pkg/bus"
	"github.com/ccnq/ccnq/pkg/wire"
	"github.com/ccnq/ccnq/services/denylist/internal/store"
)

// markEvery is the time between two marks.
const markEvery = 3 * time.Second

// look finds out which bucket there is: the name of a generation is the time at
// which the bucket was made.
func (b *bucket) look(ctx context.Context) error {
	info, err := bus.StreamInfo(ctx, b.p.opts.Conn, wire.StreamBlocks)
	if err != nil {
		return err
	}
	generation := info.Created.UTC().Format(time.RFC3339Nano)
	if generation == b.generation {
		return nil
	}
	if b.generation != "" {
		b.p.opts.Logger.Warn("the bucket of the blocks is another one", "generation", generation)
	}
	if err := b.seeMark(ctx); err != nil {
		return err
	}
	b.generation = generation
	return nil
}

// seeMark finds the place of the last mark.
func (b *bucket) seeMark(ctx context.Context) error {
	m, err := bus.DirectGetLast(ctx, b.p.opts.Conn, wire.StreamBlocks, wire.KVSubject(wire.KeyMark))
	switch {
	case err == nil:
		b.markSeq = m.Sequence
		if mark, err := wire.Decode[wire.Mark](m.Data); err == nil && b.settled.Created.IsZero() {
			b.settled = store.Checkpoint{Created: mark.Stream, Seq: mark.Applied}
		}
	case errors.Is(err, bus.ErrNotFound):
		b.markSeq = 0
	default:
		return err
	}
	return nil
}

// progress is a place in the event stream, and a version that no change is above
// which was decided up to there.
type progress struct {
	at      store.Checkpoint
	version int64
}

// settle notes what is published, also as events. These may lag, and always do a
// little in a flood, so the mark before is looked at as well.
func (b *bucket) settle(now progress, published int64) {
	switch {
	case published >= now.version:
		b.settled = now.at
	case published >= b.awaited.version && !b.awaited.at.Created.IsZero():
		b.settled = b.awaited.at
	}
	b.awaited = now
}

// mark writes the mark, if this bucket has been compared. It is written over
// the last mark only: a bucket that was made anew meanwhile, and holds nothing,
// gets none.
func (b *bucket) mark(ctx context.Context) error {
	b.mu.Lock()
	compared := b.compared == b.generation
	b.mu.Unlock()
	if !compared {
		return nil
	}
	at := time.Now()
	checkpoint, err := b.p.opts.Store.Checkpoint(ctx) // before the version that covers what it decided
	if err != nil {
		return err
	}
	totals, err := b.p.opts.Store.Totals(ctx, at)
	if err != nil {
		return err
	}
	if err := b.feed.drain(ctx, totals.Version); err != nil {
		return err
	}
	b.settle(progress{checkpoint, totals.Version}, totals.Published)
	data, err := json.Marshal(wire.Mark{
		Generation: b.generation, Version: totals.Version, IPs: totals.IPs, Ranges: totals.Ranges,
		Monitor: b.p.opts.Monitor, Written: at.UTC(), Stream: b.settled.Created, Applied: b.settled.Seq,
	})
	if err != nil {
		return err
	}
	if !b.term.Valid() {
		return errOver
	}
	seq, err := bus.PutBlock(ctx, b.p.opts.Conn, bus.Put{
		Subject: wire.KVSubject(wire.KeyMark), Data: data, Conditional: true, Expect: b.markSeq,
	})
	if errors.Is(err, bus.ErrConflict) {
		// Look again which bucket it is before the next attempt.
		b.generation = ""
		return nil
	}
	if err != nil {
		return err
	}
	b.markSeq, b.marked = seq, at
	b.p.metrics.inForce(totals)
	return nil
}
