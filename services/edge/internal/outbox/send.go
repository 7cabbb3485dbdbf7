package outbox

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

const (
	// publishTimeout is how long one message waits for its acknowledgement
	// before it is sent again.
	publishTimeout = 2 * time.Second
	// After a failure the next attempt waits this long, twice as long each time.
	firstPause = 50 * time.Millisecond
	lastPause  = time.Second
)

// sender sends what one queue holds: one message at a time, in order, each
// until it is acknowledged.
type sender struct {
	queue   queue
	edgeID  string
	publish Publish
	metrics *metrics
	logger  *slog.Logger
}

// run sends until the queue is broken, ctx ends, or drain is closed and nothing
// is left.
func (s *sender) run(ctx context.Context, drain <-chan struct{}) {
	pause := firstPause
	for ctx.Err() == nil {
		r, ok, err := s.queue.head()
		if err != nil {
			if errors.Is(err, errCorrupt) || errors.Is(err, errClosed) {
				return // whoever writes the queue replaces it
			}
			wait(ctx, lastPause)
			continue
		}
		if !ok {
			select {
			case <-s.queue.wake():
			case <-ctx.Done():
			case <-drain:
				// What was added before drain was closed rang the bell.
				if _, more, err := s.queue.head(); !more || err != nil {
					return
				}
			}
			continue
		}
		if err := s.send(ctx, r); err != nil {
			if ctx.Err() != nil {
				return
			}
			if pause == firstPause {
				s.logger.Warn("denials wait: NATS does not take them", "outbox", s.queue.name(), "error", err)
			}
			s.metrics.failures.Inc()
			wait(ctx, pause)
			pause = min(2*pause, lastPause)
			continue
		}
		if pause > firstPause {
			s.logger.Info("NATS takes denials again", "outbox", s.queue.name())
		}
		pause = firstPause
		s.metrics.sent.Inc()
		s.queue.ack(r.seq)
	}
}

func (s *sender) send(ctx context.Context, r record) error {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	return s.publish(ctx, r.kind.subject(s.edgeID), r.payload, eventID(s.queue.name(), r.seq))
}

func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
