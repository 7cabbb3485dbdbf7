package flight

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/services/edge/internal/admission"
)

const (
	kib   = 1 << 10
	stall = 5 * time.Second
)

var (
	alice = Lane{Group: netip.MustParsePrefix("203.0.113.0/24")}
	bob   = Lane{Group: netip.MustParsePrefix("198.51.100.0/24")}
	page  = Key{Primary: [16]byte{1}}

	errNotForAll = errors.New("not for all")
)

// world is a table with a queue and an origin that the test plays.
type world struct {
	*Table[string]

	mu      sync.Mutex
	fetches int
	over    int // of them, those that everybody has left
	given   int // places that are taken
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{Table: New[string](Options{Window: 64 * kib, Limit: 256 * kib, Budget: 1024 * kib, Stall: stall})}
	t.Cleanup(func() {
		require.NoError(t, w.Stop(context.Background()))
		require.Zero(t, w.Held(), "no memory is held")
		w.mu.Lock()
		defer w.mu.Unlock()
		require.Zero(t, w.given, "every place was given back")
		require.Equal(t, w.fetches, w.over, "every fetch was told its end")
	})
	return w
}

func (w *world) seat() Seat {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.given++
	return Seat{
		Outcome: admission.Outcome{Reason: admission.Admitted, Pass: true},
		Done: func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.given--
		},
	}
}

func refusal(reason admission.Reason) Seat {
	return Seat{Outcome: admission.Outcome{Reason: reason, RetryAfter: time.Second}}
}

// line is a queue in which the test admits: each value lets one pass, or not.
type line chan bool

func (w *world) board(l line) func(context.Context) Seat {
	return func(ctx context.Context) Seat {
		select {
		case pass := <-l:
			if pass {
				return w.seat()
			}
			return refusal(admission.QueueTimeout)
		case <-ctx.Done():
			return refusal(admission.ClientGone)
		}
	}
}

func (w *world) free(context.Context) Seat { return w.seat() }

// fetch is what the origin does with the feed.
type fetch func(ctx context.Context, feed *Feed[string]) bool

// errand is a test's.
type errand struct {
	world *world
	board func(context.Context) Seat
	do    fetch
}

func (e *errand) Board(ctx context.Context) Seat { return e.board(ctx) }

func (e *errand) Fetch(ctx context.Context, _ Seat, feed *Feed[string]) bool {
	e.world.mu.Lock()
	e.world.fetches++
	e.world.mu.Unlock()
	return e.do(ctx, feed)
}

func (e *errand) Over() {
	e.world.mu.Lock()
	e.world.over++
	e.world.mu.Unlock()
}

func (w *world) asker(lane Lane, board func(context.Context) Seat, do fetch) *Asker[string] {
	return &Asker[string]{Context: context.Background(), Lane: lane, Errand: &errand{w, board, do}}
}

func (w *world) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.fetches
}

func (w *world) join(t *testing.T, a *Asker[string]) *Asker[string] {
	t.Helper()
	require.True(t, w.Join(page, a))
	return a
}

func say(text string) fetch {
	return func(ctx context.Context, feed *Feed[string]) bool {
		feed.Share("head")
		return feed.Write(ctx, []byte(text)) == nil
	}
}

func read(t *testing.T, a *Asker[string]) string {
	t.Helper()
	news, err := a.Await(t.Context())
	require.NoError(t, err)
	require.Equal(t, HeadCame, news)
	require.Equal(t, "head", a.Head())
	var all bytes.Buffer
	for {
		piece, err := a.Next(t.Context(), nil)
		if errors.Is(err, io.EOF) {
			return all.String()
		}
		require.NoError(t, err)
		all.Write(piece)
	}
}

func requireNews(t *testing.T, want News, a *Asker[string]) {
	t.Helper()
	news, err := a.Await(t.Context())
	require.NoError(t, err)
	require.Equal(t, want, news)
}
