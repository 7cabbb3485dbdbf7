package publish

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/ccnq/ccnq/pkg/bus"
	"github.com/ccnq/ccnq/pkg/wire"
	"github.com/ccnq/ccnq/services/denylist/internal/lead"
	"github.com/ccnq/ccnq/services/denylist/internal/store"
)

const (
	// liftTTL is how long the key of a lifted block tells so.
	liftTTL = 24 * time.Hour
	// maxTTL is the longest life of a key. What is blocked for longer is
	// written again by a comparison.
	maxTTL = wire.MaxBlock
)

// bucket writes changes to the bucket, for one term.
type bucket struct {
	p    *Publisher
	term *lead.Term
	feed *feed

	// Of the mark, see mark.go.
	generation string
	markSeq    uint64
	marked     time.Time
	settled    store.Checkpoint // what was decided up to here is published, also as events
	awaited    progress         // what the last mark knew

	comparing sync.WaitGroup
	mu        sync.Mutex
	running   bool      // a comparison is under way
	compared  string    // the generation that was compared last
	at        time.Time // when that ended
}

func newBucket(p *Publisher, term *lead.Term) *bucket {
	b := &bucket{p: p, term: term}
	b.feed = &feed{p: p, way: toBucket, epoch: term.Epoch, push: b.push}
	return b
}

// step publishes what there is, and the mark when it is due.
func (b *bucket) step(ctx context.Context) error {
	if err := b.feed.drain(ctx, all); err != nil {
		return err
	}
	if time.Since(b.marked) < markEvery && b.generation != "" && !b.p.compare.Load() {
		return nil
	}
	if err := b.look(ctx); err != nil {
		return err
	}
	b.compareIfDue(ctx)
	return b.mark(ctx)
}

// entry is one key that is to be written.
type entry struct {
	key     string
	block   wire.Block
	changed time.Time // of the change, zero if none
	expect  uint64    // place of the key's last message that was seen, 0 for none
}

// push writes changes, all of them or it fails.
func (b *bucket) push(ctx context.Context, changes []store.Change) error {
	latest := make(map[string]int, len(changes))
	var entries []entry
	for _, c := range changes {
		e := entry{key: wire.BlockKey(c.Scope, c.Target), block: value(c.BlockChange), changed: c.At}
		if i, ok := latest[e.key]; ok {
			entries[i] = e
			continue
		}
		latest[e.key] = len(entries)
		entries = append(entries, e)
	}
	_, err := b.write(ctx, entries, true)
	return err
}

func value(c wire.BlockChange) wire.Block {
	return wire.Block{BlockedUntil: c.BlockedUntil, Version: c.Version, Reason: c.Reason, Since: c.Since}
}

// write writes keys over what was seen there. Where something else is found,
// insist says to look and try again unless that is as new; else it is left
// alone. It returns how many keys were written.
func (b *bucket) write(ctx context.Context, entries []entry, insist bool) (int, error) {
	written := 0
	for len(entries) > 0 {
		if !b.term.Valid() {
			return written, errOver
		}
		conflicts, n, err := b.put(ctx, entries)
		written += n
		if err != nil || !insist {
			return written, err
		}
		entries = entries[:0]
		for _, e := range conflicts {
			newer, err := b.see(ctx, &e)
			if err != nil {
				return written, err
			}
			if !newer {
				entries = append(entries, e)
			}
		}
	}
	return written, nil
}

// put sends keys once, and returns those that others have written meanwhile.
func (b *bucket) put(ctx context.Context, entries []entry) (conflicts []entry, written int, err error) {
	now := time.Now()
	puts := make([]bus.Put, len(entries))
	for i, e := range entries {
		data, err := json.Marshal(e.block)
		if err != nil {
			return nil, 0, err
		}
		ttl := liftTTL
		if e.block.BlockedUntil.After(now) {
			ttl = min(e.block.BlockedUntil.Sub(now), maxTTL)
		}
		puts[i] = bus.Put{Subject: wire.KVSubject(e.key), Data: data, TTL: ttl, Conditional: true, Expect: e.expect}
	}
	ctx, cancel := context.WithTimeout(ctx, ackTimeout)
	defer cancel()
	results, err := bus.PutAll(ctx, b.p.opts.Conn, puts)
	if err != nil {
		return nil, 0, err
	}
	for i, r := range results {
		switch {
		case errors.Is(r.Err, bus.ErrConflict):
			conflicts = append(conflicts, entries[i])
		case r.Err != nil:
			return nil, written, r.Err
		default:
			written++
			if at := entries[i].changed; !at.IsZero() {
				b.p.metrics.changes.Inc()
				b.p.metrics.delay.Observe(max(time.Since(at), 0).Seconds())
			}
		}
	}
	return conflicts, written, nil
}

// see looks what a key has, and reports whether that is as new as the entry.
func (b *bucket) see(ctx context.Context, e *entry) (newer bool, err error) {
	m, err := bus.DirectGetLast(ctx, b.p.opts.Conn, wire.StreamBlocks, wire.KVSubject(e.key))
	if errors.Is(err, bus.ErrNotFound) {
		e.expect = 0
		return false, nil
	}
	if err != nil {
		return false, err
	}
	e.expect = m.Sequence
	is, err := wire.DecodeBlock(m.Data)
	if err != nil || m.Deleted {
		return false, nil //nolint:nilerr // nonsense is written over
	}
	return is.Version >= e.block.Version, nil
}
