package lifecycle

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
)

// ErrForced is returned by [Run] when a second signal asks to end at once. The
// process should exit without further work.
var ErrForced = errors.New("lifecycle: a second signal forced the end")

// Run starts the group, waits, and stops it. It stops when SIGTERM or SIGINT
// arrives, when ctx ends, or when a part fails; a second SIGTERM or SIGINT
// makes it return [ErrForced] at once, even while the group stops.
//
// Each SIGHUP calls reload, which must not block; nil ignores the signal.
//
// The result is nil if the group did its work and stopped without trouble.
func Run(ctx context.Context, g *Group, reload func()) error {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	return run(ctx, g, reload, signals)
}

// ExitCode returns what the process should exit with after [Run]: 0 if all
// went well, 130 (a shell's code for an interrupt) if the end was forced, else
// 1.
func ExitCode(err error) int {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, ErrForced):
		return 128 + int(syscall.SIGINT)
	}
	return 1
}

func run(ctx context.Context, g *Group, reload func(), signals <-chan os.Signal) error {
	started := make(chan error, 1)
	go func() { started <- g.Start(ctx) }()
	var (
		failure error
		stopped chan error // nil until the group is being stopped
		ended   = ctx.Done()
	)
	stop := func() {
		if stopped == nil {
			stopped = make(chan error, 1)
			go func() { stopped <- g.Stop(context.WithoutCancel(ctx)) }()
		}
	}
	for {
		select {
		case err := <-started:
			if err != nil && stopped == nil {
				return err
			}
		case sig := <-signals:
			switch {
			case sig == syscall.SIGHUP:
				if reload != nil {
					reload()
				}
			case stopped != nil:
				return ErrForced
			default:
				stop()
			}
		case err := <-g.failed:
			if failure == nil {
				failure = err
			}
			stop()
		case <-ended:
			ended = nil
			stop()
		case err := <-stopped:
			return errors.Join(failure, err)
		}
	}
}
