package admission

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestStopSendsWhatIsLeft(t *testing.T) {
	t.Parallel()
	run(t, nil, func(w *world) {
		t := w.t
		visitors := make([]*visitor, 100)
		for i := range visitors {
			visitors[i] = w.arrive(groupA, nil)
		}
		for _, v := range visitors {
			v.ticket.Done()
		}
		w.gate.Stop(context.Background())
		require.Len(t, w.co.released(), len(visitors))
		w.clean()
	})
}

func TestStopWaitsForAnAnswer(t *testing.T) {
	t.Parallel()
	run(t, nil, func(w *world) {
		t := w.t
		v := w.arrive(groupA, nil)
		w.co.tell(func(c *coordinator) { c.mute = true })
		w.finish(v)
		stopped := make(chan struct{})
		go func() {
			w.gate.Stop(context.Background())
			close(stopped)
		}()
		pass(3 * time.Second)
		select {
		case <-stopped:
			require.Fail(t, "it gave up")
		default:
		}
		w.co.tell(func(c *coordinator) { c.mute = false })
		<-stopped
		require.Len(t, w.co.released(), 1)
	})
}

func TestStopEndsWithItsContext(t *testing.T) {
	t.Parallel()
	run(t, nil, func(w *world) {
		t := w.t
		v := w.arrive(groupA, nil)
		w.co.tell(func(c *coordinator) { c.mute = true })
		w.finish(v)
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		began := time.Now()
		w.gate.Stop(ctx)
		require.Equal(t, 5*time.Second, time.Since(began))
		w.gate.Stop(context.Background()) // again, and nothing is sent any more
		require.Equal(t, 5*time.Second, time.Since(began))
	})
}

func TestStopBeforeStartAndTwice(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		w.co.serve()
		w.gate.Stop(context.Background())
		require.NoError(t, w.gate.Start())
		w.is(w.arrive(groupA, nil), Admitted)
		w.gate.Stop(context.Background())
		w.gate.Stop(context.Background())
	})
}
