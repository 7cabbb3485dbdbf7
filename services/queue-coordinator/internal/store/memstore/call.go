package memstore

import (
	"time"

	"github.com/ccnq/ccnq/pkg/wire"
	"github.com/ccnq/ccnq/services/queue-coordinator/internal/store"
)

// call is one call of a method: everything that happens under the mutex at one
// point in time. First all of its requests leave, then settle promotes, so
// that nobody is promoted who leaves in the same call.
type call struct {
	*Store
	limits   store.Limits
	now      time.Time
	touched  []*group
	promoted []store.Promotion
}

// begin locks the store; end unlocks it.
func (s *Store) begin(limits store.Limits) *call {
	s.mu.Lock()
	return &call{Store: s, limits: limits, now: s.clock()}
}

// end settles, unlocks, and hands over whoever was promoted.
func (c *call) end() {
	c.settle()
	c.mu.Unlock()
	if len(c.promoted) > 0 {
		c.onPromoted(c.promoted)
	}
}

// group returns the group of that key and makes it if it is new.
func (c *call) group(key string) *group {
	g := c.groups[key]
	if g == nil {
		g = &group{key: key, lastActive: c.now}
		c.groups[key] = g
	}
	return g
}

// renew returns the edge of that id with its lease renewed.
func (c *call) renew(id string) *edge {
	e := c.edges[id]
	if e == nil {
		e = &edge{id: id, lease: c.limits.Lease, requests: map[*request]struct{}{}}
		c.edges[id] = e
	}
	if until := c.now.Add(e.lease); until.After(e.expires) {
		e.expires = until
	}
	return e
}

// own returns the request that the item names if it belongs to the item's edge
// and group.
func (c *call) own(item store.Item) *request {
	r := c.requests[item.ID]
	if r == nil || r.edge.id != item.EdgeID || r.group.key != item.Group {
		return nil
	}
	return r
}

// enter adds a new request to one of the group's lines.
func (c *call) enter(id wire.RequestID, e *edge, g *group, in *line) {
	r := &request{id: id, group: g, edge: e}
	c.requests[id] = r
	e.requests[r] = struct{}{}
	c.push(r, in)
}

// push puts a request that stands nowhere into one of its group's lines.
func (c *call) push(r *request, in *line) {
	g := r.group
	in.push(r, c.now)
	g.lastActive = c.now
	if in == &g.active && g.active.n == c.limits.MaxServed {
		g.estimate.Filled(c.now)
	}
}

// free removes a request from the store. Received is when the message that
// asked for it came in, zero if none did.
func (c *call) free(r *request, received time.Time) {
	g := r.group
	if g.freed == 0 {
		g.wasFull = g.active.n >= c.limits.MaxServed
		g.received = received
		c.touched = append(c.touched, g)
	} else if received.Before(g.received) {
		g.received = received
	}
	g.freed++
	g.lastActive = c.now
	r.leave()
	delete(r.edge.requests, r)
	delete(c.requests, r.id)
}

// settle ends what free began: it promotes in every group that lost somebody.
func (c *call) settle() {
	for _, g := range c.touched {
		g.estimate.Freed(c.now, g.freed, g.wasFull)
		received := g.received
		g.freed, g.wasFull, g.received = 0, false, time.Time{}
		c.promote(g, received)
	}
	c.touched = c.touched[:0]
}

// promote moves whoever has waited longest while the group has room.
func (c *call) promote(g *group, received time.Time) {
	for g.waiting.n > 0 && g.active.n < c.limits.MaxServed {
		r := g.waiting.first
		r.leave()
		g.active.push(r, c.now)
		g.lastActive = c.now
		c.promoted = append(c.promoted, store.Promotion{
			ID: r.id, Group: g.key, EdgeID: r.edge.id, Freed: received,
		})
	}
}

// reclaim frees the group's active requests that are stale: old, and of an
// edge without a live lease. The line is in order of age, so only old requests
// are looked at.
func (c *call) reclaim(g *group) (freed int) {
	oldest := c.now.Add(-c.limits.StaleActive)
	for r := g.active.first; r != nil && r.since.Before(oldest); {
		next := r.next
		if !r.edge.live(c.now) {
			c.free(r, time.Time{})
			freed++
		}
		r = next
	}
	return freed
}
