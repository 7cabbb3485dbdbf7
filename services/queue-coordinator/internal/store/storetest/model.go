package storetest

import (
	"slices"
	"time"

	"github.com/ccnq/ccnq/pkg/wire"
	"github.com/ccnq/ccnq/services/queue-coordinator/internal/store"
)

// model is the queue written as plainly as possible: one list of requests in
// order of arrival, searched from the start for every question.
type model struct {
	now    time.Time
	limits store.Limits
	rows   []row
	edges  map[string]*lease

	promoted []store.Promotion
}

// row is one request.
type row struct {
	store.Item
	active bool
	since  time.Time
}

type lease struct {
	expires time.Time
	length  time.Duration
	epoch   int64
}

func (m *model) renew(edge string) {
	l := m.edges[edge]
	if l == nil {
		l = &lease{length: m.limits.Lease}
		m.edges[edge] = l
	}
	if until := m.now.Add(l.length); until.After(l.expires) {
		l.expires = until
	}
}

func (m *model) live(edge string) bool {
	l := m.edges[edge]
	return l != nil && l.expires.After(m.now)
}

func (m *model) count(group string, active bool) (n int) {
	for _, r := range m.rows {
		if r.Group == group && r.active == active {
			n++
		}
	}
	return n
}

func (m *model) find(id wire.RequestID) int {
	return slices.IndexFunc(m.rows, func(r row) bool { return r.ID == id })
}

// own is find for a request that must belong to the item's edge and group.
func (m *model) own(i store.Item) int {
	at := m.find(i.ID)
	if at >= 0 && (m.rows[at].EdgeID != i.EdgeID || m.rows[at].Group != i.Group) {
		return -1
	}
	return at
}

// remove drops the rows that match, then promotes in their groups.
func (m *model) remove(match func(row) bool) (n int) {
	var groups []string
	m.rows = slices.DeleteFunc(m.rows, func(r row) bool {
		if match(r) {
			groups = append(groups, r.Group)
			n++
			return true
		}
		return false
	})
	for _, g := range groups {
		m.promote(g)
	}
	return n
}

func (m *model) promote(group string) {
	for m.count(group, true) < m.limits.MaxServed {
		at := slices.IndexFunc(m.rows, func(r row) bool { return r.Group == group && !r.active })
		if at < 0 {
			return
		}
		r := &m.rows[at]
		r.active, r.since = true, m.now
		m.promoted = append(m.promoted, store.Promotion{ID: r.ID, Group: r.Group, EdgeID: r.EdgeID})
	}
}

func (m *model) stale(r row) bool {
	return r.active && m.now.Sub(r.since) > m.limits.StaleActive && !m.live(r.EdgeID)
}

func (m *model) admit(items []store.AdmitItem) []store.AdmitResult {
	results := make([]store.AdmitResult, len(items))
	for _, i := range items {
		m.renew(i.EdgeID)
	}
	for _, held := range []bool{true, false} {
		for n, i := range items {
			if (i.Mode == wire.ModeHeld) == held {
				results[n] = m.decide(i)
			}
		}
	}
	freed := m.remove(func(r row) bool {
		return m.stale(r) && slices.ContainsFunc(items, func(i store.AdmitItem) bool {
			return i.Group == r.Group && m.find(i.ID) < 0
		})
	})
	for _, held := range []bool{true, false} {
		for n, i := range items {
			again := results[n].Decision == wire.Rejected || results[n].Err != nil // another's request may be gone
			if freed > 0 && again && (i.Mode == wire.ModeHeld) == held {
				results[n] = m.decide(i)
			}
		}
	}
	// A reclaim may have promoted somebody of this very batch.
	for n, i := range items {
		if at := m.own(i.Item); at >= 0 && m.rows[at].active && results[n].Decision == wire.Queued {
			results[n].Decision = wire.Admitted
		}
	}
	return results
}

func (m *model) decide(i store.AdmitItem) store.AdmitResult {
	at := m.find(i.ID)
	switch {
	case at >= 0 && m.own(i.Item) < 0:
		return store.AdmitResult{Err: store.ErrForeign}
	case at >= 0 && m.rows[at].active:
		return store.AdmitResult{Decision: wire.Admitted}
	case at >= 0 && i.Mode == wire.ModeHeld:
		m.rows[at].active, m.rows[at].since = true, m.now
		return store.AdmitResult{Decision: wire.Admitted}
	case at >= 0:
		return store.AdmitResult{Decision: wire.Queued}
	}
	active, waiting := m.count(i.Group, true), m.count(i.Group, false)
	r := row{Item: i.Item, since: m.now}
	switch {
	case i.Mode == wire.ModeHeld, active < m.limits.MaxServed && waiting == 0:
		r.active = true
	case i.Mode == wire.ModeNoWait, waiting >= m.limits.MaxPending:
		return store.AdmitResult{Decision: wire.Rejected}
	}
	m.rows = append(m.rows, r)
	if r.active {
		return store.AdmitResult{Decision: wire.Admitted}
	}
	return store.AdmitResult{Decision: wire.Queued}
}

func (m *model) release(items []store.Item) {
	for _, i := range items {
		m.renew(i.EdgeID)
	}
	m.remove(func(r row) bool {
		return slices.ContainsFunc(items, func(i store.Item) bool {
			return i.ID == r.ID && i.EdgeID == r.EdgeID && i.Group == r.Group
		})
	})
}

func (m *model) cancel(items []store.Item) []wire.Was {
	was := make([]wire.Was, len(items))
	var gone []wire.RequestID
	for n, i := range items {
		m.renew(i.EdgeID)
		switch at := m.own(i); {
		case at < 0:
			was[n] = wire.WasGone
		case m.rows[at].active:
			was[n] = wire.WasActive
		default:
			was[n] = wire.WasPending
			gone = append(gone, i.ID)
		}
	}
	m.remove(func(r row) bool { return slices.Contains(gone, r.ID) })
	return was
}

func (m *model) status(s store.Status) store.StatusResult {
	l := m.edges[s.EdgeID]
	if l == nil {
		l = &lease{}
		m.edges[s.EdgeID] = l
	}
	l.length = m.limits.Lease
	if s.Lease > 0 {
		l.length = s.Lease
	}
	l.expires = m.now.Add(l.length)

	var result store.StatusResult
	for _, id := range s.Waiting {
		switch at := m.find(id); {
		case at < 0 || m.rows[at].EdgeID != s.EdgeID:
			result.Unknown = append(result.Unknown, id)
		case m.rows[at].active:
			result.Promoted = append(result.Promoted, id)
		}
	}
	for _, id := range s.Active {
		if at := m.find(id); at < 0 || m.rows[at].EdgeID != s.EdgeID || !m.rows[at].active {
			result.Unknown = append(result.Unknown, id)
		}
	}
	if s.Epoch < l.epoch {
		return result
	}
	l.epoch = s.Epoch
	if s.Stale > 0 {
		result.Freed = m.remove(func(r row) bool {
			return r.EdgeID == s.EdgeID && m.now.Sub(r.since) > s.Stale &&
				r.ID.Part(max(s.Parts, 1)) == s.Part &&
				!slices.Contains(s.Waiting, r.ID) && !slices.Contains(s.Active, r.ID)
		})
	}
	return result
}

func (m *model) reclaimDead() store.Swept {
	freed := m.remove(func(r row) bool { return !m.live(r.EdgeID) })
	for edge := range m.edges {
		if !m.live(edge) {
			delete(m.edges, edge)
		}
	}
	return store.Swept{Freed: freed}
}

func (m *model) reconcileStale() store.Swept { return store.Swept{Freed: m.remove(m.stale)} }

func (m *model) promoteWaiting() {
	for _, r := range slices.Clone(m.rows) {
		m.promote(r.Group)
	}
}
