package streams

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/ccnq/ccnq/pkg/bus"
	"github.com/ccnq/ccnq/pkg/wire"
)

const (
	// refusalsAge and refusalsBytes bound the stream of the refusals.
	refusalsAge   = 24 * time.Hour
	refusalsBytes = 256 << 20
	// purgesAge and purgesBytes bound the stream of the purges. An edge that
	// misses one for good empties its cache.
	purgesAge   = 24 * time.Hour
	purgesBytes = 64 << 20
	// alertsWait is how long an alerting client may take over one event.
	alertsWait = 30 * time.Second
	minRetry   = 250 * time.Millisecond
	maxRetry   = 5 * time.Second
)

// Alerts is the name of the durable consumer of [wire.StreamEvents] that is
// prepared for alerting clients.
const Alerts = "alerts"

// errMissing means that something is not there yet.
var errMissing = errors.New("the streams are not there yet")

// Options say how the events are kept.
type Options struct {
	Conn *bus.Conn
	// MaxAge is how long events are kept, MaxBytes how many of them.
	MaxAge   time.Duration
	MaxBytes int64
	// More are streams that are kept besides those of the events.
	More   []bus.StreamSpec
	Logger *slog.Logger
}

// Keeper makes the streams. It is safe for concurrent use.
type Keeper struct {
	opts Options
	wake chan struct{}

	mu    sync.Mutex
	ready chan struct{} // closed once all is there
	err   error         // why it is not; nil when it is
}

// New returns a keeper that does nothing yet.
func New(opts Options) *Keeper {
	return &Keeper{opts: opts, wake: make(chan struct{}, 1), ready: make(chan struct{}), err: errMissing}
}

// Missing says that something may be gone: the connection was lost, or a stream
// was not found. It does not block.
func (k *Keeper) Missing() {
	k.mu.Lock()
	if k.err == nil {
		k.ready, k.err = make(chan struct{}), errMissing
	}
	k.mu.Unlock()
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// Wait returns once everything is there, or with the error of ctx.
func (k *Keeper) Wait(ctx context.Context) error {
	k.mu.Lock()
	ready := k.ready
	k.mu.Unlock()
	select {
	case <-ready:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Err returns nil if everything is there, as far as is known, or else why it
// is not.
func (k *Keeper) Err() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.err
}

// Run makes what is missing, until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	delay, last := minRetry, ""
	for {
		err := k.ensure(ctx)
		if ctx.Err() != nil {
			return
		}
		k.note(err)
		if err == nil {
			delay, last = minRetry, ""
			k.opts.Logger.Info("streams and bucket are there")
			select {
			case <-k.wake:
				continue
			case <-ctx.Done():
				return
			}
		}
		if text := err.Error(); text != last && !errors.Is(err, bus.ErrDisconnected) {
			last = text
			k.opts.Logger.Warn("cannot make the streams; trying on", "error", err)
		}
		select {
		case <-k.wake:
			delay = minRetry
		case <-time.After(delay):
			delay = min(2*delay, maxRetry)
		case <-ctx.Done():
			return
		}
	}
}

func (k *Keeper) note(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err == nil && k.err != nil {
		close(k.ready)
	}
	if err != nil && k.err == nil {
		k.ready = make(chan struct{})
	}
	k.err = err
}

// ensure makes everything.
func (k *Keeper) ensure(ctx context.Context) error {
	for _, spec := range append([]bus.StreamSpec{k.events(), refusals, purges}, k.opts.More...) {
		if _, err := bus.EnsureStream(ctx, k.opts.Conn, spec); err != nil {
			if spec.Name == wire.StreamEvents && !errors.Is(err, bus.ErrDisconnected) {
				return fmt.Errorf("%s with CCNQ_EVENTS_MAX_BYTES %d: %w", spec.Name, spec.MaxBytes, err)
			}
			return fmt.Errorf("%s: %w", spec.Name, err)
		}
	}
	if _, err := bus.EnsureBlocksBucket(ctx, k.opts.Conn, 1, 0); err != nil {
		return err
	}
	return bus.EnsureDurable(ctx, k.opts.Conn, bus.DurableSpec{
		Stream: wire.StreamEvents, Name: Alerts, Description: "for an alerting client, which misses nothing while it is away",
		AckWait: alertsWait,
	})
}

// events is the stream that blocks are made of. When it is full it refuses new
// events, which then wait at the edges.
func (k *Keeper) events() bus.StreamSpec {
	return bus.StreamSpec{
		Name:        wire.StreamEvents,
		Description: "denials that count towards blocks, and the blocks",
		Subjects: []string{
			denied(wire.DeniedQueueFull), denied(wire.DeniedQueueTimeout), denied(wire.DeniedByQoSCounted),
			fmt.Sprintf(wire.SubjectBlocked, "*"), fmt.Sprintf(wire.SubjectUnblocked, "*"),
			fmt.Sprintf(wire.SubjectWouldBlock, "*"), wire.SubjectStreamReset,
		},
		MaxAge:          k.opts.MaxAge,
		MaxBytes:        k.opts.MaxBytes,
		MaxMessageBytes: wire.MaxMessage,
		RefuseWhenFull:  true,
		Direct:          true,
	}
}

// denied are the subjects of one reason, of all edges.
func denied(reason wire.DenialReason) string { return fmt.Sprintf(wire.SubjectDenied, reason, "*") }

// refusals is the stream of everything else, which only informs.
var refusals = bus.StreamSpec{
	Name:        wire.StreamRefusals,
	Description: "refusals that count towards nothing, for a day",
	Subjects: []string{
		denied(wire.DeniedByDenylist), denied(wire.DeniedByQoS),
		fmt.Sprintf(wire.SubjectWouldDeny, "*", "*"),
	},
	MaxAge:          refusalsAge,
	MaxBytes:        refusalsBytes,
	MaxMessageBytes: wire.MaxMessage,
	Direct:          true,
}

// purges is the stream of what operators have removed from the edges' caches,
// for edges that are away. It is here since this service alone makes streams.
var purges = bus.StreamSpec{
	Name:            wire.StreamPurges,
	Description:     "purges of the caches, for a day",
	Subjects:        []string{wire.SubjectPurge},
	MaxAge:          purgesAge,
	MaxBytes:        purgesBytes,
	MaxMessageBytes: wire.MaxMessage,
	Direct:          true,
}
