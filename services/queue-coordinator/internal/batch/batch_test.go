package batch

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// far is a deadline that no test reaches.
func far() time.Time { return time.Now().Add(time.Hour) }

// gate is a Run that waits in each batch until the test lets it go on.
type gate struct {
	batches chan []int
	next    chan struct{}
	dropped chan dropped
}

type dropped struct {
	item   int
	reason error
}

func newGate() *gate {
	return &gate{
		batches: make(chan []int),
		next:    make(chan struct{}),
		dropped: make(chan dropped, 100),
	}
}

func (g *gate) options(maxBatch, maxInFlight, maxWaiting int) Options[int] {
	return Options[int]{
		Run: func(items []int) {
			g.batches <- append([]int(nil), items...)
			<-g.next
		},
		Drop:        func(item int, reason error) { g.dropped <- dropped{item, reason} },
		MaxBatch:    maxBatch,
		MaxInFlight: maxInFlight,
		MaxWaiting:  maxWaiting,
	}
}

func TestLoneItemGoesAtOnceAlone(t *testing.T) {
	t.Parallel()
	g := newGate()
	b := New(g.options(10, 2, 10))
	b.Submit(1, far())
	require.Equal(t, []int{1}, <-g.batches)
	b.Submit(2, far())
	require.Equal(t, []int{2}, <-g.batches, "the second call is free")
	require.Equal(t, 2, b.InFlight())
	close(g.next)
	b.Stop()
	require.Zero(t, b.InFlight())
}

func TestThoseThatArriveMeanwhileFormTheNextBatch(t *testing.T) {
	t.Parallel()
	g := newGate()
	b := New(g.options(3, 1, 10))
	b.Submit(0, far())
	require.Equal(t, []int{0}, <-g.batches)
	for i := 1; i <= 5; i++ {
		b.Submit(i, far())
	}
	require.Equal(t, 5, b.Waiting())
	g.next <- struct{}{}
	require.Equal(t, []int{1, 2, 3}, <-g.batches, "no more than the greatest size")
	g.next <- struct{}{}
	require.Equal(t, []int{4, 5}, <-g.batches)
	g.next <- struct{}{}
	b.Stop()
	require.Zero(t, b.Waiting())
}

func TestRefusesWhatIsTooMuch(t *testing.T) {
	t.Parallel()
	g := newGate()
	b := New(g.options(10, 1, 2))
	b.Submit(0, far())
	<-g.batches
	b.Submit(1, far())
	b.Submit(2, far())
	b.Submit(3, far())
	require.Equal(t, dropped{3, ErrFull}, <-g.dropped)
	g.next <- struct{}{}
	require.Equal(t, []int{1, 2}, <-g.batches)
	g.next <- struct{}{}
	b.Stop()
}

func TestStopServesWhatWaitsAndRefusesTheRest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		b := New(g.options(10, 1, 10))
		b.Submit(0, far())
		<-g.batches
		b.Submit(1, far())
		stopped := make(chan struct{})
		go func() { b.Stop(); close(stopped) }()
		synctest.Wait()
		b.Submit(2, far())
		require.Equal(t, dropped{2, ErrStopped}, <-g.dropped)
		g.next <- struct{}{}
		require.Equal(t, []int{1}, <-g.batches)
		select {
		case <-stopped:
			require.Fail(t, "stopped while a batch was in flight")
		default:
		}
		g.next <- struct{}{}
		<-stopped
		b.Stop()
	})
}

func TestDropsWhatWaitedPastItsTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		b := New(g.options(10, 1, 10))
		b.Submit(0, far())
		<-g.batches
		b.Submit(1, time.Now().Add(time.Second))
		b.Submit(2, time.Now().Add(2*time.Second))
		b.Submit(3, time.Now().Add(time.Second))
		<-time.After(time.Second) // of the bubble
		g.next <- struct{}{}
		require.Equal(t, []int{2}, <-g.batches)
		require.Equal(t, dropped{1, ErrExpired}, <-g.dropped)
		require.Equal(t, dropped{3, ErrExpired}, <-g.dropped)
		// A batch of which nothing is left is not run.
		b.Submit(4, time.Now())
		g.next <- struct{}{}
		require.Equal(t, dropped{4, ErrExpired}, <-g.dropped)
		b.Stop()
	})
}

// TestEveryItemOnce hands over many items from many goroutines, through every
// path, and counts them.
func TestEveryItemOnce(t *testing.T) {
	t.Parallel()
	const producers, each = 16, 2_000
	seen := make([]atomic.Int32, producers*each)
	var inFlight, most atomic.Int32
	b := New(Options[int]{
		Run: func(items []int) {
			if n := inFlight.Add(1); n > most.Load() {
				most.Store(n)
			}
			for _, i := range items {
				seen[i].Add(1)
			}
			inFlight.Add(-1)
		},
		Drop:     func(i int, _ error) { seen[i].Add(1) },
		MaxBatch: 7, MaxInFlight: 2, MaxWaiting: 64,
	})
	var wg sync.WaitGroup
	for p := range producers {
		wg.Go(func() {
			for i := range each {
				deadline := far()
				if i%10 == 0 {
					deadline = time.Now()
				}
				b.Submit(p*each+i, deadline)
			}
		})
	}
	wg.Wait()
	b.Stop()
	for i := range seen {
		require.EqualValues(t, 1, seen[i].Load(), "item %d", i)
	}
	require.LessOrEqual(t, most.Load(), int32(2))
}

func TestKeepsOrderWithOneCallInFlight(t *testing.T) {
	t.Parallel()
	var got []int
	b := New(Options[int]{
		Run:      func(items []int) { got = append(got, items...) },
		Drop:     func(int, error) {},
		MaxBatch: 3, MaxInFlight: 1, MaxWaiting: 100_000,
	})
	for i := range 10_000 {
		b.Submit(i, far())
	}
	b.Stop()
	require.Len(t, got, 10_000)
	for i, v := range got {
		require.Equal(t, i, v)
	}
}
