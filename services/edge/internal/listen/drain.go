package listen

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// cutGrace is how long bytes that are already on their way to a client may still take once Cut has begun.
const cutGrace = time.Second

// Counts says what is under way.
type Counts struct {
	EventStreams int // answers of type text/event-stream
	Requests     int // all others
	Upgrades     int // connections handed over to another protocol
}

// Active returns what is under way now.
func (s *Server) Active() Counts {
	c := Counts{EventStreams: int(s.streams.Load()), Upgrades: int(s.upgrades.Load())}
	c.Requests = max(0, int(s.requests.Load())-c.EventStreams-c.Upgrades)
	return c
}

// Drain stops accepting, closes idle connections, asks the clients of all others to go elsewhere with their next
// request (Connection: close, GOAWAY), and waits until only upgraded connections and event streams are left. Its
// error is that of ctx, when that is done first.
func (s *Server) Drain(ctx context.Context) error {
	s.draining.Store(true)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stopped := s.shutdown(ctx)
	for {
		// Without event streams Shutdown decides: it also waits for responses whose last bytes are still going out.
		if c := s.Active(); c.Requests == 0 && c.EventStreams > 0 {
			cancel()
			if err := <-stopped; err != nil && !errors.Is(err, context.Canceled) {
				return fmt.Errorf("listen: drain: %w", err)
			}
			return nil
		}
		select {
		case err := <-stopped:
			if err != nil {
				return fmt.Errorf("listen: drain: %w", err)
			}
			return nil
		case <-s.changed:
		}
	}
}

func (s *Server) shutdown(ctx context.Context) <-chan error {
	stopped := make(chan error, 1)
	go func() { stopped <- s.http.Shutdown(ctx) }()
	return stopped
}

// Cut ends everything that is left: it cancels the contexts of all requests with the cause [ErrCut], closes upgraded
// connections, and waits until every handler has returned, so that whatever they hold has been given back. A response
// that is just going out has one more second. It returns what was under way when it began, and an error that counts
// the handlers which still ran when ctx was done. Without a Drain before, requests are cut too. It may be called
// before Start, and again.
func (s *Server) Cut(ctx context.Context) (Counts, error) {
	s.draining.Store(true)
	cut := s.Active()
	s.cancel(ErrCut)
	s.hurry()
	stopped := s.shutdown(ctx)
	for s.requests.Load() > 0 && ctx.Err() == nil {
		select {
		case <-s.changed:
		case <-ctx.Done():
		}
	}
	if err := <-stopped; err != nil {
		_ = s.http.Close() // ends what Shutdown left; every error is that of a socket being closed
	}
	s.mu.Lock()
	served := s.served
	s.mu.Unlock()
	if served != nil {
		<-served
	}
	if left := s.requests.Load(); left > 0 {
		return cut, fmt.Errorf("listen: cut: %d requests did not end: %w", left, ctx.Err())
	}
	return cut, nil
}

// hurry gives every connection a deadline, so that no handler waits for a client any more, and closes upgraded ones.
func (s *Server) hurry() {
	deadline := time.Now().Add(cutGrace)
	s.mu.Lock()
	conns := make([]*conn, 0, len(s.conns))
	for c := range s.conns {
		conns = append(conns, c)
	}
	s.mu.Unlock()
	for _, c := range conns {
		if c.hijacked.Load() {
			_ = c.Close()
		} else {
			_ = c.SetDeadline(deadline)
		}
	}
}
