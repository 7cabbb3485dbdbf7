package lifecycle

import (
	"context"
	"sync"
)

// Ending is the end of something that may be stopped at any time, more than
// once, and from several goroutines. Make one with [NewEnding]. It is safe for
// concurrent use.
type Ending struct {
	once  sync.Once
	begun chan struct{}
	over  chan struct{}
	err   error // written before over is closed
}

// NewEnding returns one that has not begun.
func NewEnding() *Ending {
	return &Ending{begun: make(chan struct{}), over: make(chan struct{})}
}

// Stop runs stop with the ctx of the first call, once, and returns its error to
// everybody. Who waits returns with the error of ctx when that ends first; stop
// then goes on in the background.
func (e *Ending) Stop(ctx context.Context, stop func(context.Context) error) error {
	e.once.Do(func() {
		close(e.begun)
		go func() {
			defer close(e.over)
			e.err = stop(ctx)
		}()
	})
	select {
	case <-e.over:
		return e.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Begun reports whether Stop has been called.
func (e *Ending) Begun() bool {
	select {
	case <-e.begun:
		return true
	default:
		return false
	}
}

// Over is closed when stop has returned.
func (e *Ending) Over() <-chan struct{} { return e.over }
