package storetest

import (
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/pkg/wire"
	"github.com/ccnq/ccnq/services/queue-coordinator/internal/store"
)

// exerciseConcurrent is several coordinators at work on one state with real
// concurrency.
func exerciseConcurrent(t *testing.T, newState func(testing.TB) State) {
	t.Helper()
	t.Run("DeadEdgesDoNotLeak", func(t *testing.T) {
		t.Parallel()
		f := newField(t, newState(t), store.Limits{MaxServed: 3, MaxPending: 4})
		f.run(8, 60, func(r *rand.Rand, w *worker) {
			switch d := w.admit(); {
			case d == wire.Rejected:
			case r.IntN(4) == 0: // the edge dies with it
				w.abandon()
			case d == wire.Queued:
				w.cancel()
			default:
				w.release()
			}
		})
		_, err := f.stores[0].ReclaimDead(t.Context(), f.limits)
		require.NoError(t, err)
		require.NotZero(t, f.totals().Active+f.totals().Waiting, "nobody is dead yet")
		f.clock.advance(2 * f.limits.Lease)
		_, err = f.stores[1].ReclaimDead(t.Context(), f.limits)
		require.NoError(t, err)
		f.requireEmpty()
	})

	t.Run("F17_NeverMoreThanTheLimit", func(t *testing.T) {
		t.Parallel()
		f := newField(t, newState(t), store.Limits{MaxServed: 10, MaxPending: 200})
		f.groups = []string{"g"}
		f.run(40, 5, func(_ *rand.Rand, w *worker) {
			if w.admit() == wire.Queued {
				w.wait()
			}
			w.release()
		})
		require.Equal(t, 40*5, f.served())
		f.requireEmpty()
	})

	t.Run("RandomWork", func(t *testing.T) {
		t.Parallel()
		f := newField(t, newState(t), store.Limits{MaxServed: 2, MaxPending: 3})
		f.run(16, 60, func(r *rand.Rand, w *worker) {
			d := w.admit()
			if d == wire.Rejected {
				return
			}
			if d == wire.Queued {
				if r.IntN(2) == 0 && w.cancel() == wire.WasPending {
					return
				}
				w.wait()
			}
			if r.IntN(3) == 0 {
				require.Equal(w.f.t, wire.Admitted, w.admit(), "idempotent while it holds the place")
			}
			w.release()
		})
		f.requireEmpty()
	})
}

// field is a state with two stores and the places of every group as the edges
// see them.
type field struct {
	t      testing.TB
	state  State
	clock  *clock
	stores []store.Store
	limits store.Limits
	groups []string

	mu sync.Mutex
	// turns holds a channel for each request that may wait; it is closed by
	// the promotion.
	turns map[wire.RequestID]chan struct{}
	// held counts the places of each group that are in use.
	held  map[string]int
	most  int
	count int
}

func newField(t testing.TB, state State, limits store.Limits) *field {
	t.Helper()
	limits.Lease, limits.StaleActive = defaults.Lease, defaults.StaleActive
	f := &field{
		t: t, state: state, limits: limits, groups: []string{"a", "b", "c", "d"},
		clock: newClock(),
		turns: map[wire.RequestID]chan struct{}{}, held: map[string]int{},
	}
	for range 2 {
		s := state.Open(f.clock.read, f.onPromoted)
		t.Cleanup(s.Close)
		f.stores = append(f.stores, s)
	}
	return f
}

func (f *field) onPromoted(promoted []store.Promotion) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range promoted {
		if turn := f.turns[p.ID]; turn != nil {
			close(turn)
			delete(f.turns, p.ID)
		}
	}
}

// run lets n workers do the job so many times each, with a new request and a
// random group each time.
func (f *field) run(n, times int, job func(*rand.Rand, *worker)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 7))
			for k := range times {
				w := &worker{f: f, store: f.stores[i%len(f.stores)], turn: make(chan struct{})}
				w.item = store.Item{
					ID: id(1 + i*times + k), Group: f.groups[r.IntN(len(f.groups))],
					EdgeID: []string{"e1", "e2"}[i%2],
				}
				f.mu.Lock()
				f.turns[w.item.ID] = w.turn
				f.mu.Unlock()
				job(r, w)
			}
		})
	}
	all.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	require.LessOrEqual(f.t, f.most, f.limits.MaxServed, "places of one group in use at once")
}

func (f *field) totals() store.Totals {
	totals, err := f.stores[0].Totals(f.t.Context())
	require.NoError(f.t, err)
	return totals
}

func (f *field) served() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.count
}

func (f *field) requireEmpty() {
	f.t.Helper()
	totals := f.totals()
	require.Equal(f.t, store.Totals{Groups: len(f.groups)}, totals)
	require.NoError(f.t, f.state.Check())
}

// worker is one request and the edge that serves it.
type worker struct {
	f     *field
	store store.Store
	item  store.Item
	turn  chan struct{}
	holds bool
}

// enter is the request at the origin.
func (w *worker) enter() {
	if w.holds {
		return
	}
	w.holds = true
	w.f.mu.Lock()
	defer w.f.mu.Unlock()
	w.f.held[w.item.Group]++
	w.f.most = max(w.f.most, w.f.held[w.item.Group])
	w.f.count++
}

// leave ends it, before the place is given back.
func (w *worker) leave() {
	if !w.holds {
		return
	}
	w.holds = false
	w.f.mu.Lock()
	defer w.f.mu.Unlock()
	w.f.held[w.item.Group]--
}

func (w *worker) admit() wire.Decision {
	r := collect(w.f.t, 1, func(done func(int, store.AdmitResult)) {
		w.store.Admit(w.f.t.Context(), w.f.limits, []store.AdmitItem{{Item: w.item}}, done)
	})[0]
	require.NoError(w.f.t, r.Err)
	if r.Decision == wire.Admitted {
		w.enter()
	}
	return r.Decision
}

// wait waits for the promotion.
func (w *worker) wait() {
	<-w.turn
	w.enter()
}

func (w *worker) cancel() wire.Was {
	r := collect(w.f.t, 1, func(done func(int, store.CancelResult)) {
		w.store.Cancel(w.f.t.Context(), w.f.limits, []store.Item{w.item}, done)
	})[0]
	require.NoError(w.f.t, r.Err)
	return r.Was
}

func (w *worker) release() {
	w.leave()
	err := collect(w.f.t, 1, func(done func(int, error)) {
		w.store.Release(w.f.t.Context(), w.f.limits, []store.Item{w.item}, done)
	})[0]
	require.NoError(w.f.t, err)
}

// abandon leaves without giving the place back.
func (w *worker) abandon() { w.leave() }
