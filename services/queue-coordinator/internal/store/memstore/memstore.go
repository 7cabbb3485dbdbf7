package memstore

import (
	"context"
	"sync"
	"time"

	"github.com/ccnq/ccnq/pkg/wire"
	"github.com/ccnq/ccnq/services/queue-coordinator/internal/store"
)

// Store keeps the state in memory. Make one with [New].
type Store struct {
	clock      func() time.Time
	onPromoted store.PromotedFunc

	mu       sync.Mutex
	closed   bool
	groups   map[string]*group
	edges    map[string]*edge
	requests map[wire.RequestID]*request
}

// New returns an empty store. Clock tells the time, [time.Now] if nil;
// promoted may be nil.
func New(clock func() time.Time, promoted store.PromotedFunc) *Store {
	if clock == nil {
		clock = time.Now
	}
	if promoted == nil {
		promoted = func([]store.Promotion) {}
	}
	return &Store{
		clock:      clock,
		onPromoted: promoted,
		groups:     map[string]*group{},
		edges:      map[string]*edge{},
		requests:   map[wire.RequestID]*request{},
	}
}

// Admit implements [store.Store].
func (s *Store) Admit(_ context.Context, limits store.Limits, items []store.AdmitItem, done func(int, store.AdmitResult)) {
	results := make([]store.AdmitResult, len(items))
	c := s.begin(limits)
	c.admitAll(items, results)
	c.reconsider(items, results)
	c.end()
	for i, r := range results {
		done(i, r)
	}
}

// admitAll decides for all items, those that are held already first.
func (c *call) admitAll(items []store.AdmitItem, results []store.AdmitResult) {
	for _, held := range []bool{true, false} {
		for i := range items {
			if (items[i].Mode == wire.ModeHeld) == held {
				results[i] = c.admit(&items[i])
			}
		}
	}
}

func (c *call) admit(item *store.AdmitItem) store.AdmitResult {
	if c.closed {
		return store.AdmitResult{Err: store.ErrClosed}
	}
	if !item.Deadline.IsZero() && !c.now.Before(item.Deadline) {
		return store.AdmitResult{Err: store.ErrExpired}
	}
	e, g := c.renew(item.EdgeID), c.group(item.Group)
	if r := c.requests[item.ID]; r != nil {
		return c.readmit(r, item)
	}
	return store.AdmitResult{Decision: c.place(item, e, g)}
}

// reconsider gives rejected items a second chance if their group holds stale
// requests, and tells those that stay rejected how long the group will be full.
func (c *call) reconsider(items []store.AdmitItem, results []store.AdmitResult) {
	freed := 0
	for i := range results {
		if results[i].Decision == wire.Rejected {
			freed += c.reclaim(c.groups[items[i].Group])
		}
	}
	c.settle()
	if freed > 0 {
		// Not only the rejected: a queued one may have been promoted, and
		// another's request of the same id be gone.
		c.admitAll(items, results)
	}
	for i := range results {
		if results[i].Decision == wire.Rejected {
			results[i].FullFor = c.groups[items[i].Group].estimate.FullFor(c.now)
		}
	}
}

// readmit decides for a request that the store knows.
func (c *call) readmit(r *request, item *store.AdmitItem) store.AdmitResult {
	switch {
	case c.own(item.Item) == nil:
		return store.AdmitResult{Err: store.ErrForeign}
	case r.in == &r.group.active:
		return store.AdmitResult{Decision: wire.Admitted}
	case item.Mode == wire.ModeHeld:
		r.leave()
		c.push(r, &r.group.active)
		return store.AdmitResult{Decision: wire.Admitted}
	}
	return store.AdmitResult{Decision: wire.Queued}
}

// place finds a place for a new request, active or in line.
func (c *call) place(item *store.AdmitItem, e *edge, g *group) wire.Decision {
	room := g.active.n < c.limits.MaxServed && g.waiting.n == 0
	switch {
	case room || item.Mode == wire.ModeHeld:
		c.enter(item.ID, e, g, &g.active)
		return wire.Admitted
	case item.Mode != wire.ModeNoWait && g.waiting.n < c.limits.MaxPending:
		c.enter(item.ID, e, g, &g.waiting)
		return wire.Queued
	}
	return wire.Rejected
}

// Release implements [store.Store].
func (s *Store) Release(_ context.Context, limits store.Limits, items []store.Item, done func(int, error)) {
	c := s.begin(limits)
	var err error
	if c.closed {
		err = store.ErrClosed
	} else {
		for i := range items {
			c.renew(items[i].EdgeID)
			if r := c.own(items[i]); r != nil {
				c.free(r, items[i].Received)
			}
		}
	}
	c.end()
	for i := range items {
		done(i, err)
	}
}

// Cancel implements [store.Store].
func (s *Store) Cancel(_ context.Context, limits store.Limits, items []store.Item, done func(int, store.CancelResult)) {
	results := make([]store.CancelResult, len(items))
	c := s.begin(limits)
	for i := range items {
		results[i] = c.cancel(items[i])
	}
	c.end()
	for i, r := range results {
		done(i, r)
	}
}

func (c *call) cancel(item store.Item) store.CancelResult {
	if c.closed {
		return store.CancelResult{Err: store.ErrClosed}
	}
	c.renew(item.EdgeID)
	r := c.own(item)
	switch {
	case r == nil:
		return store.CancelResult{Was: wire.WasGone}
	case r.in == &r.group.active:
		return store.CancelResult{Was: wire.WasActive}
	}
	c.free(r, item.Received)
	return store.CancelResult{Was: wire.WasPending}
}

// Status implements [store.Store].
func (s *Store) Status(_ context.Context, limits store.Limits, status store.Status) (store.StatusResult, error) {
	c := s.begin(limits)
	defer c.end()
	if c.closed {
		return store.StatusResult{}, store.ErrClosed
	}
	e := c.renew(status.EdgeID)
	if status.Lease > 0 {
		e.lease = status.Lease
	} else {
		e.lease = limits.Lease
	}
	e.expires = c.now.Add(e.lease)

	var result store.StatusResult
	listed := make(map[wire.RequestID]struct{}, len(status.Waiting)+len(status.Active))
	for _, id := range status.Waiting {
		listed[id] = struct{}{}
		switch r := c.requests[id]; {
		case r == nil || r.edge != e:
			result.Unknown = append(result.Unknown, id)
		case r.in == &r.group.active:
			result.Promoted = append(result.Promoted, id)
		}
	}
	for _, id := range status.Active {
		listed[id] = struct{}{}
		if r := c.requests[id]; r == nil || r.edge != e || r.in == &r.group.waiting {
			result.Unknown = append(result.Unknown, id)
		}
	}
	if status.Epoch >= e.epoch {
		e.epoch = status.Epoch
		result.Freed = c.repair(e, status, listed)
	}
	return result, nil
}

// repair frees the edge's requests that are old enough and not listed.
func (c *call) repair(e *edge, status store.Status, listed map[wire.RequestID]struct{}) (freed int) {
	if status.Stale <= 0 {
		return 0
	}
	oldest := c.now.Add(-status.Stale)
	for r := range e.requests {
		_, known := listed[r.id]
		if known || !r.since.Before(oldest) || r.id.Part(max(status.Parts, 1)) != status.Part {
			continue
		}
		c.free(r, time.Time{})
		freed++
	}
	return freed
}

// Close implements [store.Store].
func (s *Store) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}

var _ store.Store = (*Store)(nil)
