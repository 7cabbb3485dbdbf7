package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

var (
	bucketRecords = []byte("records") // by id
	bucketChunks  = []byte("chunks")  // by id
	bucketPurges  = []byte("purges")  // by generation, while not all is removed
)

// volume is one file and the index of it. When the file is found corrupt, a
// new volume takes its place; who still reads from the old one gets an error.
type volume struct {
	db    *bbolt.DB
	info  os.FileInfo
	index *index

	nextID    uint64       // guarded by index.mu
	nextChunk uint64       // guarded by index.mu
	used      atomic.Int64 // bytes of the file in use after the last write
	gen       Generation   // the greatest that was in the file
	fullSince time.Time    // no removal has found room since; the writer's

	beginMu sync.Mutex
	broken  atomic.Bool
	stuck   atomic.Bool // the library holds locks that are never given back
	breaks  func()      // told once when broken
}

// limits of the file's size. The library refuses to grow beyond its MaxSize;
// removals may go a little further than writes, so that there is a way out.
func softLimit(maxBytes int64) int { return int(maxBytes + maxBytes*2/5) }
func hardLimit(maxBytes int64) int { return int(maxBytes + maxBytes/2) }

// openDB opens the file at path or makes one.
func openDB(path string, maxBytes int64) (*bbolt.DB, error) {
	settings := &bbolt.Options{
		Timeout: time.Nanosecond, FreelistType: bbolt.FreelistMapType, PageSize: filePage,
		// The content can be fetched again, and state says when it is not to be
		// trusted: so nothing is synced but at the end.
		NoSync: true, NoGrowSync: true, NoFreelistSync: true,
		MaxSize: softLimit(maxBytes),
	}
	if runtime.GOOS != "windows" { // where the file would get this size
		settings.InitialMmapSize = hardLimit(maxBytes)
	}
	var db *bbolt.DB
	err := guard(func() (err error) {
		db, err = bbolt.Open(path, 0o600, settings)
		return err
	})
	if errors.Is(err, berrors.ErrTimeout) {
		return nil, fmt.Errorf("%s: %w", path, errLocked)
	}
	if err != nil {
		return nil, classify(err)
	}
	db.AllocSize = filePage
	return db, nil
}

// openVolume opens the file at path and reads its index. New ids are greater
// than last.
func openVolume(path string, maxBytes, maxItem int64, last uint64, breaks func()) (*volume, error) {
	db, err := openDB(path, maxBytes)
	if err != nil {
		return nil, err
	}
	v := &volume{db: db, index: newIndex(), breaks: breaks}
	err = v.update(func(tx *bbolt.Tx) error {
		for _, name := range [][]byte{bucketRecords, bucketChunks, bucketPurges} {
			if _, err := tx.CreateBucketIfNotExists(name); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		err = classify(v.view(func(tx *bbolt.Tx) error { return v.load(tx, maxItem) }))
	}
	if err == nil {
		v.info, err = os.Stat(path)
	}
	if err == nil {
		err = v.measure()
	}
	if err != nil {
		v.abandon(path)
		return nil, err
	}
	v.nextID, v.nextChunk = max(v.nextID, last)+1, v.nextChunk+1
	return v, nil
}

// load reads the index, and checks that it fits together. Purges that were not
// done when the file was left are.
func (v *volume) load(tx *bbolt.Tx, maxItem int64) error {
	purges, err := loadPurges(tx)
	if err != nil {
		return err
	}
	for _, p := range purges {
		v.gen = max(v.gen, p.gen)
	}
	var chunks []uint64
	if err := walk(tx, bucketChunks, func(id uint64, _ []byte) error {
		chunks = append(chunks, id)
		return nil
	}); err != nil {
		return err
	}
	referred := make([]bool, len(chunks))
	v.index.mu.Lock()
	defer v.index.mu.Unlock()
	err = walk(tx, bucketRecords, func(id uint64, value []byte) error {
		r, rest, err := decodeFront(id, value)
		if err != nil {
			return fmt.Errorf("%w: record %d: %w", errBroken, id, err)
		}
		n, at := 0, 0
		if r.base != 0 {
			var found bool
			n = chunksOf(int64(r.size))
			at, found = slices.BinarySearch(chunks, r.base)
			if !found || at+n > len(chunks) || chunks[at+n-1] != r.base+uint64(n)-1 {
				return fmt.Errorf("%w: record %d lacks chunks", errBroken, id)
			}
		}
		v.nextID = id
		v.gen = max(v.gen, Generation(r.gen))
		name := string(r.name)
		if int64(r.size) > maxItem || slices.ContainsFunc(purges, func(p storedPurge) bool {
			return Generation(r.gen) < p.gen && p.matches(name)
		}) {
			v.index.bury(remove{id: id}) // its chunks are nobody's
			return nil
		}
		for i := at; i < at+n; i++ {
			if referred[i] {
				return fmt.Errorf("%w: record %d has the chunks of another", errBroken, id)
			}
			referred[i] = true
		}
		front := int64(fixedBytes+len(r.name)+len(rest)-len(r.body)) + crcBytes
		nameHash, hostHash := hashName(name)
		v.index.put(&slot{
			key: r.key, id: id, base: r.base, name: nameHash, host: hostHash, size: r.size,
			disk: diskBytes(front, int64(r.size), r.base != 0), until: r.until, gen: r.gen,
		})
		return nil
	})
	if err != nil {
		return err
	}
	for i, id := range chunks {
		if !referred[i] {
			v.index.bury(remove{base: id, chunks: 1, disk: 8 * filePage})
		}
		v.nextChunk = id
	}
	return nil
}

// walk calls f for all of a bucket, whose keys are ascending ids.
func walk(tx *bbolt.Tx, bucket []byte, f func(id uint64, value []byte) error) error {
	b := tx.Bucket(bucket)
	if b == nil {
		return fmt.Errorf("%w: a bucket is missing", errBroken)
	}
	last := uint64(0)
	cursor := b.Cursor()
	for k, value := cursor.First(); k != nil; k, value = cursor.Next() {
		if len(k) != 8 || binary.BigEndian.Uint64(k) <= last {
			return fmt.Errorf("%w: %x follows %d", errBroken, k, last)
		}
		last = binary.BigEndian.Uint64(k)
		if err := f(last, value); err != nil {
			return err
		}
	}
	return nil
}

// measure finds out how much of the file is in use.
func (v *volume) measure() error {
	return v.view(func(tx *bbolt.Tx) error {
		stats := v.db.Stats()
		v.used.Store(tx.Size() - int64(stats.FreePageN+stats.PendingPageN)*filePage)
		return nil
	})
}

// view runs f in a read transaction, which ought to be short. Nothing of it may
// be kept.
func (v *volume) view(f func(*bbolt.Tx) error) error {
	tx, err := v.begin()
	if err == nil {
		err = guard(func() error { return f(tx) })
		if end := v.lasting(tx.Rollback); err == nil {
			err = end
		}
	}
	if errors.Is(err, errBroken) {
		v.breakOff()
	}
	return err
}

// begin begins a read transaction. When that panics nobody else may try: he
// would wait for ever.
func (v *volume) begin() (tx *bbolt.Tx, err error) {
	v.beginMu.Lock()
	defer v.beginMu.Unlock()
	if v.broken.Load() {
		return nil, errGone
	}
	err = v.lasting(func() (err error) {
		tx, err = v.db.Begin(false)
		return err
	})
	switch {
	case errors.Is(err, berrors.ErrDatabaseNotOpen):
		return nil, errGone
	case err != nil:
		v.breakOff()
		return nil, fmt.Errorf("%w: %w", errBroken, err)
	}
	return tx, nil
}

// breakOff marks the volume as not to be used any more.
func (v *volume) breakOff() {
	if !v.broken.Swap(true) {
		v.breaks()
	}
}

// readRecord copies the record id, and its body if that is in chunks and size
// bytes long; with size 0 the record alone.
func (v *volume) readRecord(id, base uint64, size int64) (value, body []byte, err error) {
	err = v.view(func(tx *bbolt.Tx) error {
		stored := get(tx, bucketRecords, id)
		if stored == nil {
			return errGone
		}
		value = append([]byte(nil), stored...)
		if size == 0 {
			return nil
		}
		body, err = appendChunks(tx, make([]byte, 0, size), base, size, 0, chunksOf(size))
		return err
	})
	return value, body, err
}

// readChunks appends the chunks first to end of a body to b.
func (v *volume) readChunks(b []byte, base uint64, size int64, first, end int) ([]byte, error) {
	err := v.view(func(tx *bbolt.Tx) (err error) {
		b, err = appendChunks(tx, b, base, size, first, end)
		return err
	})
	return b, err
}

func appendChunks(tx *bbolt.Tx, b []byte, base uint64, size int64, first, end int) ([]byte, error) {
	for i := first; i < end; i++ {
		id := base + uint64(i)
		stored := get(tx, bucketChunks, id)
		if stored == nil {
			return b, errGone
		}
		part, err := decodeChunk(id, stored, int(min(chunkBytes, size-int64(i)*chunkBytes)))
		if err != nil {
			return b, err
		}
		b = append(b, part...)
	}
	return b, nil
}

func get(tx *bbolt.Tx, bucket []byte, id uint64) []byte {
	var key [8]byte
	binary.BigEndian.PutUint64(key[:], id)
	return tx.Bucket(bucket).Get(key[:])
}

// replaced says whether somebody has removed the file, or put another in its
// place, while it is open.
func (v *volume) replaced(path string) bool {
	info, err := os.Stat(path)
	return err != nil || !os.SameFile(info, v.info)
}

// abandon closes a file whose content does not matter any more, or frees its
// space if the library cannot close it.
func (v *volume) abandon(path string) {
	v.broken.Store(true)
	if v.stuck.Load() {
		_ = os.Truncate(path, 0) // who reads it yet gets an error from guard
		return
	}
	_ = guard(v.db.Close)
}
