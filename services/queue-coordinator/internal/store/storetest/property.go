package storetest

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ccnq/ccnq/pkg/wire"
	"github.com/ccnq/ccnq/services/queue-coordinator/internal/store"
)

// exerciseModel does random things to a store and to the model, compares every
// answer, and checks the invariants after every step.
func exerciseModel(t *testing.T, newState func(testing.TB) State) {
	t.Helper()
	state := newState(t)
	rapid.Check(t, func(rt *rapid.T) {
		state.Reset()
		b := newBundle(rt, state)
		defer b.store.Close()
		p := &pair{T: rt, b: b, m: &model{now: b.clock.read(), limits: b.limits, edges: map[string]*lease{}}}
		step := func(do func()) func(*rapid.T) {
			return func(rt *rapid.T) {
				p.T, b.t = rt, rt
				do()
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"":               step(p.check),
			"admit":          step(p.admit),
			"cancel":         step(p.cancel),
			"change limits":  step(p.changeLimits),
			"prune idle":     step(p.pruneIdle),
			"reclaim dead":   step(p.reclaimDead),
			"reconcile":      step(p.reconcile),
			"release":        step(p.release),
			"release active": step(p.releaseActive),
			"status":         step(p.status),
			"time passes":    step(p.timePasses),
		})
	})
}

// pair is a store and the model of what it should do.
type pair struct {
	*rapid.T
	b *bundle
	m *model
	// before is the model's count of each group before the step.
	active, waiting map[string]int
	// asserted is how many places edges asserted in the step, by group.
	asserted map[string]int
}

var (
	groups    = []string{"a", "b", "c"}
	edgeIDs   = rapid.SampledFrom([]string{"e1", "e2", "e3"})
	groupKeys = rapid.SampledFrom(groups)
	// requests is small, so that ids are met again; the group and edge of
	// most depend on the id, so that they are seldom foreign.
	requests = rapid.Custom(func(t *rapid.T) store.Item {
		n := rapid.IntRange(1, 24).Draw(t, "n")
		i := store.Item{ID: id(n), Group: groups[n%3], EdgeID: []string{"e1", "e2", "e3"}[n/3%3]}
		switch rapid.IntRange(0, 19).Draw(t, "foreign") {
		case 0:
			i.Group = groupKeys.Draw(t, "group")
		case 1:
			i.EdgeID = edgeIDs.Draw(t, "edge")
		}
		return i
	})
	batches = rapid.SliceOfNDistinct(requests, 1, 8, func(i store.Item) wire.RequestID { return i.ID })
	modes   = rapid.SampledFrom([]wire.Mode{
		"", wire.ModeWait, wire.ModeWait, wire.ModeWait, wire.ModeNoWait, wire.ModeNoWait, wire.ModeHeld,
	})
)

func (p *pair) admit() {
	var items []store.AdmitItem
	for _, i := range batches.Draw(p.T, "items") {
		mode := modes.Draw(p.T, "mode")
		if mode == wire.ModeHeld {
			p.asserted[i.Group]++
		}
		items = append(items, store.AdmitItem{Item: i, Mode: mode})
	}
	got := p.b.admitItems(items...)
	for i := range got {
		require.True(p, got[i].FullFor >= 0 && got[i].FullFor <= store.MaxFullFor, "full for %v", got[i].FullFor)
		require.True(p, got[i].FullFor == 0 || got[i].Decision == wire.Rejected)
		got[i].FullFor = 0
	}
	require.Equal(p, p.m.admit(items), got)
}

func (p *pair) cancel() {
	items := batches.Draw(p.T, "items")
	require.Equal(p, p.m.cancel(items), p.b.cancel(items...))
}

func (p *pair) release() {
	items := batches.Draw(p.T, "items")
	p.m.release(items)
	p.b.release(items...)
}

// releaseActive releases one request that is there, as most releases do.
func (p *pair) releaseActive() {
	if len(p.m.rows) == 0 {
		p.Skip("nothing there")
	}
	i := rapid.SampledFrom(p.m.rows).Draw(p.T, "row").Item
	p.m.release([]store.Item{i})
	p.b.release(i)
}

func (p *pair) status() {
	s := store.Status{
		EdgeID: edgeIDs.Draw(p.T, "edge"),
		Epoch:  rapid.Int64Range(1, 5).Draw(p.T, "epoch"),
		Lease:  rapid.SampledFrom([]time.Duration{0, 0, 5 * time.Second, 20 * time.Second}).Draw(p.T, "lease"),
		Stale:  rapid.SampledFrom([]time.Duration{0, 2 * time.Second, 8 * time.Second}).Draw(p.T, "stale"),
		Parts:  rapid.IntRange(0, 2).Draw(p.T, "parts"),
	}
	s.Part = rapid.IntRange(0, max(s.Parts, 1)-1).Draw(p.T, "part")
	for _, i := range batches.Draw(p.T, "listed") {
		if rapid.Bool().Draw(p.T, "as waiting") {
			s.Waiting = append(s.Waiting, i.ID)
		} else {
			s.Active = append(s.Active, i.ID)
		}
	}
	want, got := p.m.status(s), p.b.status(s)
	require.ElementsMatch(p, want.Promoted, got.Promoted, "promoted")
	require.ElementsMatch(p, want.Unknown, got.Unknown, "unknown")
	require.Equal(p, want.Freed, got.Freed, "freed")
}

func (p *pair) reclaimDead() { require.Equal(p, p.m.reclaimDead(), p.b.reclaimDead()) }

func (p *pair) reconcile() { require.Equal(p, p.m.reconcileStale(), p.b.reconcile()) }

func (p *pair) pruneIdle() {
	age := rapid.SampledFrom([]time.Duration{0, time.Minute}).Draw(p.T, "age")
	_, err := p.b.store.PruneIdle(p.Context(), age)
	require.NoError(p, err)
}

// changeLimits promotes afterwards, as a coordinator does.
func (p *pair) changeLimits() {
	p.b.limits.MaxServed = rapid.IntRange(1, 4).Draw(p.T, "max served")
	p.b.limits.MaxPending = rapid.IntRange(0, 4).Draw(p.T, "max pending")
	p.m.limits = p.b.limits
	p.m.promoteWaiting()
	require.NoError(p, p.b.store.PromoteWaiting(p.Context(), p.b.limits))
}

// timePasses goes in whole seconds: a tenth of the lease, to which leases are
// exact.
func (p *pair) timePasses() {
	d := time.Duration(rapid.SampledFrom([]int{1, 3, 6, 11, 70}).Draw(p.T, "seconds")) * time.Second
	p.b.clock.advance(d)
	p.m.now = p.b.clock.read()
}

// check runs after every step: the store did what the model did, and the
// model's state keeps the rules.
func (p *pair) check() {
	// Promotions come in the order of each group; groups come in any order.
	want, got := p.m.promoted, p.b.takePromoted()
	p.m.promoted = nil
	byGroup := func(a, b store.Promotion) int { return cmp.Compare(a.Group, b.Group) }
	slices.SortStableFunc(want, byGroup)
	slices.SortStableFunc(got, byGroup)
	require.True(p, slices.Equal(want, got), "promoted: want %v, got %v", want, got)

	totals, err := p.b.store.Totals(p.Context())
	require.NoError(p, err)
	require.NoError(p, p.b.state.Check())

	allActive, allWaiting := 0, 0
	active, waiting := map[string]int{}, map[string]int{}
	for _, g := range groups {
		active[g], waiting[g] = p.m.count(g, true), p.m.count(g, false)
		allActive, allWaiting = allActive+active[g], allWaiting+waiting[g]
		if p.active != nil {
			require.LessOrEqual(p, active[g], max(p.b.limits.MaxServed, p.active[g]+p.asserted[g]), "active in %s", g)
			require.LessOrEqual(p, waiting[g], max(p.b.limits.MaxPending, p.waiting[g]), "waiting in %s", g)
		}
		require.True(p, waiting[g] == 0 || active[g] >= p.b.limits.MaxServed, "somebody waits for a free place in %s", g)
	}
	require.Equal(p, []int{allActive, allWaiting}, []int{totals.Active, totals.Waiting}, "active, waiting")
	p.active, p.waiting, p.asserted = active, waiting, map[string]int{}
}
