package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/maypok86/otter/v2"
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
	// Realm is what all entries depend on beside their keys, such as settings: a
	// file that was made with another realm is not kept.
	Realm string
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

// Store keeps responses. Its methods are safe for concurrent use.
type Store[H any] struct {
	opts    Options[H]
	metrics *metrics
	tier    *otter.Cache[uint64, *Item[H]] // nil without memory

	volume  atomic.Pointer[volume] // nil while there is no file
	pending pendingItems[H]
	purges  purgeLog
	trouble trouble

	queue  queue[H]
	ring   chan struct{} // something is to be written, or removed
	hurry  chan struct{} // and ought not to wait for more
	sweep  chan struct{} // purges are to be swept
	ending chan struct{} // closed: end
	tasks  sync.WaitGroup
	stop   sync.Once
	finish context.Context //nolint:containedctx // how long the writer may take at the end; set before ending is closed

	disk disk // the writer's
}

// Open opens the store or makes a new one, which may take a second for a
// million entries. Faults of the disk are no error: the store works as an empty
// one until they are over, see [Store.Degraded]. The error names a bad option.
// Call Stop at the end.
func Open[H any](opts Options[H]) (*Store[H], error) {
	switch {
	case opts.MaxBytes < MinBytes:
		return nil, fmt.Errorf("the cache's size is %d bytes: it must be at least %d", opts.MaxBytes, MinBytes)
	case opts.MaxItemBytes < 0 || opts.MaxItemBytes > MaxItemBytes:
		return nil, fmt.Errorf("the size of an item is %d bytes: it must be 0 to %d", opts.MaxItemBytes, MaxItemBytes)
	case opts.MemoryBytes < 0:
		return nil, fmt.Errorf("the cache's memory is %d bytes: it must not be negative", opts.MemoryBytes)
	case opts.SweepInterval <= 0:
		return nil, fmt.Errorf("the cache's sweep interval is %v: it must be positive", opts.SweepInterval)
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	s := &Store[H]{
		opts:   opts,
		ring:   make(chan struct{}, 1),
		hurry:  make(chan struct{}, 1),
		sweep:  make(chan struct{}, 1),
		ending: make(chan struct{}),
		queue:  queue[H]{max: maxQueued, batch: min(maxBatch, opts.MaxBytes/64)},
		disk:   disk{dir: opts.Dir},
	}
	if opts.MemoryBytes > 0 {
		var err error
		if s.tier, err = otter.New(&otter.Options[uint64, *Item[H]]{
			MaximumWeight: uint64(opts.MemoryBytes),
			Weigher: func(_ uint64, it *Item[H]) uint32 {
				return uint32(min(it.memory(opts.Codec.Size(it.head)), 1<<32-1))
			},
		}); err != nil {
			return nil, err
		}
	}
	s.metrics = newMetrics(opts.Registerer, s)
	s.openDisk()
	s.tasks.Go(s.write)
	s.tasks.Go(s.sweeper)
	return s, nil
}

// Get returns what is stored under key. Close the item when done. It may be
// stale: the caller decides what use it is. From memory it takes well under a
// microsecond and allocates nothing; no lock is shared by all readers.
func (s *Store[H]) Get(key Key) (*Item[H], bool) {
	for range 3 { // an entry may be replaced just when it is read
		v := s.volume.Load()
		if v == nil {
			return nil, false
		}
		swept := s.purges.swept()
		f, ok := v.index.find(key)
		if !ok {
			return nil, false
		}
		it, err := s.read(v, key, f)
		if errors.Is(err, errGone) {
			continue
		}
		if err != nil {
			s.unreadable(v, key, f.id, err)
			return nil, false
		}
		if s.purges.hits(it.name, it.gen, swept) {
			it.Close()
			v.index.dropVersion(key, f.id)
			return nil, false
		}
		return it, true
	}
	return nil, false
}

// read makes the item that f has found, and ends or hands on its pin.
func (s *Store[H]) read(v *volume, key Key, f found) (*Item[H], error) {
	it, err := s.locate(v, key, f)
	switch {
	case !f.pinned:
		return it, err
	case err != nil || it.inMemory:
		if v.index.unpin(f.slot) {
			s.wake(s.ring)
		}
		return it, err
	}
	// Each reader of a body on disk has an item of its own, for its pin.
	return &Item[H]{
		id: it.id, key: it.key, name: it.name, gen: it.gen, head: it.head, size: it.size,
		base: f.base, store: s, volume: v, slot: f.slot,
	}, nil
}

// locate finds the item in memory, or reads it.
func (s *Store[H]) locate(v *volume, key Key, f found) (*Item[H], error) {
	if s.tier != nil {
		if it, ok := s.tier.GetIfPresent(f.id); ok {
			return it, nil
		}
	}
	if it := s.pending.get(f.id); it != nil {
		s.remember(it)
		return it, nil
	}
	whole := int64(0)
	if f.base != 0 && f.size <= wholeBytes {
		whole = int64(f.size)
	}
	value, body, err := v.readRecord(f.id, f.base, whole)
	if err != nil {
		return nil, err
	}
	r, err := decodeRecord(f.id, value)
	if err != nil {
		return nil, err
	}
	if r.key != key || r.base != f.base || r.size != f.size {
		return nil, errRecord
	}
	head, err := s.opts.Codec.Decode(r.head)
	if err != nil {
		return nil, err
	}
	it := &Item[H]{
		id: f.id, key: key, name: string(r.name), gen: Generation(r.gen), head: head, size: int64(r.size),
		inMemory: f.base == 0 || whole > 0,
	}
	switch {
	case r.size == 0:
	case f.base == 0:
		it.whole = r.body
	case whole > 0:
		it.whole = body
	}
	s.remember(it)
	return it, nil
}

// remember puts an item into the tier if it is small.
func (s *Store[H]) remember(it *Item[H]) {
	if s.tier != nil && it.inMemory && it.size <= min(wholeBytes, s.opts.MemoryBytes/8) {
		s.tier.Set(it.id, it)
	}
}

// unreadable drops an entry that does not read.
func (s *Store[H]) unreadable(v *volume, key Key, id uint64, err error) {
	if errors.Is(err, errBroken) || v.broken.Load() {
		return // all of the file goes
	}
	if v.index.dropVersion(key, id) {
		s.metrics.readFailures.Inc()
		s.trouble.once(s.opts.Logger, "an entry of the cache is corrupt and dropped", err)
		s.wake(s.ring)
	}
}

// Generation is to be read before a response is asked for, and handed to Put
// with it: what a purge between the two matches is not stored.
func (s *Store[H]) Generation() Generation { return Generation(s.purges.gen.Load()) }

// Put stores an entry, in place of what had its key. It is readable at once
// and written to disk soon. Put never waits for the disk: it reports false, and
// counts why, when the entry is too large, when too much waits to be written,
// when the disk has a fault, or after a purge. Then what had the key before
// stays.
func (s *Store[H]) Put(e Entry[H]) bool {
	it := &Item[H]{key: e.Key, name: e.Name, gen: e.Since, head: e.Head, inMemory: true}
	for _, piece := range e.Body {
		it.size += int64(len(piece))
	}
	headBytes := s.opts.Codec.Size(e.Head)
	if it.size > min(s.opts.MaxItemBytes, s.opts.MaxBytes/8) || headBytes > maxHeadBytes || len(e.Name) > MaxName {
		s.metrics.dropped(droppedTooLarge)
		return false
	}
	it.whole, it.pieces = tidy(e.Body, it.size)
	return s.store(it, headBytes, e.Until, nil)
}

// tidy makes a body one piece if it is small, and frees room that is not used.
func tidy(body [][]byte, size int64) (whole []byte, pieces [][]byte) {
	switch {
	case size == 0:
		return nil, nil
	case len(body) == 1 && int64(cap(body[0])) <= size+size/4:
		return body[0], nil
	case size > wholeBytes:
		return nil, body
	}
	whole = make([]byte, 0, size)
	for _, piece := range body {
		whole = append(whole, piece...)
	}
	return whole, nil
}

// Update gives the entry that item was read from a new head and a new end; the
// body stays. It reports false, and changes nothing, when the key holds
// something else by now, or when it cannot be written: then the caller may
// delete the key.
func (s *Store[H]) Update(item *Item[H], head H, until time.Time) bool {
	headBytes := s.opts.Codec.Size(head)
	if headBytes > maxHeadBytes {
		s.metrics.dropped(droppedTooLarge)
		return false
	}
	return s.store(&Item[H]{
		key: item.key, name: item.name, gen: item.gen, head: head, size: item.size,
		inMemory: item.inMemory, whole: item.whole, pieces: item.pieces, base: item.base,
	}, headBytes, until, item)
}

// store makes an item readable and queues it for the disk. With was, it
// replaces that version alone; a body on disk stays where it is.
func (s *Store[H]) store(it *Item[H], headBytes int, until time.Time, was *Item[H]) bool {
	v := s.volume.Load()
	if v == nil || s.disk.refusing.Load() {
		s.metrics.dropped(droppedFault)
		return false
	}
	charge := it.memory(headBytes)
	if !s.queue.reserve(charge) {
		s.metrics.dropped(droppedBusy)
		return false
	}
	front := int64(fixedBytes + len(it.name) + headBytes + crcBytes)
	chunked := front+it.size > chunkBytes
	e := slot{
		key: it.key, size: uint32(it.size), disk: diskBytes(front, it.size, chunked || !it.inMemory),
		until: seconds(until), gen: uint32(it.gen),
	}
	e.name, e.host = hashName(it.name)

	if why := s.insert(v, it, &e, chunked, charge, was); why != "" {
		s.queue.release(charge)
		s.metrics.dropped(why)
		return false
	}
	if was != nil { // somebody wants it: it was validated
		s.remember(it)
	}
	s.wake(s.ring)
	if s.queue.long() {
		s.wake(s.hurry)
	}
	return true
}

// insert gives an item its ids and its place in the index and in the queue,
// unless there is a reason not to.
func (s *Store[H]) insert(v *volume, it *Item[H], e *slot, chunked bool, charge int64, was *Item[H]) (why string) {
	x := v.index
	swept := s.purges.swept()
	x.mu.Lock()
	defer x.mu.Unlock()
	if was == nil {
		if s.purges.forbids(it.name, it.gen) {
			return droppedPurged
		}
	} else if _, ok := x.holds(it.key, was.id); !ok || s.purges.hits(it.name, it.gen, swept) {
		return droppedReplaced
	}
	it.id = v.nextID
	e.id = it.id
	if it.inMemory {
		it.base = 0
		if chunked {
			it.base = v.nextChunk
		}
	}
	e.base = it.base
	if !s.queue.add(op[H]{volume: v, item: it, until: e.until, charge: charge}) {
		return droppedFault // stopped
	}
	v.nextID++
	if it.inMemory && chunked {
		v.nextChunk += uint64(chunksOf(it.size))
	}
	s.pending.set(it.id, it)
	if it.inMemory {
		x.put(e)
	} else {
		x.amend(e)
	}
	return ""
}

// Delete removes what is stored under key, if anything.
func (s *Store[H]) Delete(key Key) {
	v := s.volume.Load()
	if v == nil {
		return
	}
	v.index.mu.Lock()
	ok := v.index.drop(key)
	v.index.mu.Unlock()
	if ok {
		s.wake(s.ring)
	}
}

// Len is the number of entries.
func (s *Store[H]) Len() int {
	entries, _ := s.count()
	return entries
}

// count returns the number of entries and about what they take in the file.
func (s *Store[H]) count() (entries int, bytes int64) {
	if v := s.volume.Load(); v != nil {
		return v.index.count()
	}
	return 0, 0
}

// Degraded says why nothing is stored, or nothing.
func (s *Store[H]) Degraded() string { return s.trouble.reason() }

// Stop writes what waits, until ctx ends, and closes the file. Items stay
// readable as far as they are in memory. It may be called twice.
func (s *Store[H]) Stop(ctx context.Context) {
	s.stop.Do(func() {
		s.finish = ctx
		close(s.ending)
		s.tasks.Wait()
		if s.tier != nil {
			s.tier.InvalidateAll()
			s.tier.StopAllGoroutines()
		}
	})
}

// wake rings a bell that may have been rung already.
func (s *Store[H]) wake(bell chan struct{}) {
	select {
	case bell <- struct{}{}:
	default:
	}
}
