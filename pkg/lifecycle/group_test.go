package lifecycle

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// journal records what happens to parts, in order.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) add(line string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, line)
}

func (j *journal) all() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.lines)
}

// part returns a component that writes to the journal and returns the errors.
func (j *journal) part(name string, startErr, stopErr error) Component {
	return Component{
		Name:  name,
		Start: func(context.Context) error { j.add("start " + name); return startErr },
		Stop:  func(context.Context) error { j.add("stop " + name); return stopErr },
	}
}

var errBroken = errors.New("broken")

func TestStartAndStopInOrder(t *testing.T) {
	t.Parallel()
	var j journal
	g := New(j.part("a", nil, nil), Component{Name: "nothing"}, j.part("b", nil, nil))
	require.NoError(t, g.Start(t.Context()))
	require.ErrorIs(t, g.Start(t.Context()), ErrStarted)
	require.NoError(t, g.Stop(t.Context()))
	require.NoError(t, g.Stop(t.Context()))
	require.Equal(t, []string{"start a", "start b", "stop b", "stop a"}, j.all())
	require.ErrorIs(t, g.Start(t.Context()), ErrStopped)
}

func TestStartUndoesAPartialStart(t *testing.T) {
	t.Parallel()
	var j journal
	errStuck := errors.New("stuck")
	g := New(j.part("a", nil, errStuck), j.part("b", nil, nil), j.part("c", errBroken, nil), j.part("d", nil, nil))
	err := g.Start(t.Context())
	require.EqualError(t, err, "start c: broken\nstop a: stuck")
	require.ErrorIs(t, err, errBroken)
	require.Equal(t, []string{"start a", "start b", "start c", "stop b", "stop a"}, j.all())
	require.EqualError(t, g.Stop(t.Context()), "stop a: stuck")
	require.Len(t, j.all(), 5, "nothing is stopped twice")
}

func TestStopReportsAllErrors(t *testing.T) {
	t.Parallel()
	var j journal
	g := New(j.part("a", nil, errBroken), j.part("b", nil, nil), j.part("c", nil, errBroken))
	require.NoError(t, g.Start(t.Context()))
	require.EqualError(t, g.Stop(t.Context()), "stop c: broken\nstop a: broken")
	require.EqualError(t, g.Stop(t.Context()), "stop c: broken\nstop a: broken", "the same for everybody")
}

func TestStopBeforeStart(t *testing.T) {
	t.Parallel()
	var j journal
	g := New(j.part("a", nil, nil))
	require.NoError(t, g.Stop(t.Context()))
	require.ErrorIs(t, g.Start(t.Context()), ErrStopped)
	require.Empty(t, j.all())
}

func TestStopInterruptsAStart(t *testing.T) {
	t.Parallel()
	var j journal
	begun := make(chan struct{})
	slow := Component{Name: "slow", Start: func(ctx context.Context) error {
		close(begun)
		<-ctx.Done()
		return context.Cause(ctx)
	}}
	g := New(j.part("a", nil, nil), slow, j.part("b", nil, nil))
	started := make(chan error, 1)
	go func() { started <- g.Start(t.Context()) }()
	<-begun
	require.NoError(t, g.Stop(t.Context()))
	require.ErrorIs(t, <-started, ErrStopped)
	require.Equal(t, []string{"start a", "stop a"}, j.all())
}

func TestStopIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var j journal
		release := make(chan struct{})
		obedient := Component{Name: "obedient", StopTimeout: 3 * time.Second, Stop: func(ctx context.Context) error {
			<-ctx.Done()
			return errBroken
		}}
		deaf := Component{Name: "deaf", Stop: func(context.Context) error { <-release; return nil }}
		g := New(j.part("a", nil, nil), deaf, obedient)
		require.NoError(t, g.Start(t.Context()))
		begin := time.Now()
		require.EqualError(t, g.Stop(t.Context()), "stop obedient: broken\nstop deaf: not done within 10s")
		require.Equal(t, 3*time.Second+DefaultStopTimeout+grace, time.Since(begin))
		require.Equal(t, []string{"start a", "stop a"}, j.all(), "the others are stopped all the same")
		close(release)
	})
}

func TestStopWaitsNoLongerThanItsContext(t *testing.T) {
	t.Parallel()
	release, begun := make(chan struct{}), make(chan struct{})
	g := New(Component{Name: "a", Stop: func(context.Context) error { close(begun); <-release; return nil }})
	require.NoError(t, g.Start(t.Context()))
	first := make(chan error, 1)
	go func() { first <- g.Stop(t.Context()) }()
	<-begun
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, g.Stop(ctx), context.Canceled)
	close(release)
	require.NoError(t, <-first)
}

// Ten goroutines start and ten stop, at once. Whatever the order, each part is
// stopped as often as it was started, in the reverse order.
func TestStartAndStopFromManyGoroutines(t *testing.T) {
	t.Parallel()
	for range 200 {
		var j journal
		g := New(j.part("a", nil, nil), j.part("b", nil, nil), j.part("c", nil, nil))
		var all sync.WaitGroup
		gate := make(chan struct{})
		for range 10 {
			all.Go(func() {
				<-gate
				if err := g.Start(t.Context()); err != nil {
					if !errors.Is(err, ErrStarted) && !errors.Is(err, ErrStopped) {
						t.Errorf("start: %v", err)
					}
				}
			})
			all.Go(func() {
				<-gate
				if err := g.Stop(t.Context()); err != nil {
					t.Errorf("stop: %v", err)
				}
			})
		}
		close(gate)
		all.Wait()
		lines := j.all()
		n := len(lines) / 2
		var want []string
		for _, name := range []string{"a", "b", "c"}[:n] {
			want = append(want, "start "+name)
		}
		for i := n - 1; i >= 0; i-- {
			want = append(want, "stop "+[]string{"a", "b", "c"}[i])
		}
		require.Equal(t, want, lines)
	}
}
