package admission

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/pkg/wire"
)

func TestRejectedIsRefused(t *testing.T) {
	t.Parallel()
	run(t, nil, func(w *world) {
		t := w.t
		reply := rejected(0)
		reply.RetryAfterMS = 7000
		w.co.tell(func(c *coordinator) { c.admit = reply })
		outcome := w.is(w.arrive(groupA, nil), QueueFull)
		require.False(t, outcome.Pass)
		require.Equal(t, 7*time.Second, outcome.RetryAfter)

		w.co.tell(func(c *coordinator) { c.admit.RetryAfterMS = 0 })
		require.Equal(t, defaultRetryAfter, w.is(w.arrive(groupA, nil), QueueFull).RetryAfter)
		require.Len(t, w.co.asked(), 2, "without a memo each asks")
		pass(time.Minute)
		require.Empty(t, w.co.released(), "nothing was taken")
		require.Empty(t, w.co.cancelled())
		w.clean()
	})
}

func TestMemoRefusesWithoutAsking(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		fullForMS int64
		believed  time.Duration
	}{
		"as long as told":         {40, 40 * time.Millisecond},
		"never longer than 100ms": {30_000, 100 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, nil, func(w *world) {
				t := w.t
				w.co.tell(func(c *coordinator) { c.admit = rejected(tt.fullForMS) })
				w.is(w.arrive(groupA, nil), QueueFull)
				pass(tt.believed - 1)
				outcome := w.is(w.arrive(groupA, nil), QueueFull)
				require.Equal(t, 5*time.Second, outcome.RetryAfter)
				require.Len(t, w.co.asked(), 1)
				require.Equal(t, 1, value(w.gate.metrics.memo))

				w.is(w.arrive(groupB, nil), QueueFull)
				require.Len(t, w.co.asked(), 2, "another group is not concerned")
				pass(1)
				w.is(w.arrive(groupA, nil), QueueFull)
				require.Len(t, w.co.asked(), 3)
			})
		})
	}
}

func TestMemoEndsWhenAPlaceGetsFree(t *testing.T) {
	t.Parallel()
	// Each case gets a ticket of the group first, then a memo, then frees.
	for name, tt := range map[string]struct {
		first wire.AdmitReply
		free  func(*world, *visitor)
	}{
		"release": {admitted, func(w *world, v *visitor) { w.finish(v) }},
		"cancel": {queued, func(w *world, v *visitor) {
			v.leave()
			synctest.Wait()
			w.is(v, ClientGone)
		}},
		"promotion": {queued, func(w *world, v *visitor) {
			w.co.promote(w.co.asked()[0].RequestID)
			synctest.Wait()
			w.is(v, Promoted)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, nil, func(w *world) {
				t := w.t
				w.co.tell(func(c *coordinator) { c.admit = tt.first })
				v := w.arrive(groupA, nil)
				w.co.tell(func(c *coordinator) { c.admit = rejected(100) })
				w.is(w.arrive(groupA, nil), QueueFull)
				w.is(w.arrive(groupA, nil), QueueFull)
				require.Len(t, w.co.asked(), 2)

				tt.free(w, v)
				w.is(w.arrive(groupA, nil), QueueFull)
				require.Len(t, w.co.asked(), 3)
			})
		})
	}
}

func TestMemoIsNotMadeOfAnAnswerOlderThanARelease(t *testing.T) {
	t.Parallel()
	run(t, nil, func(w *world) {
		first := w.arrive(groupA, nil)
		calls := w.co.admitCalls()
		second := w.arrive(groupA, nil)
		w.finish(first)
		(<-calls).Reply(rejected(100))
		synctest.Wait()
		w.is(second, QueueFull)

		w.co.tell(func(c *coordinator) { c.onAdmit = nil })
		w.is(w.arrive(groupA, nil), Admitted)
	})
}

// The release is sent after its request was decided, and after the group has
// been forgotten and met again.
func TestMemoEndsWithTheAcknowledgementOfARelease(t *testing.T) {
	t.Parallel()
	run(t, nil, func(w *world) {
		t := w.t
		first := w.arrive(groupA, nil)
		w.co.tell(func(c *coordinator) { c.mute = true })
		w.finish(first) // lost
		w.co.tell(func(c *coordinator) { c.mute, c.admit = false, rejected(100) })
		pass(askAgain - 50*time.Millisecond)
		w.is(w.arrive(groupA, nil), QueueFull)
		require.Empty(t, w.co.released())
		pass(60 * time.Millisecond)
		require.Len(t, w.co.released(), 1, "sent again")
		asked := len(w.co.asked())
		w.is(w.arrive(groupA, nil), QueueFull)
		require.Len(t, w.co.asked(), asked+1)
	})
}

func TestGroupTableForgets(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var table groupTable
		table.init()
		gr := table.pin(groupA)
		require.Same(t, gr, table.pin(groupA))
		gr.unpin()
		gr.learned(approach{}, rejected(100), nil, time.Now())
		gr.unpin()
		require.Same(t, gr, table.pin(groupA), "a rejection keeps it")
		pass(forgetAfter + 1)
		table.sweep(time.Now())
		require.Same(t, gr, table.pin(groupA), "a user keeps it")
		gr.unpin()
		gr.unpin()
		require.NotSame(t, gr, table.pin(groupA))

		other := table.pin(groupB)
		other.learned(approach{}, rejected(100), nil, time.Now())
		other.unpin()
		pass(forgetAfter)
		table.sweep(time.Now())
		require.Same(t, other, table.pin(groupB))
		other.unpin()
		pass(1)
		table.sweep(time.Now())
		require.NotSame(t, other, table.pin(groupB))
	})
}

// narrow lets a gate learn that a group is full, without a memo that lasts.
func narrow(t *testing.T, w *world) {
	t.Helper()
	w.co.tell(func(c *coordinator) { c.admit = rejected(0) })
	w.is(w.arrive(groupA, nil), QueueFull)
}

// crowd sends many requests at once, whose questions are answered through the
// channel.
func crowd(w *world, n int) ([]*visitor, <-chan *admitCall) {
	calls := make(chan *admitCall, 2*n)
	w.co.tell(func(c *coordinator) { c.onAdmit = func(call *admitCall) { calls <- call } })
	visitors := make([]*visitor, n)
	for i := range visitors {
		visitors[i] = w.enter(groupA, nil)
	}
	synctest.Wait()
	return visitors, calls
}

func TestFloodOnAFullGroupAsksOnce(t *testing.T) {
	t.Parallel()
	run(t, nil, func(w *world) {
		t := w.t
		narrow(t, w)
		visitors, calls := crowd(w, 500)
		require.Len(t, calls, 1)
		(<-calls).Reply(rejected(0))
		synctest.Wait()
		require.Empty(t, calls, "all share the answer")
		for _, v := range visitors {
			w.is(v, QueueFull)
		}
		w.clean()
	})
}

// Nothing is known of an answer that may be older than a release, for those
// that arrived after the question. The second answer decides.
func TestFloodAsksAgainOnceWhenAPlaceGotFree(t *testing.T) {
	t.Parallel()
	run(t, nil, func(w *world) {
		t := w.t
		holder := w.arrive(groupA, nil)
		narrow(t, w)
		visitors, calls := crowd(w, 500)
		w.finish(holder)
		(<-calls).Reply(rejected(100))
		synctest.Wait()
		require.Len(t, calls, 1)
		w.gate.groups.freed(groupA)
		(<-calls).Reply(rejected(100))
		synctest.Wait()
		require.Empty(t, calls)
		for _, v := range visitors {
			w.is(v, QueueFull)
		}
		w.clean()
	})
}

func TestFloodGetsInWhereThereIsRoom(t *testing.T) {
	t.Parallel()
	const room, inLine = 7, 5
	run(t, nil, func(w *world) {
		t := w.t
		narrow(t, w)
		visitors, calls := crowd(w, 500)
		taken := 0
		decide := func(call *admitCall) {
			taken++
			switch {
			case taken <= room:
				call.Reply(admitted)
			case taken <= room+inLine:
				call.Reply(queued)
			default:
				call.Reply(rejected(100))
			}
		}
		for len(calls) > 0 {
			decide(<-calls)
			synctest.Wait()
		}
		reasons := map[Reason]int{}
		waiting := 0
		for _, v := range visitors {
			select {
			case <-v.decided:
				reasons[v.outcome.Reason]++
			default:
				waiting++
			}
		}
		require.Equal(t, map[Reason]int{Admitted: room, QueueFull: 500 - room - inLine}, reasons)
		require.Equal(t, inLine, waiting)
		for _, v := range visitors {
			v.leave()
			w.finish(v)
		}
		w.clean()
	})
}

// While the line fills up, one asks at a time.
func TestFloodFillsTheLineOneByOne(t *testing.T) {
	t.Parallel()
	run(t, nil, func(w *world) {
		t := w.t
		narrow(t, w)
		visitors, calls := crowd(w, 50)
		for range 3 {
			require.Len(t, calls, 1)
			(<-calls).Reply(queued)
			synctest.Wait()
		}
		require.Len(t, calls, 1)
		(<-calls).Reply(rejected(0))
		synctest.Wait()
		require.Empty(t, calls)
		waiting := 0
		for _, v := range visitors {
			select {
			case <-v.decided:
			default:
				waiting++
			}
			v.leave()
		}
		require.Equal(t, 3, waiting)
		synctest.Wait()
		w.clean()
	})
}

func TestFloodSharesAFailure(t *testing.T) {
	t.Parallel()
	run(t, nil, func(w *world) {
		t := w.t
		narrow(t, w)
		visitors, calls := crowd(w, 100)
		(<-calls).Fail("busy", "locked")
		synctest.Wait()
		require.Empty(t, calls)
		for _, v := range visitors {
			require.Equal(t, CauseBusy, w.is(v, FailOpen).Cause)
			v.ticket.Done()
		}
		w.clean()
	})
}

// One whose client leaves still asks for the others.
func TestFloodSurvivesTheOneThatAsks(t *testing.T) {
	t.Parallel()
	run(t, nil, func(w *world) {
		t := w.t
		narrow(t, w)
		calls := make(chan *admitCall, 10)
		w.co.tell(func(c *coordinator) { c.onAdmit = func(call *admitCall) { calls <- call } })
		first := w.arrive(groupA, nil)
		second := w.arrive(groupA, nil)
		third := w.arrive(groupA, nil)
		require.Len(t, calls, 1)
		third.leave()
		first.leave()
		synctest.Wait()
		w.undecided(first)
		w.is(third, ClientGone)
		w.undecided(second)
		(<-calls).Reply(admitted)
		synctest.Wait()
		w.is(first, ClientGone)
		require.Len(t, w.co.released(), 1)
		(<-calls).Reply(admitted)
		synctest.Wait()
		w.is(second, Admitted)
		w.finish(second)
		w.clean()
	})
}

// Whatever happens to those that ask, nobody awaits them for longer than the
// admit timeout.
func TestFloodAwaitsWithPatience(t *testing.T) {
	t.Parallel()
	run(t, nil, func(w *world) {
		t := w.t
		narrow(t, w)
		group := w.gate.groups.pin(groupA)
		asks := group.approach(time.Now(), false) // and gets no answer
		require.NotNil(t, asks.probe)
		v := w.arrive(groupA, nil)
		pass(testAdmitTimeout - 1)
		w.undecided(v)
		require.Len(t, w.co.asked(), 1)
		w.co.tell(func(c *coordinator) { c.admit = admitted })
		pass(1)
		require.Equal(t, testAdmitTimeout, w.is(v, Admitted).Waited)
		require.Len(t, w.co.asked(), 2)
		group.learned(asks, wire.AdmitReply{}, context.DeadlineExceeded, time.Now())
		group.unpin()
		w.finish(v)
		w.clean()
	})
}
