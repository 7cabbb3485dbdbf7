package admission

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/pkg/bus"
	"github.com/ccnq/ccnq/pkg/wire"
)

// inLine returns a visitor that waits in line, and its id.
func inLine(w *world, gone func() bool) (*visitor, wire.RequestID) {
	w.co.tell(func(c *coordinator) { c.admit = queued })
	v := w.arrive(groupA, gone)
	w.undecided(v)
	asked := w.co.asked()
	return v, asked[len(asked)-1].RequestID
}

func TestPromotionByPush(t *testing.T) {
	t.Parallel()
	run(t, nil, func(w *world) {
		t := w.t
		v, id := inLine(w, nil)
		pass(100 * time.Millisecond)
		w.co.promote(id, id)
		synctest.Wait()
		outcome := w.is(v, Promoted)
		require.True(t, outcome.Pass)
		require.Equal(t, 100*time.Millisecond, outcome.Waited)
		w.co.promote(id) // once more
		synctest.Wait()
		require.Equal(t, 1, value(w.gate.metrics.held))
		w.finish(v)
		w.co.promote(id) // late
		synctest.Wait()
		require.Len(t, w.co.released(), 1)
		require.Empty(t, w.co.cancelled())
		w.clean()
	})
}

func TestPromotionBeforeTheReply(t *testing.T) {
	t.Parallel()
	run(t, nil, func(w *world) {
		t := w.t
		calls := w.co.admitCalls()
		v := w.arrive(groupA, nil)
		call := <-calls
		w.co.promote(call.Request.RequestID)
		synctest.Wait()
		call.Reply(queued)
		synctest.Wait()
		w.is(v, Promoted)
		w.finish(v)
		require.Len(t, w.co.released(), 1)
		w.clean()
	})
}

func TestPromotionLostIsFoundByStatus(t *testing.T) {
	t.Parallel()
	run(t, nil, func(w *world) {
		t := w.t
		v, id := inLine(w, nil)
		pass(testPollInterval)
		w.undecided(v)
		w.co.tell(func(c *coordinator) { c.status.Promoted = []wire.RequestID{id} })
		pass(testPollInterval)
		w.is(v, Promoted)
		require.Equal(t, 1, value(w.gate.metrics.polled))
		w.finish(v)
		pass(2 * time.Second)
		w.clean()
	})
}

func TestPromotionWithNonsense(t *testing.T) {
	t.Parallel()
	run(t, nil, func(w *world) {
		t := w.t
		subject := wire.EdgeSubject(wire.SubjectPromoted, "edge-1")
		v, id := inLine(w, nil)
		require.NoError(t, bus.Publish(w.co.conn, subject, wire.Promoted{RequestIDs: []wire.RequestID{newID(), {1}}}))
		require.NoError(t, bus.Publish(w.co.conn, subject, wire.Promoted{RequestIDs: make([]wire.RequestID, wire.MaxIDs+1)}))
		synctest.Wait()
		w.undecided(v)
		require.Equal(t, 1, value(w.gate.metrics.refused))
		require.NoError(t, bus.Publish(w.co.conn, subject, wire.Promoted{RequestIDs: []wire.RequestID{id}, AgeUS: wire.MaxBudgetMS * 1000}))
		synctest.Wait()
		w.is(v, Promoted)
	})
}

func TestStatusIsSentOftenerWhileSomebodyWaits(t *testing.T) {
	t.Parallel()
	run(t, nil, func(w *world) {
		t := w.t
		count := func(d time.Duration) int {
			before := len(w.co.polled())
			pass(d)
			return len(w.co.polled()) - before
		}
		require.Len(t, w.co.polled(), 1, "at once")
		require.Equal(t, 4, count(4*time.Second))
		pass(700 * time.Millisecond)
		v, id := inLine(w, nil)
		require.Equal(t, 8, count(2*time.Second))
		last := w.co.polled()[len(w.co.polled())-1]
		require.Equal(t, []wire.RequestID{id}, last.Waiting)
		require.Empty(t, last.Active)
		w.co.promote(id)
		synctest.Wait()
		w.is(v, Promoted)
		pass(time.Second)
		require.Equal(t, 4, count(4*time.Second))
		last = w.co.polled()[len(w.co.polled())-1]
		require.Equal(t, []wire.RequestID{id}, last.Active)
		require.Empty(t, last.Waiting)
		w.finish(v)
	})
}

func TestStatusIsNotDelayedByALongPollInterval(t *testing.T) {
	t.Parallel()
	run(t, func(o *Options) { o.PollInterval = time.Minute }, func(w *world) {
		t := w.t
		pass(500 * time.Millisecond)
		v, _ := inLine(w, nil)
		before := len(w.co.polled())
		pass(5 * time.Second)
		require.Equal(t, 5, len(w.co.polled())-before)
		v.leave()
	})
}

func TestPendingTimeout(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		was      wire.Was
		fail     func(*coordinator)
		reason   Reason
		cause    Cause
		released int // after the visitor is done
	}{
		"still in line":   {was: wire.WasPending, reason: QueueTimeout},
		"just promoted":   {was: wire.WasActive, reason: Promoted, released: 1},
		"forgotten":       {was: wire.WasGone, reason: FailOpen, cause: CauseForgotten},
		"unanswered":      {fail: func(c *coordinator) { c.mute = true }, reason: FailOpen, cause: CauseTimeout},
		"store is away":   {fail: func(c *coordinator) { c.code = bus.CodeUnavailable }, reason: FailOpen, cause: CauseUnavailable},
		"group is locked": {fail: func(c *coordinator) { c.code = bus.CodeBusy }, reason: FailOpen, cause: CauseBusy},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, nil, func(w *world) {
				t := w.t
				v, id := inLine(w, nil)
				pass(testPendingTimeout - 1)
				w.undecided(v)
				require.Empty(t, w.co.cancelled())
				w.co.tell(func(c *coordinator) {
					c.cancel = tt.was
					if tt.fail != nil {
						tt.fail(c)
					}
				})
				pass(1)
				require.NotEmpty(t, w.co.cancelled())
				require.Equal(t, id, w.co.cancelled()[0].RequestID)
				if tt.fail != nil {
					pass(testAdmitTimeout)
				}
				outcome := w.is(v, tt.reason)
				require.Equal(t, tt.cause, outcome.Cause)
				require.Equal(t, tt.reason != QueueTimeout, outcome.Pass)
				require.LessOrEqual(t, outcome.Waited, testPendingTimeout+testAdmitTimeout)
				if tt.reason == QueueTimeout {
					require.Equal(t, defaultRetryAfter, outcome.RetryAfter)
				}
				w.co.tell(func(c *coordinator) { c.code, c.mute, c.cancel = "", false, wire.WasPending })
				w.finish(v)
				pass(10 * time.Second)
				require.Len(t, w.co.released(), tt.released)
				w.clean()
			})
		})
	}
}

// The cancel is under way when the promotion arrives: the turn is used.
func TestPendingTimeoutMeetsPromotion(t *testing.T) {
	t.Parallel()
	run(t, nil, func(w *world) {
		t := w.t
		v, id := inLine(w, nil)
		calls := w.co.cancelCalls()
		pass(testPendingTimeout)
		status := w.co.polled()[len(w.co.polled())-1]
		require.Equal(t, []wire.RequestID{id}, status.Waiting, "the store must not take it for forgotten")
		w.co.promote(id)
		synctest.Wait()
		(<-calls).Reply(wire.CancelReply{Was: wire.WasActive})
		synctest.Wait()
		w.is(v, Promoted)
		w.finish(v)
		require.Len(t, w.co.released(), 1)
		w.clean()
	})
}
