package denylist

import (
	"context"
	"sync"
	"time"

	"github.com/ccnq/ccnq/services/denylist/internal/lead"
	"github.com/ccnq/ccnq/services/denylist/internal/store/pgstore"
)

// listenRetry is the pause before the service listens again for notifications.
const listenRetry = time.Second

// lead does the leader's work until ctx ends or the term does. Blocks are
// published only once the store is on the present stream: before, a store that
// was lost would lift them all.
func (s *Service) lead(ctx context.Context, term *lead.Term) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	begun := make(chan struct{})
	var once sync.Once
	publisher := s.publisher.Load()
	var parts sync.WaitGroup
	part := func(do func()) {
		parts.Go(func() {
			defer cancel() // the term ends when one of the parts does
			do()
		})
	}
	// after runs a part from when the store is ready.
	after := func(do func()) {
		part(func() {
			select {
			case <-begun:
				do()
			case <-ctx.Done():
			}
		})
	}
	part(func() {
		s.projector.Load().Run(ctx, term.Epoch, func() {
			once.Do(func() {
				s.begun.Store(true)
				close(begun)
			})
		})
	})
	after(func() { publisher.Run(ctx, term) })
	after(func() { s.upkeep.Run(ctx, term.Epoch) })
	after(func() { s.listen(ctx, publisher.Changed) })
	after(func() { s.serveLeader(ctx) })
	parts.Wait()
	s.begun.Store(false)
}

// serveLeader answers the requests that are for the leader alone.
func (s *Service) serveLeader(ctx context.Context) {
	stop, err := s.server.Lead()
	if err != nil {
		s.logger.Error("cannot answer requests for a rebuild", "error", err)
		return
	}
	<-ctx.Done()
	if err := stop(); err != nil {
		s.logger.Debug("requests for a rebuild", "error", err)
	}
}

// listen passes notifications of the database on. They only make things
// faster, so a connection that fails is not an event.
func (s *Service) listen(ctx context.Context, changed func()) {
	for s.db != nil && ctx.Err() == nil {
		if conn, err := s.db.Session(ctx); err == nil {
			err = pgstore.Listen(ctx, conn, changed)
			s.logger.Debug("notifications ended", "error", err)
			closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), listenRetry)
			conn.Close(closing)
			cancel()
		}
		select {
		case <-ctx.Done():
		case <-time.After(listenRetry):
		}
	}
	<-ctx.Done()
}
