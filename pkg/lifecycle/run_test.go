package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// started returns a part that tells when it runs.
func started() (Component, <-chan struct{}) {
	running := make(chan struct{})
	return Component{Name: "started", Start: func(context.Context) error { close(running); return nil }}, running
}

func TestRunStopsOnASignal(t *testing.T) {
	var j journal
	tell, running := started()
	reloads := make(chan struct{}, 1)
	g := New(j.part("a", nil, nil), tell)
	ended := make(chan error, 1)
	go func() { ended <- Run(t.Context(), g, func() { reloads <- struct{}{} }) }()
	<-running
	require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGHUP))
	<-reloads
	require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGTERM))
	require.NoError(t, <-ended)
	require.Equal(t, []string{"start a", "stop a"}, j.all())
}

func TestRunEndsAtOnceOnASecondSignal(t *testing.T) {
	t.Parallel()
	stopping, release := make(chan struct{}), make(chan struct{})
	left := make(chan struct{})
	tell, running := started()
	slow := Component{Name: "slow", Stop: func(context.Context) error {
		close(stopping)
		<-release
		close(left)
		return nil
	}}
	g := New(slow, tell)
	signals := make(chan os.Signal)
	ended := make(chan error, 1)
	go func() { ended <- run(t.Context(), g, nil, signals) }()
	<-running
	signals <- syscall.SIGHUP // without a reload it is ignored
	signals <- syscall.SIGINT
	<-stopping
	signals <- syscall.SIGHUP // not counted
	signals <- syscall.SIGTERM
	require.ErrorIs(t, <-ended, ErrForced)
	close(release)
	<-left
	require.NoError(t, g.Stop(t.Context()))
}

func TestRunStopsWhenAPartFails(t *testing.T) {
	t.Parallel()
	var j journal
	tell, running := started()
	g := New(j.part("a", nil, errBroken), tell)
	ended := make(chan error, 1)
	go func() { ended <- run(t.Context(), g, nil, nil) }()
	<-running
	failure := errors.New("listener closed")
	g.Fail(failure)
	g.Fail(errors.New("a later one"))
	g.Fail(errors.New("never blocks"))
	require.EqualError(t, <-ended, "listener closed\nstop a: broken")
}

func TestRunReturnsTheErrorOfStart(t *testing.T) {
	t.Parallel()
	var j journal
	require.EqualError(t, run(t.Context(), New(j.part("a", errBroken, nil)), nil, nil), "start a: broken")
}

func TestRunStopsWhenItsContextEnds(t *testing.T) {
	t.Parallel()
	var j journal
	tell, running := started()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, New(j.part("a", nil, nil), tell), nil, nil) }()
	<-running
	cancel()
	require.NoError(t, <-ended)
	require.Equal(t, []string{"start a", "stop a"}, j.all())
}

func TestRunCanBeInterruptedWhileStarting(t *testing.T) {
	t.Parallel()
	begun := make(chan struct{})
	g := New(Component{Name: "slow", Start: func(ctx context.Context) error {
		close(begun)
		<-ctx.Done()
		return context.Cause(ctx)
	}})
	signals := make(chan os.Signal)
	ended := make(chan error, 1)
	go func() { ended <- run(t.Context(), g, nil, signals) }()
	<-begun
	signals <- syscall.SIGTERM
	require.NoError(t, <-ended)
}

func TestExitCode(t *testing.T) {
	t.Parallel()
	require.Equal(t, 0, ExitCode(nil))
	require.Equal(t, 1, ExitCode(errBroken))
	require.Equal(t, 130, ExitCode(fmt.Errorf("run: %w", ErrForced)))
}
