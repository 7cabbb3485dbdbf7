package publish

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/ccnq/ccnq/pkg/bus"
	"github.com/ccnq/ccnq/pkg/wire"
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
	case errors.Is(err, bus.ErrNotFound):
		b.markSeq = 0
	default:
		return err
	}
	return nil
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
	totals, err := b.p.opts.Store.Totals(ctx, at)
	if err != nil {
		return err
	}
	if err := b.feed.drain(ctx, totals.Version); err != nil {
		return err
	}
	data, err := json.Marshal(wire.Mark{
		Generation: b.generation, Version: totals.Version, IPs: totals.IPs, Ranges: totals.Ranges,
		Monitor: b.p.opts.Monitor, Written: at.UTC(),
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
