package storetest

import (
	"net/netip"
	"time"

	"github.com/ccnq/ccnq/pkg/wire"
	"github.com/ccnq/ccnq/services/denylist/internal/store"
)

// model does what cork-cache-n-queue does, one denial at a time, with the time
// of the event for the clock. It shares no code with the stores.
type model struct {
	settings  store.Settings
	counts    map[string]map[string]*counted // by address and day
	blocks    map[string]*wire.BlockChange   // by scope and target
	positions map[string]uint64
}

type counted struct {
	n     int64
	group string
}

func newModel(s store.Settings) *model {
	return &model{
		settings: s, counts: map[string]map[string]*counted{},
		blocks: map[string]*wire.BlockChange{}, positions: map[string]uint64{},
	}
}

func day(t time.Time) string { return t.UTC().Format(time.DateOnly) }

// apply applies an event, and reports whether it is new.
func (m *model) apply(r store.Record) bool {
	if r.Denied.Seq <= m.positions[r.Denied.OutboxID] {
		return false
	}
	m.positions[r.Denied.OutboxID] = r.Denied.Seq
	for _, a := range r.Denied.Addresses {
		at := a.Last
		if at.Sub(r.At) > 5*time.Minute {
			at = r.At.Add(5 * time.Minute)
		}
		for range a.Count {
			m.recordDenial(a.IP.String(), a.Group.String(), at)
		}
	}
	return true
}

func (m *model) recordDenial(ip, group string, now time.Time) {
	today := day(now)
	if m.counts[ip] == nil {
		m.counts[ip] = map[string]*counted{}
	}
	if m.counts[ip][today] == nil {
		m.counts[ip][today] = &counted{group: group}
	}
	row := m.counts[ip][today]
	row.n++

	exceeded := 0
	for back := range m.settings.WindowDays {
		if c := m.counts[ip][day(now.AddDate(0, 0, -back))]; c != nil && c.n >= int64(m.settings.DailyThreshold) {
			exceeded++
		}
	}
	if exceeded >= m.settings.ExceedThreshold {
		m.extend(wire.ScopeIP, ip, now, now.AddDate(0, 0, m.settings.BlockDays))
	}
	distinct := 0
	for _, of := range m.counts {
		if c := of[today]; c != nil && c.group == row.group {
			distinct++
		}
	}
	if distinct > m.settings.RangeIPThreshold {
		m.extend(wire.ScopeRange, row.group, now, now.Add(time.Duration(m.settings.RangeBlockHours)*time.Hour))
	}
}

func (m *model) extend(scope wire.Scope, target string, now, end time.Time) {
	key := string(scope) + target
	b := m.blocks[key]
	if b == nil {
		b = &wire.BlockChange{Scope: scope, Target: target}
		m.blocks[key] = b
	}
	if !end.After(b.BlockedUntil) {
		return
	}
	if !b.BlockedUntil.After(now) {
		b.Since = now
	}
	b.BlockedUntil, b.Reason, b.By = end, "denials", "denylist"
}

func (m *model) block(o store.Order, now time.Time, d time.Duration) {
	key := string(o.Scope) + o.Text()
	before := wire.BlockChange{}
	if b := m.blocks[key]; b != nil {
		before = *b
	}
	m.extend(o.Scope, o.Text(), now, now.Add(d))
	if b := m.blocks[key]; b.BlockedUntil != before.BlockedUntil {
		b.Reason, b.By = o.Reason, o.By
	}
}

// unblock returns whether a block ended, and how many counts were forgiven.
func (m *model) unblock(o store.Order, now time.Time, keepCounts bool) (lifted bool, forgiven int) {
	if b := m.blocks[string(o.Scope)+o.Text()]; b != nil && b.BlockedUntil.After(now) {
		b.BlockedUntil, b.Reason, b.By = now, o.Reason, o.By
		lifted = true
	}
	if keepCounts {
		return lifted, 0
	}
	for ip := range m.counts {
		if o.Target.Contains(netip.MustParseAddr(ip)) {
			forgiven += len(m.counts[ip])
			delete(m.counts, ip)
		}
	}
	return lifted, forgiven
}

func (m *model) prune(now time.Time) {
	for _, of := range m.counts {
		for d := range of {
			begin, err := time.Parse(time.DateOnly, d)
			if err != nil {
				panic(err)
			}
			if leaves := begin.AddDate(0, 0, m.settings.WindowDays); !leaves.Add(m.settings.PruneRetention).After(now) {
				delete(of, d)
			}
		}
	}
	for key, b := range m.blocks {
		if !b.BlockedUntil.Add(m.settings.PruneRetention).After(now) {
			delete(m.blocks, key)
		}
	}
}
