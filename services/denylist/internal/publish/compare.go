package publish

import (
	"context"
	"net/netip"
	"time"

	"github.com/ccnq/ccnq/pkg/bus"
	"github.com/ccnq/ccnq/pkg/wire"
	"github.com/ccnq/ccnq/services/denylist/internal/store"
)

const (
	// compareEvery is the time between two comparisons without a cause.
	compareEvery = 10 * time.Minute
	// keyPage is the number of keys that are read at once, tablePage that of
	// blocks in the tables.
	keyPage   = 20_000
	tablePage = 1_000
	// keyTimeout bounds the reading of one page of keys.
	keyTimeout = 30 * time.Second
)

// compareIfDue begins a comparison in the background if one is due.
func (b *bucket) compareIfDue(ctx context.Context) {
	b.mu.Lock()
	defer b.mu.Unlock()
	due := b.compared != b.generation || time.Since(b.at) >= compareEvery || b.p.compare.Load()
	if !due || b.running {
		return
	}
	b.running = true
	b.p.compare.Store(false)
	generation := b.generation
	b.comparing.Go(func() {
		err := (&comparison{bucket: b}).run(ctx)
		b.mu.Lock()
		defer b.mu.Unlock()
		b.running = false
		if err == nil {
			b.compared, b.at = generation, time.Now()
		} else if ctx.Err() == nil {
			b.p.compare.Store(true)
			b.p.opts.Logger.Warn("blocks and bucket cannot be compared now; trying on", "error", err)
		}
		b.p.Changed()
	})
}

// comparison makes the keys equal to the tables. Everything goes on meanwhile:
// each key is written only over what was read of it.
type comparison struct {
	*bucket
	ips    map[netip.Prefix]held
	ranges map[netip.Prefix]held
	newest int64    // version of any key
	wrong  []entry  // keys that have an older version than the table
	forced []target // keys that have the same or a later version, and differ
}

// held is what a key holds.
type held struct {
	until   int64 // Unix microseconds
	version int64
	seq     uint64
}

// target is what a key is about.
type target struct {
	scope  wire.Scope
	prefix netip.Prefix
	seq    uint64
}

func (c *comparison) run(ctx context.Context) error {
	begun := time.Now()
	if err := c.readKeys(ctx); err != nil {
		return err
	}
	for _, scope := range []wire.Scope{wire.ScopeIP, wire.ScopeRange} {
		if err := c.readTable(ctx, scope, begun); err != nil {
			return err
		}
	}
	c.findSurplus(begun)
	if err := c.correct(ctx, c.wrong); err != nil {
		return err
	}
	if err := c.force(ctx); err != nil {
		return err
	}
	c.p.metrics.comparisons.Inc()
	c.p.opts.Logger.Debug("blocks and bucket compared", "seconds", time.Since(begun).Seconds())
	return nil
}

// of returns the keys of a scope: a range of one address is not the address.
func (c *comparison) of(scope wire.Scope) map[netip.Prefix]held {
	if scope == wire.ScopeIP {
		return c.ips
	}
	return c.ranges
}

// readKeys reads the bucket. What is no key of a block is left alone.
func (c *comparison) readKeys(ctx context.Context) error {
	c.ips, c.ranges = make(map[netip.Prefix]held), make(map[netip.Prefix]held)
	for from := uint64(1); ; {
		page, err := c.keyPage(ctx, from)
		if err != nil {
			return err
		}
		for _, m := range page.Messages {
			key := wire.KVKey(m.Subject)
			if key == wire.KeyMark {
				if mark, err := wire.Decode[wire.Mark](m.Data); err == nil {
					c.newest = max(c.newest, mark.Version)
				}
				continue
			}
			scope, prefix, err := wire.ParseBlockKey(key)
			if err != nil {
				continue
			}
			is := held{seq: m.Sequence}
			if block, err := wire.DecodeBlock(m.Data); err == nil && !m.Deleted {
				is.until, is.version = block.BlockedUntil.UnixMicro(), block.Version
				c.newest = max(c.newest, is.version)
			}
			c.of(scope)[prefix] = is
		}
		if page.Done {
			return nil
		}
		from = page.Next
	}
}

func (c *comparison) keyPage(ctx context.Context, from uint64) (bus.Page, error) {
	ctx, cancel := context.WithTimeout(ctx, keyTimeout)
	defer cancel()
	return bus.DirectGetPage(ctx, c.p.opts.Conn, wire.StreamBlocks, from, keyPage, wire.SubjectBlocks)
}

// readTable compares all blocks in force of a scope, and takes their keys from
// the list.
func (c *comparison) readTable(ctx context.Context, scope wire.Scope, now time.Time) error {
	keys := c.of(scope)
	for after := ""; ; {
		page, err := c.p.opts.Store.Blocks(ctx, store.Listing{Scope: scope, After: after, Limit: tablePage, InForceAt: now})
		if err != nil {
			return err
		}
		for _, b := range page {
			after = b.Target
			prefix, err := wire.ParseTarget(scope, b.Target)
			if err != nil {
				return err
			}
			is := keys[prefix]
			delete(keys, prefix)
			switch {
			case is.until == b.BlockedUntil.UnixMicro():
			case is.version < b.Version:
				c.wrong = append(c.wrong, entry{key: wire.BlockKey(scope, b.Target), block: value(b), expect: is.seq})
			default:
				c.forced = append(c.forced, target{scope, prefix, is.seq})
			}
		}
		if len(page) < tablePage {
			return nil
		}
	}
}

// findSurplus lists the keys in force that no block is behind.
func (c *comparison) findSurplus(now time.Time) {
	for _, scope := range []wire.Scope{wire.ScopeIP, wire.ScopeRange} {
		for prefix, is := range c.of(scope) {
			if is.until > now.UnixMicro() {
				c.forced = append(c.forced, target{scope, prefix, is.seq})
			}
		}
	}
}

// correct writes keys unless somebody else has written them meanwhile.
func (c *comparison) correct(ctx context.Context, entries []entry) error {
	for len(entries) > 0 {
		n := min(len(entries), pageSize)
		written, err := c.write(ctx, entries[:n], false)
		c.p.metrics.corrected.Add(float64(written))
		if err != nil {
			return err
		}
		entries = entries[n:]
	}
	return nil
}

// force gives keys what the tables say although they have a version that is as
// new: with a version of their own, below all later ones. The tables are asked
// again after that version is drawn, so that a later change has a later one.
func (c *comparison) force(ctx context.Context) error {
	now := time.Now()
	totals, err := c.p.opts.Store.Totals(ctx, now)
	if err != nil {
		return err
	}
	version := max(totals.Version, c.newest)
	if len(c.forced) > 0 {
		version++
	}
	if version <= totals.Version {
		return nil
	}
	if err := c.p.opts.Store.RaiseVersion(ctx, c.term.Epoch, version); err != nil {
		return err
	}
	var entries []entry
	for _, t := range c.forced {
		text := wire.TargetText(t.scope, t.prefix)
		b, err := c.blockOf(ctx, t.scope, t.prefix, text)
		if err != nil {
			return err
		}
		b.Version = version
		if b.BlockedUntil.IsZero() {
			b.BlockedUntil, b.Since, b.Reason = now, now, "no such block"
		}
		entries = append(entries, entry{key: wire.BlockKey(t.scope, text), block: value(b), expect: t.seq})
	}
	return c.correct(ctx, entries)
}

// blockOf returns the block in force of exactly this target, or none.
func (c *comparison) blockOf(ctx context.Context, scope wire.Scope, prefix netip.Prefix, text string) (wire.BlockChange, error) {
	blocks, err := c.p.opts.Store.Holding(ctx, prefix)
	for _, b := range blocks {
		if b.Scope == scope && b.Target == text {
			return b, err
		}
	}
	return wire.BlockChange{}, err
}
