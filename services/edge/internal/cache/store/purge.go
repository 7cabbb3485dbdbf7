package store

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"go.etcd.io/bbolt"
)

// Purge says which entries to remove.
type Purge struct {
	// Name of a resource, or the beginning of names with Prefix. The purge of a
	// host is the prefix "example.org/".
	Name string
	// Prefix removes everything whose name begins with Name, which may be empty.
	Prefix bool
}

func (p Purge) matches(name string) bool {
	if p.Prefix {
		return strings.HasPrefix(name, p.Name)
	}
	return name == p.Name
}

// storedPurge is a purge with its number.
type storedPurge struct {
	Purge
	gen Generation
}

// maxPurges is how many purges are remembered. What was asked for before the
// oldest of them is not stored.
const maxPurges = 4096

// purgeLog is the purges that fetches under way and entries may not know of.
type purgeLog struct {
	gen  atomic.Uint64 // number of the last purge
	done atomic.Uint64 // purges up to this number are swept: no entry that they match is left

	mu        sync.RWMutex
	recent    []storedPurge // ascending
	forgotten Generation    // number of the last purge that is not remembered
}

// add numbers purges and makes them effective. It returns them, and whether
// some were forgotten that are not done.
func (l *purgeLog) add(purges []Purge) (numbered []storedPurge, overrun bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	gen := Generation(l.gen.Load())
	for _, p := range purges {
		gen++
		numbered = append(numbered, storedPurge{p, gen})
	}
	l.recent = append(l.recent, numbered...)
	if n := len(l.recent) - maxPurges; n > 0 {
		l.forgotten = l.recent[n-1].gen
		l.recent = slices.Clone(l.recent[n:])
	}
	overrun = uint64(l.forgotten) > l.done.Load()
	l.gen.Store(uint64(gen))
	return numbered, overrun
}

// restore begins after purges that the file knows of, whose entries are gone.
func (l *purgeLog) restore(gen Generation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if gen > Generation(l.gen.Load()) {
		l.forgotten = gen
		l.gen.Store(uint64(gen))
		l.done.Store(uint64(gen))
	}
}

// since returns the purges after gen, and whether all of them are remembered.
func (l *purgeLog) since(gen Generation) (purges []storedPurge, all bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	at, _ := slices.BinarySearchFunc(l.recent, gen, func(p storedPurge, gen Generation) int {
		if p.gen <= gen {
			return -1
		}
		return 1
	})
	return l.recent[at:len(l.recent):len(l.recent)], gen >= l.forgotten
}

// forbids says whether what was asked for at gen must not be stored.
func (l *purgeLog) forbids(name string, gen Generation) bool {
	if uint64(gen) >= l.gen.Load() {
		return false
	}
	purges, all := l.since(gen)
	return !all || slices.ContainsFunc(purges, func(p storedPurge) bool { return p.matches(name) })
}

// swept is the number of the last purge of which no entry is left. It is to be
// read before the index is.
func (l *purgeLog) swept() Generation { return Generation(l.done.Load()) }

// hits says whether an entry of gen that the index held after swept is one that
// is yet to be removed. It costs next to nothing while no purge is under way.
func (l *purgeLog) hits(name string, gen, swept Generation) bool {
	if last := Generation(l.gen.Load()); gen >= last || swept >= last {
		return false
	}
	return l.forbids(name, max(gen, swept))
}

var nameSeed = maphash.MakeSeed()

// hashName returns a hash of a name and one of its first part, the host.
func hashName(name string) (full uint64, host uint32) {
	first, _, _ := strings.Cut(name, "/")
	return maphash.String(nameSeed, name), uint32(maphash.String(nameSeed, first))
}

// errNotKept says that a purge is in effect but would not outlive a crash.
var errNotKept = errors.New("the purge is in effect, but could not be written: entries may come back after a crash")

// Purge removes what matches, including what was asked for before and is not
// yet stored. It is effective at once; the disk is cleaned in the background.
// It returns once the purge outlives a crash, or ctx ends; the error says that
// it does not.
func (s *Store[H]) Purge(ctx context.Context, purges ...Purge) error {
	for _, p := range purges {
		if p == (Purge{}) || len(p.Name) > MaxName {
			return fmt.Errorf("a purge has a name of %d bytes: it must be 1 to %d, or 0 for everything", len(p.Name), MaxName)
		}
	}
	if len(purges) == 0 {
		return nil
	}
	done := make(chan error, 1)
	numbered, overrun := s.purges.add(purges)
	if !s.queue.add(op[H]{purges: numbered, overrun: overrun, done: done}) {
		return errNotKept // stopped
	}
	s.wake(s.ring)
	s.wake(s.hurry)
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", errNotKept, ctx.Err())
	}
}

// Purged reports whether a purge since a generation matches a name, or may have:
// Put refuses what was asked for then.
func (s *Store[H]) Purged(name string, since Generation) bool { return s.purges.forbids(name, since) }

// sweepPurges removes what the purges after the last sweep match. It reports
// whether there were any.
func (s *Store[H]) sweepPurges(v *volume) bool {
	last := Generation(s.purges.gen.Load())
	from := s.purges.swept()
	if last == from {
		return false
	}
	purges, _ := s.purges.since(from)
	names := make(map[uint64]Generation) // exact ones, and when
	hosts := make(map[uint32]Generation) // hosts of prefixes
	var everywhere Generation            // a prefix that is less than a host
	for _, p := range purges {
		full, host := hashName(p.Name)
		switch {
		case p.gen > last:
		case !p.Prefix:
			names[full] = p.gen
		case strings.Contains(p.Name, "/"):
			hosts[host] = p.gen
		default:
			everywhere = p.gen
		}
	}
	type candidate struct {
		key Key
		id  uint64
		gen Generation
	}
	var look []candidate
	removed := v.index.scan(func(e *slot) bool {
		gen := Generation(e.gen)
		if names[e.name] > gen {
			return true
		}
		if hosts[e.host] > gen || everywhere > gen {
			look = append(look, candidate{e.key, e.id, gen})
		}
		return false
	})
	for _, c := range look {
		name, ok := s.nameOf(v, c.id)
		if ok && s.purges.hits(name, c.gen, from) && v.index.dropVersion(c.key, c.id) {
			removed++
		}
	}
	s.metrics.evicted(evictedPurged, removed)
	s.purges.done.Store(uint64(last))
	return true
}

// nameOf returns the name of a version of an entry, if it is still there.
func (s *Store[H]) nameOf(v *volume, id uint64) (string, bool) {
	if it := s.pending.get(id); it != nil {
		return it.name, true
	}
	name, ok := "", false
	_ = v.view(func(tx *bbolt.Tx) error {
		if r, _, err := decodeFront(id, get(tx, bucketRecords, id)); err == nil {
			name, ok = string(r.name), true
		}
		return nil
	})
	return name, ok
}

// loadPurges reads the purges that were not done when the file was left.
func loadPurges(tx *bbolt.Tx) (purges []storedPurge, err error) {
	err = walk(tx, bucketPurges, func(gen uint64, value []byte) error {
		if len(value) < 1 || len(value) > 1+MaxName || value[0] > 1 {
			return fmt.Errorf("%w: purge %d does not read", errBroken, gen)
		}
		purges = append(purges, storedPurge{Purge{string(value[1:]), value[0] == 1}, Generation(gen)})
		return nil
	})
	return purges, err
}

// writePurges adds purges to the file and removes those up to done.
func writePurges(tx *bbolt.Tx, purges []storedPurge, done Generation) error {
	b := tx.Bucket(bucketPurges)
	for _, p := range purges {
		value := []byte{0}
		if p.Prefix {
			value[0] = 1
		}
		if err := b.Put(binary.BigEndian.AppendUint64(nil, uint64(p.gen)), append(value, p.Name...)); err != nil {
			return err
		}
	}
	for k, _ := b.Cursor().First(); k != nil && binary.BigEndian.Uint64(k) <= uint64(done); k, _ = b.Cursor().First() {
		if err := b.Delete(k); err != nil {
			return err
		}
	}
	return nil
}
