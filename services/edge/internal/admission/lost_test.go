package admission

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/pkg/bus"
	"github.com/ccnq/ccnq/pkg/wire"
)

func TestLostReplyIsAskedForOnceMore(t *testing.T) {
	t.Parallel()
	run(t, nil, func(w *world) {
		t := w.t
		calls := make(chan *admitCall, 3)
		w.co.tell(func(c *coordinator) { c.onAdmit = func(call *admitCall) { calls <- call } })
		v := w.arrive(groupA, nil)
		first := <-calls
		pass(askAgain - 1)
		require.Empty(t, calls)
		pass(1)
		second := <-calls
		require.Equal(t, first.Request.RequestID, second.Request.RequestID)
		require.Less(t, second.Request.BudgetMS, first.Request.BudgetMS)
		w.undecided(v)
		second.Reply(admitted)
		synctest.Wait()
		w.is(v, Admitted)
		first.Reply(admitted)
		synctest.Wait()
		w.finish(v)
		require.Len(t, w.co.asked(), 2)
		require.Len(t, w.co.released(), 1)
		w.clean()
	})
}

// An answer at the very end of the budget is still heard.
func TestAnswerAtTheEndOfTheBudget(t *testing.T) {
	t.Parallel()
	run(t, nil, func(w *world) {
		t := w.t
		calls := make(chan *admitCall, 3)
		w.co.tell(func(c *coordinator) { c.onAdmit = func(call *admitCall) { calls <- call } })
		v := w.arrive(groupA, nil)
		<-calls
		pass(askAgain)
		second := <-calls
		pass(second.Request.Budget())
		second.Fail(bus.CodeBusy, "locked")
		synctest.Wait()
		require.Equal(t, CauseBusy, w.is(v, FailOpen).Cause)
	})
}

// passed returns a visitor whose admit was not answered, and how often it was
// asked. Cancels are not answered either.
func passed(t *testing.T, w *world) *visitor {
	t.Helper()
	w.co.tell(func(c *coordinator) {
		c.onAdmit = func(*admitCall) {}
		c.onCancel = func(*cancelCall) {}
	})
	v := w.arrive(groupA, nil)
	pass(testAdmitTimeout - 1)
	w.undecided(v)
	pass(1)
	outcome := w.is(v, FailOpen)
	require.True(t, outcome.Pass)
	require.Equal(t, CauseTimeout, outcome.Cause)
	require.Equal(t, testAdmitTimeout, outcome.Waited)
	require.Len(t, w.co.asked(), 3)
	return v
}

func TestUnansweredPassesAndIsCancelled(t *testing.T) {
	t.Parallel()
	run(t, nil, func(w *world) {
		t := w.t
		v := passed(t, w)
		id := w.co.asked()[0].RequestID
		pass(3 * time.Second)
		cancels := w.co.cancelled()
		require.GreaterOrEqual(t, len(cancels), 2, "until it is acknowledged")
		require.Equal(t, id, cancels[0].RequestID)
		w.co.tell(func(c *coordinator) { c.onCancel = nil })
		pass(2 * time.Second)
		n := len(w.co.cancelled())
		pass(10 * time.Second)
		require.Len(t, w.co.cancelled(), n, "acknowledged")
		status := w.co.polled()[len(w.co.polled())-1]
		require.Empty(t, status.Active)
		require.Empty(t, status.Waiting)
		w.finish(v)
		pass(time.Second)
		require.Empty(t, w.co.released())
		w.clean()
	})
}

func TestUnansweredThatWasAdmittedKeepsItsPlace(t *testing.T) {
	t.Parallel()
	run(t, nil, func(w *world) {
		t := w.t
		v := passed(t, w)
		w.co.tell(func(c *coordinator) { c.onCancel, c.cancel = nil, wire.WasActive })
		pass(4 * time.Second)
		require.Empty(t, w.co.released())
		require.Equal(t, 1, value(w.gate.metrics.held))
		status := w.co.polled()[len(w.co.polled())-1]
		require.Equal(t, []wire.RequestID{w.co.asked()[0].RequestID}, status.Active)
		w.finish(v)
		require.Len(t, w.co.released(), 1)
		w.clean()
	})
}

func TestUnansweredThatIsOverReleasesItsPlace(t *testing.T) {
	t.Parallel()
	run(t, nil, func(w *world) {
		t := w.t
		v := passed(t, w)
		w.finish(v)
		require.Empty(t, w.co.released())
		w.co.tell(func(c *coordinator) { c.onCancel, c.cancel = nil, wire.WasActive })
		pass(4 * time.Second)
		require.Len(t, w.co.released(), 1)
		w.clean()
	})
}

// The push of a place that nobody could tell the edge of otherwise.
func TestUnansweredThatIsPromotedKeepsItsPlace(t *testing.T) {
	t.Parallel()
	run(t, nil, func(w *world) {
		t := w.t
		v := passed(t, w)
		w.co.promote(w.co.asked()[0].RequestID)
		synctest.Wait()
		require.Equal(t, 1, value(w.gate.metrics.held))
		w.co.tell(func(c *coordinator) { c.onCancel, c.cancel = nil, wire.WasActive })
		pass(4 * time.Second)
		w.finish(v)
		require.Len(t, w.co.released(), 1)
		w.clean()
	})
}

func TestPromotedWhileTheReplyIsLost(t *testing.T) {
	t.Parallel()
	run(t, nil, func(w *world) {
		t := w.t
		w.co.tell(func(c *coordinator) { c.onAdmit = func(call *admitCall) { w.co.promote(call.Request.RequestID) } })
		v := w.arrive(groupA, nil)
		pass(testAdmitTimeout)
		w.is(v, Promoted)
		require.Empty(t, w.co.cancelled())
		w.finish(v)
		require.Len(t, w.co.released(), 1)
		w.clean()
	})
}

// Two coordinators answered the two copies of a question differently.
func TestPromotedAndRejected(t *testing.T) {
	t.Parallel()
	run(t, nil, func(w *world) {
		t := w.t
		calls := make(chan *admitCall, 1)
		w.co.tell(func(c *coordinator) { c.onAdmit = func(call *admitCall) { calls <- call } })
		v := w.arrive(groupA, nil)
		call := <-calls
		w.co.promote(call.Request.RequestID)
		synctest.Wait()
		call.Reply(rejected(0))
		synctest.Wait()
		w.is(v, QueueFull)
		require.Len(t, w.co.released(), 1)
		w.clean()
	})
}

func TestErrorsPass(t *testing.T) {
	t.Parallel()
	for code, cause := range map[bus.Code]Cause{
		bus.CodeBusy:        CauseBusy,
		bus.CodeExpired:     CauseTimeout,
		bus.CodeUnavailable: CauseUnavailable,
		bus.CodeInvalid:     CauseError,
		"other":             CauseError,
	} {
		t.Run(string(code), func(t *testing.T) {
			t.Parallel()
			run(t, nil, func(w *world) {
				t := w.t
				w.co.tell(func(c *coordinator) { c.onAdmit = func(call *admitCall) { call.Fail(code, "as told") } })
				v := w.arrive(groupA, nil)
				outcome := w.is(v, FailOpen)
				require.True(t, outcome.Pass)
				require.Equal(t, cause, outcome.Cause)
				require.Equal(t, 1, value(w.gate.metrics.failOpen.WithLabelValues(string(cause))))
				w.finish(v)
				require.Len(t, w.co.cancelled(), 1)
				w.clean()
			})
		})
	}
}

func TestUnreadableReplyPasses(t *testing.T) {
	t.Parallel()
	run(t, nil, func(w *world) {
		t := w.t
		w.co.tell(func(c *coordinator) { c.admit.Decision = "perhaps" })
		v := w.arrive(groupA, nil)
		require.Equal(t, CauseError, w.is(v, FailOpen).Cause)
		w.finish(v)
		w.clean()
	})
}
