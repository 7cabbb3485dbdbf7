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
		calls := w.co.admitCalls()
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
		calls := w.co.admitCalls()
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
		calls := w.co.admitCalls()
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
				if code == bus.CodeExpired { // see TestExpiredTooEarlyIsAskedAgain
					w.undecided(v)
					pass(askLast)
				}
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

// A cancel that takes long is sent again, and the second copy finds nothing. What
// the first was told counts, whatever comes first.
func TestSlowCancelIsNotTakenForForgotten(t *testing.T) {
	t.Parallel()
	for name, swapped := range map[string]bool{"in order": false, "swapped": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, nil, func(w *world) {
				t := w.t
				calls := w.co.cancelCalls()
				w.co.tell(func(c *coordinator) { c.admit = queued })
				v := w.arrive(groupA, nil)
				pass(testPendingTimeout)
				first := <-calls
				pass(askAgain)
				second := <-calls
				if swapped {
					second.Reply(wire.CancelReply{Was: wire.WasGone})
					synctest.Wait()
					w.undecided(v)
					pass(askLast)
					require.Empty(t, calls, "asking once more would not help")
				}
				first.Reply(wire.CancelReply{Was: wire.WasPending})
				synctest.Wait()
				w.is(v, QueueTimeout)
			})
		})
	}
}

// If nobody tells what the first copy of a cancel was told, the request passes in
// the end.
func TestForgottenIsTakenWhenNothingElseComes(t *testing.T) {
	t.Parallel()
	run(t, nil, func(w *world) {
		calls := w.co.cancelCalls()
		w.co.tell(func(c *coordinator) { c.admit = queued })
		v := w.arrive(groupA, nil)
		pass(testPendingTimeout)
		<-calls
		pass(askAgain)
		(<-calls).Reply(wire.CancelReply{Was: wire.WasGone})
		pass(testAdmitTimeout - askAgain - 1)
		w.undecided(v)
		pass(1)
		require.Equal(w.t, CauseForgotten, w.is(v, FailOpen).Cause)
	})
}

// The late answer to the first copy of a question is as good as another.
func TestLateAnswerCounts(t *testing.T) {
	t.Parallel()
	run(t, nil, func(w *world) {
		calls := w.co.admitCalls()
		v := w.arrive(groupA, nil)
		first := <-calls
		pass(askAgain)
		<-calls
		first.Reply(admitted)
		synctest.Wait()
		w.is(v, Admitted)
		w.finish(v)
	})
}

// A coordinator that had stood still does not know how long a request has waited,
// and says that it expired. The edge knows better.
func TestExpiredTooEarlyIsAskedAgain(t *testing.T) {
	t.Parallel()
	run(t, nil, func(w *world) {
		calls := w.co.admitCalls()
		v := w.arrive(groupA, nil)
		(<-calls).Fail(bus.CodeExpired, "stood still")
		pass(askAgain)
		(<-calls).Fail(bus.CodeExpired, "stood still")
		pass(askLast - askAgain)
		w.undecided(v)
		(<-calls).Reply(admitted)
		synctest.Wait()
		w.is(v, Admitted)
		w.finish(v)

		v = w.arrive(groupB, nil)
		for _, after := range []time.Duration{askAgain, askLast - askAgain, 0} {
			(<-calls).Fail(bus.CodeExpired, "stood still")
			pass(after)
		}
		require.Equal(w.t, CauseTimeout, w.is(v, FailOpen).Cause, "there is no fourth")
	})
}

// A status that is not answered does not keep the next one back for as long as the
// lease lasts.
func TestLostStatusDoesNotEndTheLease(t *testing.T) {
	t.Parallel()
	run(t, func(o *Options) { o.AdmitTimeout = 20 * time.Second }, func(w *world) {
		w.co.tell(func(c *coordinator) { c.mute = true })
		for len(w.co.polled()) == 0 {
			pass(statusInterval / 10)
		}
		before := len(w.co.polled())
		w.co.tell(func(c *coordinator) { c.mute = false })
		pass(w.gate.opts.Lease / 3)
		require.Greater(w.t, len(w.co.polled()), before)
	})
}
