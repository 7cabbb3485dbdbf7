package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

var (
	// ErrStarted is returned by a second Start.
	ErrStarted = errors.New("lifecycle: started before")
	// ErrStopped is returned by Start if Stop came first, and is the cause of
	// the context that the parts start with once Stop is called.
	ErrStopped = errors.New("lifecycle: stopped")
)

// DefaultStopTimeout bounds the stop of a part that names no bound.
const DefaultStopTimeout = 10 * time.Second

// grace is how long a part may take to return once its time to stop is over,
// so that its own error can be reported.
const grace = time.Second

// Component is one part of a process.
type Component struct {
	// Name stands in errors.
	Name string
	// Start returns once the part runs, or with the reason why it cannot. The
	// context bounds the start only; it ends when Start returns. Nil means
	// that there is nothing to start.
	Start func(context.Context) error
	// Stop returns once nothing of the part runs any more, or soon after the
	// context has ended. It is called at most once, and only after a Start
	// that succeeded. Nil means that there is nothing to stop.
	Stop func(context.Context) error
	// StopTimeout bounds Stop; 0 means [DefaultStopTimeout].
	StopTimeout time.Duration
}

// Group is a list of parts. Its methods are safe for concurrent use.
type Group struct {
	components []Component
	failed     chan error

	stopOnce sync.Once
	stopping chan struct{} // closed by the first Stop

	// turn is held by whoever starts or stops parts, and guards the rest.
	turn    chan struct{}
	started bool
	running int // the parts that run are the first so many
	stopped bool
	stopErr error
}

// New returns a group of parts, in the order of their start.
func New(components ...Component) *Group {
	return &Group{
		components: components,
		failed:     make(chan error, 1),
		stopping:   make(chan struct{}),
		turn:       make(chan struct{}, 1),
	}
}

// Start starts all parts, one after the other. If one fails, or ctx ends, or
// Stop is called, those that run are stopped and the group stays stopped.
func (g *Group) Start(ctx context.Context) error {
	g.turn <- struct{}{}
	defer func() { <-g.turn }()
	switch {
	case g.stopped:
		return ErrStopped
	case g.started:
		return ErrStarted
	}
	g.started = true

	startCtx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := make(chan struct{})
	defer close(done)
	go func() {
		select {
		case <-g.stopping:
			cancel(ErrStopped)
		case <-done:
		}
	}()
	for _, c := range g.components {
		if err := c.start(startCtx); err != nil {
			return errors.Join(err, g.stop(context.WithoutCancel(ctx)))
		}
		g.running++
	}
	return nil
}

func (c Component) start(ctx context.Context) error {
	if ctx.Err() != nil {
		return fmt.Errorf("start %s: %w", c.Name, context.Cause(ctx))
	}
	if c.Start == nil {
		return nil
	}
	if err := c.Start(ctx); err != nil {
		return fmt.Errorf("start %s: %w", c.Name, err)
	}
	return nil
}

// Stop stops the parts that run, the last one first, each within its own bound
// and all within ctx. It returns what went wrong, or the error of ctx if that
// ends while another call is at work. It may be called at any time and as often
// as one likes.
func (g *Group) Stop(ctx context.Context) error {
	g.stopOnce.Do(func() { close(g.stopping) })
	select {
	case g.turn <- struct{}{}:
		defer func() { <-g.turn }()
		return g.stop(ctx)
	case <-ctx.Done():
		return fmt.Errorf("stop: %w", context.Cause(ctx))
	}
}

// stop does the work of Stop. The caller has the turn.
func (g *Group) stop(ctx context.Context) error {
	if g.stopped {
		return g.stopErr
	}
	g.stopped = true
	var problems error
	for ; g.running > 0; g.running-- {
		problems = errors.Join(problems, g.components[g.running-1].stop(ctx))
	}
	g.stopErr = problems
	return problems
}

func (c Component) stop(ctx context.Context) error {
	if c.Stop == nil {
		return nil
	}
	limit := c.StopTimeout
	if limit == 0 {
		limit = DefaultStopTimeout
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not done within %s", limit))
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- c.Stop(ctx) }()
	err := await(ctx, done)
	if err != nil {
		return fmt.Errorf("stop %s: %w", c.Name, err)
	}
	return nil
}

// await returns what comes from done, or the cause of ctx's end if nothing has
// come a moment after that.
func await(ctx context.Context, done <-chan error) error {
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
		return context.Cause(ctx)
	}
}

// Fail reports that a part can no longer do its work, so that [Run] stops the
// group and returns err. The first report counts. It never blocks.
func (g *Group) Fail(err error) {
	select {
	case g.failed <- err:
	default:
	}
}
