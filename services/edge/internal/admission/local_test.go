package admission

import (
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/pkg/wire"
)

func fallback(o *Options) { o.Fallback = true }

// fill takes all places and all of the line that this edge keeps by itself.
func fill(t *testing.T, w *world) (holders, waiting []*visitor) {
	t.Helper()
	for range testLimits.MaxServed {
		v := w.arrive(groupA, nil)
		require.True(t, w.is(v, Local).Pass)
		holders = append(holders, v)
	}
	for range testLimits.MaxPending {
		v := w.arrive(groupA, nil)
		w.undecided(v)
		waiting = append(waiting, v)
	}
	return holders, waiting
}

func TestLocalCapsInOrder(t *testing.T) {
	t.Parallel()
	run(t, fallback, func(w *world) {
		t := w.t
		fall(t, w)
		holders, waiting := fill(t, w)
		outcome := w.is(w.arrive(groupA, nil), QueueFull)
		require.False(t, outcome.Pass)
		require.Equal(t, defaultRetryAfter, outcome.RetryAfter)
		w.is(w.arrive(groupB, nil), Local)

		order := slices.Concat(holders, waiting)
		for i, v := range order {
			for j := testLimits.MaxServed + i; j < len(order); j++ {
				w.undecided(order[j])
			}
			w.finish(v)
			if next := testLimits.MaxServed + i; next < len(order) {
				w.is(order[next], Local)
			}
		}
	})
}

func TestLocalUsesTheLimitsLastSeen(t *testing.T) {
	t.Parallel()
	run(t, fallback, func(w *world) {
		t := w.t
		w.co.tell(func(c *coordinator) { c.admit.Limits = wire.Limits{MaxServed: 4, MaxPending: 0} })
		w.is(w.arrive(groupA, nil), Admitted) // counts as one of the four
		fall(t, w)
		for range 3 {
			w.is(w.arrive(groupA, nil), Local)
		}
		w.is(w.arrive(groupA, nil), QueueFull)
	})
}

// Those that ask and wait when the outage begins are counted alone too.
func TestLocalTakesOverThoseInLine(t *testing.T) {
	t.Parallel()
	run(t, fallback, func(w *world) {
		t := w.t
		var visitors []*visitor
		for range testLimits.MaxServed + 1 {
			v, _ := inLine(w, nil)
			visitors = append(visitors, v)
		}
		fall(t, w)
		decided := 0
		for _, v := range visitors {
			select {
			case <-v.decided:
				decided++
				w.is(v, Local)
			default:
			}
		}
		require.Equal(t, testLimits.MaxServed, decided)
		for _, v := range visitors {
			v.leave()
		}
	})
}

func TestLocalLineIsLeft(t *testing.T) {
	t.Parallel()
	run(t, fallback, func(w *world) {
		t := w.t
		fall(t, w)
		holders, waiting := fill(t, w)
		waiting[0].leave()
		synctest.Wait()
		w.is(waiting[0], ClientGone)
		var gone atomic.Bool
		last := w.arrive(groupA, gone.Load)
		w.undecided(last)
		gone.Store(true)
		pass(testPollInterval)
		w.is(last, ClientGone)

		w.finish(holders[0])
		w.is(waiting[1], Local)
		w.undecided(waiting[2])
		pass(testPendingTimeout)
		outcome := w.is(waiting[2], QueueTimeout)
		require.False(t, outcome.Pass)
		require.Equal(t, defaultRetryAfter, outcome.RetryAfter)
		require.LessOrEqual(t, outcome.Waited, testPendingTimeout)
	})
}

func TestLocalTurnOfOneThatLeavesIsPassedOn(t *testing.T) {
	t.Parallel()
	run(t, fallback, func(w *world) {
		t := w.t
		fall(t, w)
		holders, waiting := fill(t, w)
		waiting[0].leave() // at the same time as its turn comes
		holders[0].ticket.Done()
		synctest.Wait()
		if waiting[0].outcome.Reason == Local {
			waiting[0].ticket.Done()
			synctest.Wait()
		}
		w.is(waiting[1], Local)
		w.undecided(waiting[2])
		waiting[2].leave()
	})
}

func TestLocalHandsOver(t *testing.T) {
	t.Parallel()
	run(t, fallback, func(w *world) {
		t := w.t
		fall(t, w)
		holders, waiting := fill(t, w)
		pass(4 * time.Second)
		asked := len(w.co.asked())
		_, active := w.gate.tickets.list()
		require.Len(t, active, len(holders))
		w.co.tell(func(c *coordinator) {
			c.admit = queued
			c.cancel = wire.WasPending
			unknown := active // until they are asserted
			c.onStatus = func(call *statusCall) {
				call.Reply(wire.StatusReply{Unknown: unknown})
				unknown = nil
			}
		})
		rise(t, w)
		w.co.tell(func(c *coordinator) { c.onStatus = nil })

		var heldIDs, waitingIDs []wire.RequestID
		for _, a := range w.co.asked()[asked:] {
			if a.Mode == wire.ModeHeld {
				require.Empty(t, waitingIDs, "asserted before anybody asks")
				heldIDs = append(heldIDs, a.RequestID)
			} else {
				waitingIDs = append(waitingIDs, a.RequestID)
			}
		}
		require.Subset(t, active, heldIDs)
		require.GreaterOrEqual(t, len(heldIDs), len(active))
		require.Len(t, waitingIDs, len(waiting))
		for _, v := range waiting {
			w.undecided(v)
		}
		// Their own arrival counts.
		pass(testPendingTimeout - 4*time.Second)
		for _, v := range waiting {
			w.is(v, QueueTimeout)
		}
		for _, v := range holders {
			w.finish(v)
		}
		require.Subset(t, ids(w.co.released()), active)
		pass(2 * time.Second)
		w.clean()
	})
}

func ids(items []wire.Item) []wire.RequestID {
	out := make([]wire.RequestID, len(items))
	for i, item := range items {
		out[i] = item.RequestID
	}
	return out
}

// A question that fails while others are answered passes; the edge does not
// begin to count alone, and nobody waits in a line of its own.
func TestLocalIsForOutagesOnly(t *testing.T) {
	t.Parallel()
	run(t, fallback, func(w *world) {
		t := w.t
		w.co.tell(func(c *coordinator) { c.onAdmit = func(call *admitCall) { call.Fail("busy", "locked") } })
		for range testLimits.MaxServed + testLimits.MaxPending + 5 {
			v := w.arrive(groupA, nil)
			require.Equal(t, CauseBusy, w.is(v, FailOpen).Cause)
			v.ticket.Done()
		}
	})
}

// The turn that comes when the line is left is not lost.
func TestLineQuitAfterTheTurn(t *testing.T) {
	t.Parallel()
	var table groupTable
	table.init()
	gr := table.pin(groupA)
	limits := wire.Limits{MaxServed: 1, MaxPending: 2}
	require.True(t, gr.join(limits).granted)
	second, third := gr.join(limits), gr.join(limits)
	require.Nil(t, gr.join(limits).turn, "the line is full")
	gr.unhold()
	require.False(t, gr.quit(second), "its turn has come")
	require.True(t, gr.quit(third))
	require.Equal(t, 1, gr.held)
	gr.unhold()
	require.Zero(t, gr.held)
}
