package admission

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/pkg/bus"
	"github.com/ccnq/ccnq/pkg/wire"
)

func TestAdmittedPassesAndReleasesOnce(t *testing.T) {
	t.Parallel()
	run(t, nil, func(w *world) {
		t := w.t
		v := w.arrive(groupA, nil)
		require.Equal(t, Outcome{Reason: Admitted, Pass: true}, w.is(v, Admitted))
		require.Equal(t, 1, value(w.gate.metrics.held))

		asked := w.co.asked()
		require.Len(t, asked, 1)
		require.Equal(t, wire.Bucket{Kind: wire.KindGroup, Key: "203.0.113.0/24"}, asked[0].Bucket)
		require.Equal(t, wire.ModeWait, asked[0].Mode)
		require.LessOrEqual(t, asked[0].BudgetMS, testAdmitTimeout.Milliseconds())

		w.finish(v)
		pass(time.Minute)
		require.Equal(t, []wire.Item{{RequestID: asked[0].RequestID, Bucket: asked[0].Bucket}}, w.co.released())
		require.Empty(t, w.co.cancelled())
		w.clean()
	})
}

func TestAdmitDoneOfNoTicket(t *testing.T) {
	t.Parallel()
	var none *Ticket
	none.Done()
}

func TestReleaseIsRepeatedUntilAcknowledged(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(*coordinator){
		"unanswered":  func(c *coordinator) { c.mute = true },
		"unavailable": func(c *coordinator) { c.code = bus.CodeUnavailable },
		"busy":        func(c *coordinator) { c.code = bus.CodeBusy },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, nil, func(w *world) {
				t := w.t
				v := w.arrive(groupA, nil)
				w.is(v, Admitted)
				w.co.tell(fail)
				w.finish(v)
				pass(20 * time.Second)
				require.Empty(t, w.co.released())
				w.co.tell(func(c *coordinator) { c.mute, c.code = false, "" })
				pass(5 * time.Second)
				require.Len(t, w.co.released(), 1)
				pass(time.Minute)
				require.Len(t, w.co.released(), 1)
				w.clean()
			})
		})
	}
}

func TestReleaseThatIsInvalidIsGivenUp(t *testing.T) {
	t.Parallel()
	run(t, nil, func(w *world) {
		t := w.t
		v := w.arrive(groupA, nil)
		w.co.tell(func(c *coordinator) { c.code = bus.CodeInvalid })
		w.finish(v)
		require.Equal(t, 1, value(w.gate.metrics.dropped))
		w.clean()
	})
}

func TestOutgoingIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil) // not started: nothing is sent
		ticket := w.gate.newTicket(w.gate.groups.pin(groupA))
		for range maxOutgoing + 5 {
			w.gate.outgoing.release(ticket)
		}
		require.Len(t, w.gate.outgoing.releases.tickets, maxOutgoing)
		require.Equal(t, 5, value(w.gate.metrics.dropped))
	})
}

func TestCancelsDoNotWaitForReleases(t *testing.T) {
	t.Parallel()
	run(t, nil, func(w *world) {
		t := w.t
		w.co.tell(func(c *coordinator) { c.admit = queued })
		v := w.arrive(groupB, nil)
		w.co.tell(func(c *coordinator) { c.admit = admitted })
		held := make([]*visitor, 3*senders)
		for i := range held {
			held[i] = w.arrive(groupA, nil)
			w.is(held[i], Admitted)
		}
		// Every sender of releases hangs on a group that is locked.
		w.co.tell(func(c *coordinator) { c.mute = true })
		for _, v := range held {
			w.finish(v)
		}
		w.co.tell(func(c *coordinator) { c.mute = false })
		v.leave()
		synctest.Wait()
		w.is(v, ClientGone)
		require.Len(t, w.co.cancelled(), 1)
	})
}

func TestLimitsAreLearned(t *testing.T) {
	t.Parallel()
	run(t, nil, func(w *world) {
		t := w.t
		limits := wire.Limits{MaxServed: 7, MaxPending: 9}
		w.co.tell(func(c *coordinator) { c.admit.Limits = limits })
		w.is(w.arrive(groupA, nil), Admitted)
		require.Equal(t, limits, *w.gate.limits.Load())
		w.co.tell(func(c *coordinator) { c.admit.Limits = wire.Limits{} })
		w.is(w.arrive(groupA, nil), Admitted)
		require.Equal(t, limits, *w.gate.limits.Load(), "an answer without limits changes nothing")
	})
}
