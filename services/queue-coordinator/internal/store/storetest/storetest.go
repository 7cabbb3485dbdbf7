// Package storetest is the one suite that every [store.Store] passes. Exercise
// is its table of contents; each part is in a file of its own.
package storetest

import (
	"context"
	"encoding/binary"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/pkg/wire"
	"github.com/ccnq/ccnq/services/queue-coordinator/internal/store"
)

// State is one empty state that several stores share, as several coordinators
// share a database.
type State interface {
	// Open returns another store on the state. A nil clock is the real one.
	// The test closes the store.
	Open(clock func() time.Time, promoted store.PromotedFunc) store.Store
	// Check looks for damage that no method of a store shows: counts that are
	// not those of the requests, a request that is both active and waiting.
	Check() error
	// Reset empties the state. No store may be in a call.
	Reset()
}

// Exercise runs the suite. NewState returns a state that belongs to one test.
func Exercise(t *testing.T, newState func(testing.TB) State) {
	t.Helper()
	t.Run("Admit", func(t *testing.T) { t.Parallel(); exerciseAdmit(t, newState) })
	t.Run("Cancel", func(t *testing.T) { t.Parallel(); exerciseCancel(t, newState) })
	t.Run("Close", func(t *testing.T) { t.Parallel(); exerciseClose(t, newState) })
	t.Run("Concurrent", func(t *testing.T) { t.Parallel(); exerciseConcurrent(t, newState) })
	t.Run("FullFor", func(t *testing.T) { t.Parallel(); exerciseFullFor(t, newState) })
	t.Run("Model", func(t *testing.T) { t.Parallel(); exerciseModel(t, newState) })
	t.Run("Release", func(t *testing.T) { t.Parallel(); exerciseRelease(t, newState) })
	t.Run("Status", func(t *testing.T) { t.Parallel(); exerciseStatus(t, newState) })
	t.Run("Sweep", func(t *testing.T) { t.Parallel(); exerciseSweep(t, newState) })
}

// defaults are the limits of most tests: two places, two in line.
var defaults = store.Limits{MaxServed: 2, MaxPending: 2, Lease: 10 * time.Second, StaleActive: time.Minute}

// id makes the n-th request id; n is also its last byte, which decides the
// part of a status.
func id(n int) wire.RequestID {
	var r wire.RequestID
	binary.BigEndian.PutUint64(r[8:], uint64(n))
	r[0] = 1
	return r
}

func ids(ns ...int) []wire.RequestID {
	out := make([]wire.RequestID, len(ns))
	for i, n := range ns {
		out[i] = id(n)
	}
	return out
}

// clock is a time that the test moves.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)} }

func (c *clock) read() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// tester is a [testing.TB] or a rapid.T.
type tester interface {
	require.TestingT
	Context() context.Context
	Helper()
}

// bundle is what one test works with: one store with a clock, and everybody
// who has been promoted.
type bundle struct {
	t      tester
	store  store.Store
	state  State
	clock  *clock
	limits store.Limits

	mu       sync.Mutex
	promoted []store.Promotion
}

func setup(t testing.TB, newState func(testing.TB) State) *bundle {
	t.Helper()
	b := newBundle(t, newState(t))
	t.Cleanup(b.store.Close)
	return b
}

// newBundle leaves closing the store to the caller.
func newBundle(t tester, state State) *bundle {
	b := &bundle{
		t: t, state: state, limits: defaults,
		clock: newClock(),
	}
	b.store = state.Open(b.clock.read, func(p []store.Promotion) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.promoted = append(b.promoted, p...)
	})
	return b
}

// item names request n of edge "e1" in group "g".
func item(n int) store.Item { return store.Item{ID: id(n), Group: "g", EdgeID: "e1"} }

// of changes the edge of an item.
func of(edge string, i store.Item) store.Item {
	i.EdgeID = edge
	return i
}

// in changes the group of an item.
func in(group string, i store.Item) store.Item {
	i.Group = group
	return i
}

// admitItems calls Admit and waits for every result.
func (b *bundle) admitItems(items ...store.AdmitItem) []store.AdmitResult {
	b.t.Helper()
	return collect(b.t, len(items), func(done func(int, store.AdmitResult)) {
		b.store.Admit(b.t.Context(), b.limits, items, done)
	})
}

// admit asks for places, in mode wait, and returns the decisions.
func (b *bundle) admit(items ...store.Item) []wire.Decision {
	b.t.Helper()
	return b.admitAs(wire.ModeWait, items...)
}

func (b *bundle) admitAs(mode wire.Mode, items ...store.Item) []wire.Decision {
	b.t.Helper()
	asked := make([]store.AdmitItem, len(items))
	for i := range items {
		asked[i] = store.AdmitItem{Item: items[i], Mode: mode}
	}
	results := b.admitItems(asked...)
	decisions := make([]wire.Decision, len(results))
	for i, r := range results {
		require.NoError(b.t, r.Err)
		decisions[i] = r.Decision
	}
	return decisions
}

// release gives places back and expects no error.
func (b *bundle) release(items ...store.Item) {
	b.t.Helper()
	for _, err := range b.tryRelease(items...) {
		require.NoError(b.t, err)
	}
}

func (b *bundle) tryRelease(items ...store.Item) []error {
	b.t.Helper()
	return collect(b.t, len(items), func(done func(int, error)) {
		b.store.Release(b.t.Context(), b.limits, items, done)
	})
}

// cancel takes requests back and returns what they were.
func (b *bundle) cancel(items ...store.Item) []wire.Was {
	b.t.Helper()
	results := collect(b.t, len(items), func(done func(int, store.CancelResult)) {
		b.store.Cancel(b.t.Context(), b.limits, items, done)
	})
	was := make([]wire.Was, len(results))
	for i, r := range results {
		require.NoError(b.t, r.Err)
		was[i] = r.Was
	}
	return was
}

// status sends a status and expects no error.
func (b *bundle) status(s store.Status) store.StatusResult {
	b.t.Helper()
	r, err := b.store.Status(b.t.Context(), b.limits, s)
	require.NoError(b.t, err)
	return r
}

func (b *bundle) reclaimDead() store.Swept {
	b.t.Helper()
	swept, err := b.store.ReclaimDead(b.t.Context(), b.limits)
	require.NoError(b.t, err)
	return swept
}

func (b *bundle) reconcile() store.Swept {
	b.t.Helper()
	swept, err := b.store.ReconcileStale(b.t.Context(), b.limits)
	require.NoError(b.t, err)
	return swept
}

// takePromoted returns who has been promoted since it was called last.
func (b *bundle) takePromoted() []store.Promotion {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.promoted
	b.promoted = nil
	return p
}

// requirePromoted compares who was promoted since the last look, in order.
func (b *bundle) requirePromoted(ns ...int) {
	b.t.Helper()
	got := []wire.RequestID{}
	for _, p := range b.takePromoted() {
		got = append(got, p.ID)
	}
	require.Equal(b.t, ids(ns...), got)
}

// requireTotals compares the number of active and waiting requests, and looks
// for damage.
func (b *bundle) requireTotals(active, waiting int) {
	b.t.Helper()
	totals, err := b.store.Totals(b.t.Context())
	require.NoError(b.t, err)
	require.Equal(b.t, []int{active, waiting}, []int{totals.Active, totals.Waiting}, "active, waiting")
	require.NoError(b.t, b.state.Check())
}

// collect makes a call, waits until each of n items has been reported, and
// fails the test if one is reported twice.
func collect[R any](t tester, n int, call func(done func(int, R))) []R {
	t.Helper()
	var (
		mu      sync.Mutex
		results = make([]R, n)
		seen    = make([]bool, n)
		twice   bool
		all     sync.WaitGroup
	)
	all.Add(n)
	call(func(i int, r R) {
		mu.Lock()
		defer mu.Unlock()
		if seen[i] {
			twice = true
			return
		}
		results[i], seen[i] = r, true
		all.Done()
	})
	all.Wait()
	mu.Lock()
	defer mu.Unlock()
	require.False(t, twice, "an item was reported twice")
	return results
}
