package rpc

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPulse_KnowsAfterAGapThatMessagesMayBeOld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPulse()
		ctx, cancel := context.WithCancel(t.Context())
		go p.run(ctx)
		later := func(d time.Duration) bool {
			<-time.After(d)
			return p.stale()
		}
		require.False(t, p.stale())
		require.False(t, later(10*stillAfter), "it beats")
		cancel() // no beat any more, as in a process that is stopped
		synctest.Wait()
		require.False(t, later(stillAfter-beatEvery))
		require.True(t, later(beatEvery), "whoever runs first after the gap must know")

		ctx, cancel = context.WithCancel(t.Context())
		defer cancel()
		go p.run(ctx)
		require.True(t, later(backlog/2), "the buffers may not be read yet")
		require.True(t, later(beatEvery), "the beat that ends the gap is no all-clear")
		require.False(t, later(backlog), "what comes in now is new")
	})
}
