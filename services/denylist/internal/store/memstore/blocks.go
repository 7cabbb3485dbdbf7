package memstore

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/ccnq/ccnq/pkg/wire"
	"github.com/ccnq/ccnq/services/denylist/internal/store"
	"github.com/ccnq/ccnq/services/denylist/internal/store/tally"
)

// Block implements [store.Store].
func (s *Store) Block(_ context.Context, o store.Order, d time.Duration) (wire.BlockChange, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	b := s.live.block(o.Scope, o.Text())
	end := store.End(now, min(d, wire.MaxBlock))
	if !end.After(b.BlockedUntil) {
		return b, nil
	}
	if !b.BlockedUntil.After(now) {
		b.Since = now
	}
	b.BlockedUntil, b.Reason, b.By = store.Instant(end), o.Reason, o.By
	return s.set(store.KindBlocked, b, false), nil
}

// Unblock implements [store.Store].
func (s *Store) Unblock(_ context.Context, o store.Order, keepCounts bool) (store.Lifted, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	var out store.Lifted
	if !keepCounts {
		out.Forgiven = s.live.forgive(o.Scope, o.Target)
	}
	b := s.live.block(o.Scope, o.Text())
	out.Lifted = b.BlockedUntil.After(now)
	if !out.Lifted && out.Forgiven == 0 {
		return out, nil
	}
	if !out.Lifted {
		b.Since = now
	}
	b.BlockedUntil, b.Reason, b.By = now, o.Reason, o.By
	if out.Lifted {
		b = s.set(store.KindUnblocked, b, keepCounts)
	} else {
		b = s.note(store.KindUnblocked, b, keepCounts)
	}
	out.Version = b.Version
	return out, nil
}

// Blocks implements [store.Store].
func (s *Store) Blocks(_ context.Context, l store.Listing) ([]wire.BlockChange, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.live.blocks[l.Scope]
	targets := of.targets()
	first, found := slices.BinarySearch(targets, l.After)
	if found {
		first++
	}
	var page []wire.BlockChange
	for _, target := range targets[first:] {
		if len(page) == l.Limit {
			break
		}
		b := of.byTarget[target].BlockChange
		if l.InForceAt.IsZero() || b.BlockedUntil.After(l.InForceAt) {
			page = append(page, b)
		}
	}
	return page, nil
}

// Holding implements [store.Store].
func (s *Store) Holding(_ context.Context, p netip.Prefix) ([]wire.BlockChange, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.holding(p), nil
}

func (s *Store) holding(p netip.Prefix) []wire.BlockChange {
	var held []wire.BlockChange
	now := s.now()
	add := func(b wire.BlockChange) {
		if b.BlockedUntil.After(now) {
			held = append(held, b)
		}
	}
	if p.IsSingleIP() {
		add(s.live.block(wire.ScopeIP, p.Addr().String()))
	}
	for bits := p.Bits(); bits >= 0; bits-- {
		covering := netip.PrefixFrom(p.Addr(), bits).Masked()
		add(s.live.block(wire.ScopeRange, covering.String()))
	}
	return held
}

// Explain implements [store.Store].
func (s *Store) Explain(_ context.Context, ip netip.Addr) (store.Explanation, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ip = ip.Unmap()
	out := store.Explanation{Blocks: s.holding(netip.PrefixFrom(ip, ip.BitLen()))}
	out.Days = s.live.days(ip, func(*count) bool { return true }, store.MaxSamples)
	slices.SortFunc(out.Days, func(a, b wire.DenialDay) int { return cmp.Compare(b.Day, a.Day) })
	out.Days = out.Days[:min(len(out.Days), store.MaxDays)]
	var others []wire.DenialDay
	for other := range s.live.addresses {
		if other == ip {
			continue
		}
		others = append(others, s.live.days(other, func(c *count) bool {
			return slices.ContainsFunc(out.Blocks, func(b wire.BlockChange) bool { return led(b, c) })
		}, store.MaxRangeSamples)...)
	}
	slices.SortFunc(others, func(a, b wire.DenialDay) int {
		return cmp.Or(cmp.Compare(b.Day, a.Day), cmp.Compare(a.IP.String(), b.IP.String()))
	})
	out.Days = append(out.Days, others[:min(len(others), store.MaxRangeDays)]...)
	return out, nil
}

// led reports whether a count was one of those that led to the block of a
// range: it is of that range, and of a day that the block has seen.
func led(b wire.BlockChange, c *count) bool {
	return b.Scope == wire.ScopeRange && b.Target == c.group.String() &&
		c.day >= tally.DayOf(b.Since) && c.day <= tally.DayOf(b.BlockedUntil)
}

// days returns the counts of an address.
func (p *projection) days(ip netip.Addr, which func(*count) bool, samples int) []wire.DenialDay {
	var days []wire.DenialDay
	for _, c := range p.addresses[ip] {
		if which(&c) {
			days = append(days, wire.DenialDay{
				IP: ip, Group: c.group.String(), Day: c.day.String(), Count: c.denials,
				FirstSeq: c.firstSeq, LastSeq: c.lastSeq,
				Samples: slices.Clone(c.samples[:min(len(c.samples), samples)]),
			})
		}
	}
	return days
}
