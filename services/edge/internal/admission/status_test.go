package admission

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/pkg/wire"
)

func TestStatusSaysWhoSendsIt(t *testing.T) {
	t.Parallel()
	run(t, nil, func(w *world) {
		t := w.t
		pass(3 * time.Second)
		statuses := w.co.polled()
		require.Len(t, statuses, 4)
		for i, s := range statuses {
			require.EqualValues(t, 5000, s.LeaseMS)
			require.EqualValues(t, 2000, s.StaleMS)
			require.Equal(t, 1, s.Parts)
			require.NotNil(t, s.Waiting)
			require.NotNil(t, s.Active)
			if i > 0 {
				require.Greater(t, s.Epoch, statuses[i-1].Epoch)
			}
		}
	})
}

// A status that is not answered does not put off the next one, on which the
// lease depends.
func TestStatusKeepsItsRhythm(t *testing.T) {
	t.Parallel()
	run(t, nil, func(w *world) {
		t := w.t
		w.co.tell(func(c *coordinator) { c.onStatus = func(*statusCall) {} })
		pass(2 * time.Second)
		statuses := w.co.polled()
		require.Len(t, statuses, 5, "the one in the middle is asked three times")
		begun := func(i int) int64 { return statuses[i].Epoch - statuses[0].Epoch } // µs
		require.Equal(t, []int64{1e6, 1e6 + askAgain.Microseconds(), 1e6 + askLast.Microseconds(), 2e6},
			[]int64{begun(1), begun(2), begun(3), begun(4)})
	})
}

func TestStatusLostWaitingAskAnew(t *testing.T) {
	t.Parallel()
	run(t, nil, func(w *world) {
		t := w.t
		first, firstID := inLine(w, nil)
		second, secondID := inLine(w, nil)
		third, thirdID := inLine(w, nil)
		pass(4 * time.Second)
		asked := len(w.co.asked())
		w.co.tell(func(c *coordinator) { c.status.Unknown = []wire.RequestID{thirdID, newID(), firstID, secondID} })
		pass(testPollInterval)
		w.co.tell(func(c *coordinator) { c.status.Unknown = nil })
		anew := w.co.asked()[asked:]
		require.Len(t, anew, 3)
		for i, id := range []wire.RequestID{firstID, secondID, thirdID} {
			require.Equal(t, id, anew[i].RequestID, "in the order of arrival")
			require.Equal(t, wire.ModeWait, anew[i].Mode)
		}
		w.co.promote(firstID)
		synctest.Wait()
		w.is(first, Promoted)
		w.undecided(second)
		// The arrival counts, not the second question.
		w.co.tell(func(c *coordinator) { c.cancel = wire.WasPending })
		pass(testPendingTimeout - 4*time.Second - testPollInterval)
		w.is(second, QueueTimeout)
		w.is(third, QueueTimeout)
		w.finish(first)
		w.clean()
	})
}

func TestStatusLostWaitingIsAdmitted(t *testing.T) {
	t.Parallel()
	run(t, nil, func(w *world) {
		t := w.t
		v, id := inLine(w, nil)
		w.co.tell(func(c *coordinator) { c.admit, c.status.Unknown = rejected(0), []wire.RequestID{id} })
		pass(2 * testPollInterval)
		w.undecided(v) // the line is full; it is asked again
		w.co.tell(func(c *coordinator) { c.admit = admitted })
		pass(testPollInterval)
		w.is(v, Promoted)
		w.co.tell(func(c *coordinator) { c.status.Unknown = nil })
		w.finish(v)
		require.Len(t, w.co.released(), 1)
		w.clean()
	})
}

func TestStatusLostPlacesAreAsserted(t *testing.T) {
	t.Parallel()
	run(t, nil, func(w *world) {
		t := w.t
		v := w.arrive(groupA, nil)
		id := w.co.asked()[0].RequestID
		line, lineID := inLine(w, nil)
		w.co.tell(func(c *coordinator) { c.status.Unknown = []wire.RequestID{lineID, id} })
		pass(testPollInterval)
		w.co.tell(func(c *coordinator) { c.status.Unknown = nil })
		anew := w.co.asked()[2:]
		require.Len(t, anew, 2)
		require.Equal(t, id, anew[0].RequestID, "who holds a place comes before who waits")
		require.Equal(t, wire.ModeHeld, anew[0].Mode)
		require.Equal(t, lineID, anew[1].RequestID)
		require.Equal(t, 1, value(w.gate.metrics.asserted))
		w.finish(v)
		require.Len(t, w.co.released(), 1)
		line.leave()
		w.clean()
	})
}

// It ends while it is asserted, and its release may have been faster.
func TestStatusAssertsWhatEndsMeanwhile(t *testing.T) {
	t.Parallel()
	run(t, nil, func(w *world) {
		t := w.t
		v := w.arrive(groupA, nil)
		id := w.co.asked()[0].RequestID
		calls := make(chan *admitCall, 1)
		w.co.tell(func(c *coordinator) {
			c.status.Unknown = []wire.RequestID{id}
			c.onAdmit = func(call *admitCall) { calls <- call }
		})
		call := <-calls
		w.finish(v)
		require.Len(t, w.co.released(), 1)
		w.co.tell(func(c *coordinator) { c.status.Unknown, c.cancel = nil, wire.WasActive })
		call.Reply(admitted)
		synctest.Wait()
		require.Len(t, w.co.released(), 2)
		w.clean()
	})
}

func TestStatusInParts(t *testing.T) {
	t.Parallel()
	run(t, nil, func(w *world) {
		t := w.t
		const n = partSize*2 + 5
		group := w.gate.groups.pin(groupA)
		tickets := make([]*Ticket, n)
		for i := range tickets {
			tickets[i] = w.gate.newTicket(group)
			tickets[i].moveTo(held)
		}
		group.unpin()
		before := len(w.co.polled())
		pass(statusInterval)
		statuses := w.co.polled()[before:]
		require.Len(t, statuses, 3)
		var all []wire.RequestID
		for i, s := range statuses {
			require.Equal(t, i, s.Part)
			require.Equal(t, 3, s.Parts)
			for _, id := range s.Active {
				require.Equal(t, i, id.Part(3))
			}
			all = append(all, s.Active...)
		}
		require.Len(t, all, n)
		for _, ticket := range tickets {
			ticket.end()
		}
		require.Zero(t, value(w.gate.metrics.held))
		require.False(t, slices.ContainsFunc(all, func(id wire.RequestID) bool { return w.gate.tickets.get(id) != nil }))
	})
}
