package flight

import (
	"context"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ccnq/ccnq/services/edge/internal/admission"
)

// Key names what a flight brings: a resource, and which variant of it. Flights
// of one resource can be found by Primary alone, see [Table.Outdate].
type Key struct {
	Primary, Variant [16]byte
}

// Lane is what askers have in common who share a place in the admission queue.
type Lane struct {
	// Group is the client's network.
	Group netip.Prefix
	// Kind tells lanes of one group apart, such as those that the queue does not
	// concern.
	Kind byte
}

// Seat is what the admission queue gave an asker.
type Seat struct {
	// Outcome says whether it may go on.
	Outcome admission.Outcome
	// Done gives the place back. Nil if there is none.
	Done func()
}

func (s Seat) giveBack() {
	if s.Done != nil {
		s.Done()
	}
}

// Options bound the flights of a [Table]. All must be positive.
type Options struct {
	// Window is how far a fetch may be ahead of its fastest reader, and how much
	// a closed flight keeps for its slowest, in bytes.
	Window int64
	// Limit is the size of a body, in bytes, beyond which a flight is closed.
	Limit int64
	// Budget bounds what all flights hold together, in bytes: one that wants
	// more is closed. Beside it each flight holds up to 64 KiB.
	Budget int64
	// Stall is how long a reader of a closed flight may read nothing while
	// another waits for more.
	Stall time.Duration
}

const shards = 64

// Table holds the flights that can be joined. It is safe for concurrent use.
type Table[H any] struct {
	opts    Options
	held    atomic.Int64 // bytes of bodies
	epoch   atomic.Uint64
	askers  atomic.Int64
	cuts    atomic.Uint64
	shard   [shards]shard[H]
	running sync.WaitGroup

	stop    context.CancelFunc
	stopped context.Context //nolint:containedctx // no request's: it ends with the table
}

type shard[H any] struct {
	mu      sync.Mutex
	flights map[Key]*flight[H]
	closed  bool
}

// New returns an empty table.
func New[H any](opts Options) *Table[H] {
	t := &Table[H]{opts: opts}
	t.stopped, t.stop = context.WithCancel(context.Background())
	for i := range t.shard {
		t.shard[i].flights = make(map[Key]*flight[H])
	}
	return t
}

// Join makes a part of the flight of a key, which is a new one if there is none
// to join. It reports false after [Table.Stop]. A that has joined must
// [Asker.Leave], and joins once.
func (t *Table[H]) Join(key Key, a *Asker[H]) bool {
	s := t.shardOf(key.Primary)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	if f := s.flights[key]; f != nil && f.epoch == t.epoch.Load() && f.join(a) {
		return true
	}
	f := t.newFlight(key)
	s.flights[key] = f
	return f.join(a)
}

// Flying reports whether there is a flight of a key that can be joined.
func (t *Table[H]) Flying(key Key) bool {
	s := t.shardOf(key.Primary)
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.flights[key]
	return f != nil && f.epoch == t.epoch.Load()
}

// Outdate says that the resource has changed: nobody joins its flights any
// more.
func (t *Table[H]) Outdate(primary [16]byte) {
	s := t.shardOf(primary)
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range s.flights {
		if key.Primary == primary {
			delete(s.flights, key)
		}
	}
}

// OutdateAll is [Table.Outdate] for every resource.
func (t *Table[H]) OutdateAll() { t.epoch.Add(1) }

// Askers returns how many askers have joined and not left.
func (t *Table[H]) Askers() int { return int(t.askers.Load()) }

// Held returns how many bytes of bodies all flights hold.
func (t *Table[H]) Held() int64 { return t.held.Load() }

// CutLoose returns how many readers were cut loose since they held up others.
func (t *Table[H]) CutLoose() uint64 { return t.cuts.Load() }

// Stop cancels all flights and waits until their fetches have ended, or ctx
// has. Nobody joins any more. It may be called twice.
func (t *Table[H]) Stop(ctx context.Context) error {
	for i := range t.shard {
		s := &t.shard[i]
		s.mu.Lock()
		s.closed = true
		s.mu.Unlock()
	}
	t.stop()
	ended := make(chan struct{})
	go func() {
		t.running.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (t *Table[H]) shardOf(primary [16]byte) *shard[H] { return &t.shard[primary[0]%shards] }

// forget takes a flight out of the table, so that the next asker begins a new
// one. The flight's lock must not be held.
func (t *Table[H]) forget(f *flight[H]) {
	s := t.shardOf(f.primary)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.flights[f.key] == f {
		delete(s.flights, f.key)
	}
}
