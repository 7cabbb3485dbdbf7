package admission

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/pkg/wire"
)

func monitor(o *Options) { o.Monitor, o.Fallback = true, true }

func TestMonitorRejectedPassesUnrecorded(t *testing.T) {
	t.Parallel()
	run(t, monitor, func(w *world) {
		t := w.t
		w.co.tell(func(c *coordinator) { c.admit = rejected(100) })
		for range 3 { // the last two by the memo
			v := w.arrive(groupA, nil)
			require.True(t, w.is(v, QueueFull).Pass)
			v.ticket.Done()
		}
		require.Len(t, w.co.asked(), 1)
		pass(2 * time.Second)
		require.Empty(t, w.co.released())
		require.Empty(t, w.co.cancelled())
		w.clean()
	})
}

func TestMonitorQueuedPasses(t *testing.T) {
	t.Parallel()
	for name, promoted := range map[string]bool{"cancelled": false, "released": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, monitor, func(w *world) {
				t := w.t
				w.co.tell(func(c *coordinator) { c.admit = queued })
				v := w.arrive(groupA, nil)
				outcome := w.is(v, WouldWait)
				require.True(t, outcome.Pass)
				require.Zero(t, outcome.Waited)
				pass(2 * testPendingTimeout) // it runs for long
				require.Empty(t, w.co.cancelled())
				if promoted {
					w.co.promote(w.co.asked()[0].RequestID)
					synctest.Wait()
				}
				w.finish(v)
				if promoted {
					require.Len(t, w.co.released(), 1)
				} else {
					require.Len(t, w.co.cancelled(), 1)
				}
				w.clean()
			})
		})
	}
}

// What the store loses it gets back, although nobody waits for it.
func TestMonitorQueuedIsRestored(t *testing.T) {
	t.Parallel()
	run(t, monitor, func(w *world) {
		t := w.t
		w.co.tell(func(c *coordinator) { c.admit = queued })
		v := w.arrive(groupA, nil)
		id := w.co.asked()[0].RequestID
		w.co.tell(func(c *coordinator) { c.admit, c.status.Unknown = admitted, []wire.RequestID{id} })
		pass(testPollInterval)
		w.co.tell(func(c *coordinator) { c.status.Unknown = nil })
		require.Len(t, w.co.asked(), 2)
		w.finish(v)
		require.Len(t, w.co.released(), 1)
		w.clean()
	})
}

func TestMonitorPassesInAnOutage(t *testing.T) {
	t.Parallel()
	run(t, monitor, func(w *world) {
		t := w.t
		fall(t, w)
		for range 10 * (testLimits.MaxServed + testLimits.MaxPending) {
			require.True(t, w.is(w.arrive(groupA, nil), FailOpen).Pass, "the fallback refuses nobody either")
		}
	})
}
