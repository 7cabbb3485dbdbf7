package admission

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/pkg/bus"
	"github.com/ccnq/ccnq/pkg/wire"
)

func TestTryTakesAFreePlace(t *testing.T) {
	t.Parallel()
	run(t, nil, func(w *world) {
		t := w.t
		ticket, outcome := w.gate.TryAdmit(t.Context(), groupA)
		require.Equal(t, Outcome{Reason: Admitted, Pass: true}, outcome)
		asked := w.co.asked()
		require.Len(t, asked, 1)
		require.Equal(t, wire.ModeNoWait, asked[0].Mode)
		require.Equal(t, 1, value(w.gate.metrics.held))
		ticket.Done()
		pass(time.Second)
		require.Len(t, w.co.released(), 1)
		w.clean()
	})
}

func TestTryIsLeftUndone(t *testing.T) {
	t.Parallel()
	t.Run("without a free place", func(t *testing.T) {
		t.Parallel()
		run(t, nil, func(w *world) {
			t := w.t
			w.co.tell(func(c *coordinator) { c.admit = rejected(0) })
			ticket, outcome := w.gate.TryAdmit(t.Context(), groupA)
			require.Nil(t, ticket)
			require.Equal(t, Outcome{Reason: QueueFull}, outcome)
			w.clean()
		})
	})
	t.Run("in a group known to be full, without asking", func(t *testing.T) {
		t.Parallel()
		run(t, nil, func(w *world) {
			t := w.t
			w.co.tell(func(c *coordinator) { c.admit = rejected(100) })
			w.is(w.arrive(groupA, nil), QueueFull)
			_, outcome := w.gate.TryAdmit(t.Context(), groupA)
			require.Equal(t, Outcome{Reason: QueueFull}, outcome)
			require.Len(t, w.co.asked(), 1)
		})
	})
	t.Run("when its work is over", func(t *testing.T) {
		t.Parallel()
		run(t, nil, func(w *world) {
			t := w.t
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			_, outcome := w.gate.TryAdmit(ctx, groupA)
			require.Equal(t, ClientGone, outcome.Reason)
			pass(time.Second)
			require.Len(t, w.co.released(), 1, "what it was given is given back")
			w.clean()
		})
	})
	t.Run("with the local fallback in an outage", func(t *testing.T) {
		t.Parallel()
		run(t, fallback, func(w *world) {
			t := w.t
			fall(t, w)
			_, outcome := w.gate.TryAdmit(t.Context(), groupA)
			require.Equal(t, Outcome{Reason: QueueFull}, outcome)
		})
	})
}

func TestTryPasses(t *testing.T) {
	t.Parallel()
	t.Run("in an outage", func(t *testing.T) {
		t.Parallel()
		run(t, nil, func(w *world) {
			t := w.t
			fall(t, w)
			_, outcome := w.gate.TryAdmit(t.Context(), groupA)
			require.Equal(t, Outcome{Reason: FailOpen, Cause: CauseBreakerOpen, Pass: true}, outcome)
		})
	})
	t.Run("when the answer is an error", func(t *testing.T) {
		t.Parallel()
		run(t, nil, func(w *world) {
			t := w.t
			w.co.tell(func(c *coordinator) { c.code = bus.CodeUnavailable })
			_, outcome := w.gate.TryAdmit(t.Context(), groupA)
			require.Equal(t, Outcome{Reason: FailOpen, Cause: CauseUnavailable, Pass: true}, outcome)
			w.co.tell(func(c *coordinator) { c.code = "" })
			pass(10 * time.Second)
			require.Len(t, w.co.cancelled(), 1, "in case it was given a place")
			w.clean()
		})
	})
	t.Run("in monitor mode", func(t *testing.T) {
		t.Parallel()
		run(t, func(o *Options) { o.Monitor = true }, func(w *world) {
			t := w.t
			w.co.tell(func(c *coordinator) { c.admit = rejected(0) })
			_, outcome := w.gate.TryAdmit(t.Context(), groupA)
			require.True(t, outcome.Pass)
			w.clean()
		})
	})
}

// TestTheWaitCountsFromTheArrival of the request, however long it has been
// under way before it came to the gate.
func TestTheWaitCountsFromTheArrival(t *testing.T) {
	t.Parallel()
	run(t, nil, func(w *world) {
		t := w.t
		w.co.tell(func(c *coordinator) { c.admit = queued; c.cancel = wire.WasPending })
		began := time.Now()
		_, outcome := w.gate.Admit(t.Context(), groupA, began.Add(-8*time.Second), nil)
		require.Equal(t, QueueTimeout, outcome.Reason)
		require.Equal(t, testPendingTimeout-8*time.Second, time.Since(began))
		require.Equal(t, testPendingTimeout, outcome.Waited)
		synctest.Wait()
		w.clean()
	})
}
