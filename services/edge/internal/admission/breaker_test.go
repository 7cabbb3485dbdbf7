package admission

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/pkg/bus"
	"github.com/ccnq/ccnq/pkg/wire"
)

// fall lets the coordinator fall silent and returns when the gate has noticed.
func fall(t *testing.T, w *world) {
	t.Helper()
	w.co.tell(func(c *coordinator) { c.mute = true })
	for range breakerFailures {
		v := w.arrive(groupB, nil)
		pass(testAdmitTimeout)
		<-v.decided
		require.True(t, v.outcome.Pass)
		v.ticket.Done()
	}
	require.NotEmpty(t, w.gate.Degraded())
}

// rise lets it answer again and returns when the gate has noticed, for which
// it needs no request of a client.
func rise(t *testing.T, w *world) {
	t.Helper()
	w.co.tell(func(c *coordinator) { c.mute = false })
	pass(breakerOpen + statusInterval + testAdmitTimeout)
	require.Empty(t, w.gate.Degraded())
}

func TestF22_BreakerOpensAndAllPassAtOnce(t *testing.T) {
	t.Parallel()
	run(t, nil, func(w *world) {
		t := w.t
		waiting, _ := inLine(w, nil)
		w.co.tell(func(c *coordinator) { c.mute = true })
		var asking []*visitor
		for range breakerFailures {
			asking = append(asking, w.arrive(groupB, nil))
		}
		pass(testAdmitTimeout / 2)
		later := w.arrive(groupB, nil)
		pass(testAdmitTimeout / 2)
		// The first three have failed; that ends it for the others too.
		for _, v := range asking {
			require.True(t, w.is(v, FailOpen).Pass)
		}
		require.Equal(t, CauseBreakerOpen, w.is(later, FailOpen).Cause)
		outcome := w.is(waiting, FailOpen)
		require.Equal(t, CauseBreakerOpen, outcome.Cause)
		require.True(t, outcome.Pass)
		require.NotEmpty(t, w.gate.Degraded())

		asked := len(w.co.asked())
		next := w.arrive(groupA, nil)
		outcome = w.is(next, FailOpen)
		require.Equal(t, CauseBreakerOpen, outcome.Cause)
		require.Zero(t, outcome.Waited)
		require.Nil(t, next.ticket)
		require.Len(t, w.co.asked(), asked)

		rise(t, w)
		for _, v := range append(asking, later, waiting) {
			v.ticket.Done()
		}
		pass(5 * time.Second)
		w.clean()
	})
}

func TestF22_NothingButProbesWhileOpen(t *testing.T) {
	t.Parallel()
	run(t, nil, func(w *world) {
		t := w.t
		v := w.arrive(groupA, nil)
		w.is(v, Admitted)
		fall(t, w)
		pass(2 * testAdmitTimeout) // what was under way
		cancels, asks, polls := len(w.co.cancelled()), len(w.co.asked()), len(w.co.polled())
		w.finish(v)
		for range 60 {
			pass(time.Second)
			w.is(w.arrive(groupA, nil), FailOpen)
		}
		require.Len(t, w.co.asked(), asks)
		require.Len(t, w.co.cancelled(), cancels)
		require.Empty(t, w.co.released())
		require.InDelta(t, 60/(testAdmitTimeout+breakerOpen).Seconds(), len(w.co.polled())-polls, 10)

		rise(t, w)
		pass(time.Second)
		require.Len(t, w.co.released(), 1, "nothing was lost")
		w.is(w.arrive(groupA, nil), Admitted)
	})
}

func TestF22_FailsFast(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		fail  func(*world)
		heal  func(*world)
		cause Cause
	}{
		"no coordinator": {
			func(w *world) { w.co.cable.cut() },
			func(w *world) { w.co = w.coordinator(); w.co.serve() },
			CauseNoResponders,
		},
		"no NATS": {
			func(w *world) { w.nats.stop() },
			func(w *world) { w.nats.start() },
			CauseDisconnected,
		},
		"no store": {
			func(w *world) { w.co.tell(func(c *coordinator) { c.code = bus.CodeUnavailable }) },
			func(w *world) { w.co.tell(func(c *coordinator) { c.code = "" }) },
			CauseUnavailable,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, nil, func(w *world) {
				t := w.t
				waiting, _ := inLine(w, nil)
				tt.fail(w)
				for i := range 2 * breakerFailures {
					v := w.arrive(groupA, nil)
					outcome := w.is(v, FailOpen)
					require.Zero(t, outcome.Waited)
					if i == 0 {
						require.Equal(t, tt.cause, outcome.Cause)
					}
					v.ticket.Done()
				}
				pass(2 * time.Second)
				require.NotEmpty(t, w.gate.Degraded())
				w.is(waiting, FailOpen)
				pass(5 * time.Minute)
				require.NotEmpty(t, w.gate.Degraded())
				tt.heal(w)
				pass(5 * time.Second)
				require.Empty(t, w.gate.Degraded(), "by itself")
				waiting.ticket.Done()
				w.co.tell(func(c *coordinator) { c.admit = admitted })
				v := w.arrive(groupA, nil)
				w.is(v, Admitted)
				w.finish(v)
				pass(2 * time.Second)
				w.clean()
			})
		})
	}
}

func TestF23_StartedBeforeItsParts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		w.nats.stop()
		require.NoError(t, w.gate.Start())
		t.Cleanup(func() { w.gate.Stop(t.Context()) })
		pass(time.Minute)
		require.NotEmpty(t, w.gate.Degraded())
		w.is(w.arrive(groupA, nil), FailOpen)
		w.nats.start()
		pass(time.Minute)
		w.is(w.arrive(groupA, nil), FailOpen)
		w.co.serve()
		pass(5 * time.Second)
		require.Empty(t, w.gate.Degraded())
		v, id := inLine(w, nil)
		w.co.promote(id) // the subscription works too
		synctest.Wait()
		w.is(v, Promoted)
		w.finish(v)
		w.clean()
	})
}

func TestBreakerIgnoresRefusalsOfSingleRequests(t *testing.T) {
	t.Parallel()
	for _, code := range []bus.Code{bus.CodeBusy, bus.CodeInvalid} {
		t.Run(string(code), func(t *testing.T) {
			t.Parallel()
			run(t, nil, func(w *world) {
				t := w.t
				w.co.tell(func(c *coordinator) { c.code = code })
				for range 5 * breakerFailures {
					pass(time.Second)
					w.is(w.arrive(groupA, nil), FailOpen)
				}
				require.Empty(t, w.gate.Degraded())
			})
		})
	}
}

// Releases and cancels of a locked group are answered late or never.
func TestBreakerIgnoresWhatIsHandedBack(t *testing.T) {
	t.Parallel()
	run(t, nil, func(w *world) {
		t := w.t
		w.co.tell(func(c *coordinator) {
			c.admit = queued
			c.onCancel = func(*cancelCall) {}
		})
		for range 5 * breakerFailures {
			v := w.arrive(groupA, nil)
			v.leave()
		}
		pass(3 * time.Second)
		require.Greater(t, len(w.co.cancelled()), 3*breakerFailures)
		require.Empty(t, w.gate.Degraded())
	})
}

// Clients that leave hide no outage, and make none.
func TestBreakerJudgesByAnswersWhenClientsLeave(t *testing.T) {
	t.Parallel()
	for _, answers := range []bool{true, false} {
		run(t, nil, func(w *world) {
			t := w.t
			w.co.tell(func(c *coordinator) {
				c.onAdmit = func(call *admitCall) {
					if answers {
						call.Reply(queued)
					}
				}
				c.cancel = wire.WasPending
				c.mute = !answers
			})
			for range 2 * breakerFailures {
				v := w.arrive(groupA, nil)
				v.leave()
				pass(testAdmitTimeout)
				if answers {
					w.is(v, ClientGone)
				}
			}
			require.Equal(t, answers, w.gate.Degraded() == "")
		})
	}
}

// One of two coordinators is frozen and got both questions of several requests
// in a row. As long as the other answers, the queue decides.
func TestBreakerStaysClosedWhileAnotherAnswers(t *testing.T) {
	t.Parallel()
	run(t, nil, func(w *world) {
		t := w.t
		pass(300 * time.Millisecond) // away from the status messages
		w.co.tell(func(c *coordinator) { c.onAdmit = func(*admitCall) {} })
		var unlucky []*visitor
		for range 2 * breakerFailures {
			unlucky = append(unlucky, w.arrive(groupA, nil))
		}
		pass(testAdmitTimeout - 100*time.Millisecond)
		w.co.tell(func(c *coordinator) { c.onAdmit = nil })
		w.is(w.arrive(groupA, nil), Admitted)
		pass(100 * time.Millisecond)
		for _, v := range unlucky {
			require.Equal(t, CauseTimeout, w.is(v, FailOpen).Cause)
		}
		require.Empty(t, w.gate.Degraded())
		w.is(w.arrive(groupA, nil), Admitted)
	})
}

// The queue decides only when the store knows again what the edge holds.
func TestRecoveryAssertsBeforeAnybodyAsks(t *testing.T) {
	t.Parallel()
	run(t, nil, func(w *world) {
		t := w.t
		holder := w.arrive(groupA, nil)
		id := w.co.asked()[0].RequestID
		fall(t, w)
		calls := make(chan *admitCall, 10)
		w.co.tell(func(c *coordinator) {
			c.mute = false
			c.status.Unknown = []wire.RequestID{id}
			c.onAdmit = func(call *admitCall) { calls <- call }
		})
		call := <-calls
		require.Equal(t, wire.ModeHeld, call.Request.Mode)
		require.Equal(t, id, call.Request.RequestID)
		require.NotEmpty(t, w.gate.Degraded())
		w.is(w.arrive(groupA, nil), FailOpen)
		w.co.tell(func(c *coordinator) { c.status.Unknown = nil; c.onAdmit = nil })
		call.Reply(admitted)
		synctest.Wait()
		require.Empty(t, w.gate.Degraded())
		w.is(w.arrive(groupA, nil), Admitted)
		w.finish(holder)
	})
}

// One of two coordinators is cut off and NATS does not know yet: it goes on to
// get half of the questions, and half of those that are asked again. The other
// one can be asked by its id, so nobody passes undecided.
func TestQuestionsReachTheCoordinatorThatAnswers(t *testing.T) {
	t.Parallel()
	run(t, nil, func(w *world) {
		t := w.t
		other := w.coordinator()
		other.serve()
		w.co.tell(func(c *coordinator) { c.mute = true })
		heard := func() bool { return w.gate.heard.Load() != nil && w.gate.Degraded() == "" }
		for len(other.polled()) == 0 || !heard() {
			pass(statusInterval)
		}
		reached := len(w.co.asked())
		for range 40 {
			v := w.arrive(groupA, nil)
			pass(askAgain)
			w.is(v, Admitted)
			w.finish(v)
		}
		require.Greater(t, len(w.co.asked()), reached, "it goes on to be asked")

		// The confirmation that a request has waited in vain takes the same way.
		other.tell(func(c *coordinator) { c.admit, c.cancel = queued, wire.WasPending })
		for range 20 {
			v := w.arrive(groupA, nil)
			pass(testPendingTimeout + 2*askAgain)
			w.is(v, QueueTimeout)
		}
	})
}

// Who was heard last has ended, or has fallen silent since.
func TestWhoWasHeardLastDoesNotAnswer(t *testing.T) {
	t.Parallel()
	for name, silent := range map[string]bool{"ended": false, "silent": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, nil, func(w *world) {
				t := w.t
				calls := w.co.admitCalls()
				last := "last"
				after := askAgain
				if silent {
					after = askLast
					own := wire.EdgeSubject(wire.OwnSubject(wire.SubjectAdmit, last), "edge-1")
					require.NoError(t, bus.Subscribe(w.co.conn, own, func(wire.AdmitRequest) {}, func(error) {}))
				}
				v := w.arrive(groupA, nil)
				<-calls
				w.gate.heard.Store(&last)
				pass(after - 1)
				require.Empty(t, calls)
				pass(1)
				(<-calls).Reply(admitted)
				synctest.Wait()
				w.is(v, Admitted)
				require.Nil(t, w.gate.heard.Load())
				w.finish(v)
			})
		})
	}
}
