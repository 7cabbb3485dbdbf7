package admission

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/pkg/wire"
)

// A client that leaves while its question is under way: the answer says what
// is to be given back. A cancel sent before might overtake the admit.
func TestF16_ClientLeavesWhileAsking(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		reply               *wire.AdmitReply // nil for none
		cancelled, released int
	}{
		"admitted":       {&admitted, 0, 1},
		"in line":        {&queued, 1, 0},
		"never answered": {nil, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, nil, func(w *world) {
				t := w.t
				calls := make(chan *admitCall, 3)
				w.co.tell(func(c *coordinator) {
					c.onAdmit = func(call *admitCall) { calls <- call }
					c.cancel = wire.WasPending
				})
				v := w.arrive(groupA, nil)
				v.leave()
				synctest.Wait()
				w.undecided(v)
				require.Empty(t, w.co.cancelled())
				if tt.reply != nil {
					(<-calls).Reply(*tt.reply)
					synctest.Wait()
				} else {
					pass(testAdmitTimeout)
				}
				require.False(t, w.is(v, ClientGone).Pass)
				require.Nil(t, v.ticket)
				require.Len(t, w.co.cancelled(), tt.cancelled)
				require.Len(t, w.co.released(), tt.released)
				w.clean()
			})
		})
	}
}

func TestF16_ClientLeavesTheLine(t *testing.T) {
	t.Parallel()
	for name, promoted := range map[string]bool{"waiting": false, "just promoted": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, nil, func(w *world) {
				t := w.t
				v, id := inLine(w, nil)
				w.co.tell(func(c *coordinator) {
					c.cancel = wire.WasPending
					if promoted {
						c.cancel = wire.WasActive // its push is on the way
					}
				})
				v.leave()
				synctest.Wait()
				w.is(v, ClientGone)
				require.Len(t, w.co.cancelled(), 1)
				require.Equal(t, id, w.co.cancelled()[0].RequestID)
				if promoted {
					w.co.promote(id)
					synctest.Wait()
					require.Len(t, w.co.released(), 1)
				} else {
					require.Empty(t, w.co.released())
				}
				w.clean()
			})
		})
	}
}

// A client whose request has a body that nobody reads is looked at.
func TestF16_ClientWithABodyLeavesTheLine(t *testing.T) {
	t.Parallel()
	run(t, nil, func(w *world) {
		t := w.t
		var looks atomic.Int64
		var left atomic.Bool
		v, _ := inLine(w, func() bool { looks.Add(1); return left.Load() })
		pass(4 * testPollInterval)
		w.undecided(v)
		require.EqualValues(t, 4, looks.Load())
		left.Store(true)
		pass(testPollInterval)
		w.is(v, ClientGone)
		require.Len(t, w.co.cancelled(), 1)
		w.clean()
	})
}

func TestF16_ClientLeavesDuringTheLastCancel(t *testing.T) {
	t.Parallel()
	run(t, nil, func(w *world) {
		t := w.t
		v, _ := inLine(w, nil)
		calls := make(chan *cancelCall, 2)
		w.co.tell(func(c *coordinator) { c.onCancel = func(call *cancelCall) { calls <- call } })
		pass(testPendingTimeout)
		v.leave()
		synctest.Wait()
		w.is(v, ClientGone)
		(<-calls).Reply(wire.CancelReply{Was: wire.WasActive})
		(<-calls).Reply(wire.CancelReply{Was: wire.WasActive})
		synctest.Wait()
		require.Len(t, w.co.released(), 1)
		w.clean()
	})
}

func TestF16_ClientLeftBeforeItCame(t *testing.T) {
	t.Parallel()
	run(t, nil, func(w *world) {
		t := w.t
		w.co.tell(func(c *coordinator) { c.cancel = wire.WasGone })
		ctx, leave := context.WithCancel(context.Background())
		leave()
		ticket, outcome := w.gate.Admit(ctx, groupA, time.Now(), nil)
		require.Equal(t, ClientGone, outcome.Reason)
		require.Nil(t, ticket)
		w.clean()
	})
}
