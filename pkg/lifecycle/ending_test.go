package lifecycle

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

func TestEndingIsOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := NewEnding()
		require.False(t, e.Begun())
		problem, release, runs := errors.New("problem"), make(chan struct{}), 0
		stop := func(context.Context) error {
			runs++
			<-release
			return problem
		}
		results := make(chan error, 2)
		for range 2 {
			go func() { results <- e.Stop(context.Background(), stop) }()
		}
		synctest.Wait()
		require.True(t, e.Begun())
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, e.Stop(gone, stop), context.Canceled, "who cannot wait is not kept")
		require.Empty(t, results)
		close(release)
		for range 2 {
			require.ErrorIs(t, <-results, problem)
		}
		<-e.Over()
		require.ErrorIs(t, e.Stop(context.Background(), stop), problem)
		require.Equal(t, 1, runs)
	})
}
