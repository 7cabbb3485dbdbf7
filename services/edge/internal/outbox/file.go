package outbox

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
)

const (
	// growBytes is by how much a file grows at once.
	growBytes = 1 << 20
	// shrinkBytes is the size above which an empty file is made anew.
	shrinkBytes = 4 << 20
	// headerBytes precede the event in a value: kind, requests and a checksum of
	// both and the event.
	headerBytes = 1 + 4 + 4
)

var (
	bucketMeta    = []byte("meta")
	bucketRecords = []byte("records")
	keyID         = []byte("id")
)

// errCorrupt means that a file is no outbox, or no more.
var errCorrupt = errors.New("the outbox's file is corrupt")

// fileQueue is an outbox in a bbolt file. The caller holds its slot.
type fileQueue struct {
	path     string
	source   string
	maxBytes int64
	bell     ringer
	onDrop   func(record)

	mu      sync.Mutex
	db      *bbolt.DB // nil after it could not be opened again
	id      string
	acked   uint64 // the greatest number that is acknowledged
	removed uint64 // the greatest number that was taken out of the file
	records int    // in the file
	bytes   int64  // of the records in the file
	broken  error  // why the file must not be used any more
}

// openFile opens the outbox at path, or makes one. The error wraps
// [errCorrupt], or says why the disk does not serve.
func openFile(path, source string, maxBytes int64, onDrop func(record)) (*fileQueue, error) {
	q := &fileQueue{path: path, source: source, maxBytes: maxBytes, bell: newRinger(), onDrop: onDrop}
	if err := q.load(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if q.records > 0 {
		q.bell.ring()
	}
	return q, nil
}

// load opens the file, reads all records, and counts them.
func (q *fileQueue) load() error {
	db, err := openDB(q.path)
	if err != nil {
		return err
	}
	id := ""
	records, size, first := 0, int64(0), uint64(0)
	err = guard(func() error {
		if err := db.Update(prepare); err != nil {
			return err
		}
		return db.View(func(tx *bbolt.Tx) error {
			if id = string(tx.Bucket(bucketMeta).Get(keyID)); id == "" {
				return fmt.Errorf("%w: it has no id", errCorrupt)
			}
			return tx.Bucket(bucketRecords).ForEach(func(k, v []byte) error {
				r, err := decodeRecord(k, v)
				if records == 0 {
					first = r.seq
				}
				records++
				size += int64(len(v))
				return err
			})
		})
	})
	if err != nil {
		closeDB(db, err)
		return err
	}
	q.db, q.id, q.records, q.bytes = db, id, records, size
	if first > 0 {
		q.removed = first - 1
	}
	q.acked = max(q.acked, q.removed)
	return nil
}

// openDB never waits: the slot's lock is the one that counts.
func openDB(path string) (*bbolt.DB, error) {
	var db *bbolt.DB
	err := guard(func() (err error) {
		db, err = bbolt.Open(path, 0o600, &bbolt.Options{
			Timeout: time.Nanosecond, FreelistType: bbolt.FreelistMapType,
			// Otherwise the library walks all pages in a goroutine of its own,
			// where a panic over a corrupt one cannot be caught.
			NoFreelistSync: false,
		})
		return err
	})
	if err != nil {
		if _, disk := errors.AsType[*fs.PathError](err); disk {
			return nil, err
		}
		if _, disk := errors.AsType[syscall.Errno](err); disk {
			return nil, err
		}
		return nil, fmt.Errorf("%w: %w", errCorrupt, err)
	}
	db.AllocSize = growBytes
	return db, nil
}

// closeDB closes the file, unless a panic has left the library's locks as they
// were: then waiting for them would never end.
func closeDB(db *bbolt.DB, err error) {
	if !errors.Is(err, errPanic) {
		_ = db.Close()
	}
}

// prepare makes the buckets of a new file.
func prepare(tx *bbolt.Tx) error {
	if tx.Bucket(bucketMeta) != nil && tx.Bucket(bucketRecords) != nil {
		return nil
	}
	if tx.Bucket(bucketMeta) != nil || tx.Bucket(bucketRecords) != nil {
		return fmt.Errorf("%w: it lacks a bucket", errCorrupt)
	}
	meta, err := tx.CreateBucket(bucketMeta)
	if err != nil {
		return err
	}
	if _, err := tx.CreateBucket(bucketRecords); err != nil {
		return err
	}
	return meta.Put(keyID, []byte(newID()))
}

// errPanic marks what was a panic: bbolt panics on pages that make no sense.
var errPanic = errors.New("panic")

// guard turns a panic of the library, and a read beyond the end of a file that
// somebody has cut, into an error.
func guard(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %w: %v", errCorrupt, errPanic, r)
		}
	}()
	return f()
}

func (q *fileQueue) name() string { return q.id }

func (q *fileQueue) wake() <-chan struct{} { return q.bell }

// write stores the drafts and removes what is acknowledged, in one transaction.
// When there is no room, the oldest records go. After an error nothing has
// changed.
func (q *fileQueue) write(all []draft) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.usable(); err != nil {
		return err
	}
	if len(all) == 0 && q.acked <= q.removed {
		return nil
	}
	records, size, removed := q.records, q.bytes, q.removed
	var dropped []record
	err := q.guard(func() error {
		return q.db.Update(func(tx *bbolt.Tx) error {
			b := tx.Bucket(bucketRecords)
			b.FillPercent = 0.9 // it is only ever written at its end
			remove := func(k, v []byte) error {
				records, size, removed = records-1, size-int64(len(v)), binary.BigEndian.Uint64(k)
				return b.Delete(k)
			}
			for k, v := b.Cursor().First(); k != nil && binary.BigEndian.Uint64(k) <= q.acked; k, v = b.Cursor().First() {
				if err := remove(k, v); err != nil {
					return err
				}
			}
			for i := range all {
				k, v, err := q.place(b, &all[i])
				if err != nil {
					return err
				}
				for old, was := b.Cursor().First(); old != nil && size+int64(len(v)) > q.maxBytes; old, was = b.Cursor().First() {
					r, err := decodeRecord(old, was)
					if err != nil {
						return err
					}
					r.payload = nil // the page may be used again
					dropped = append(dropped, r)
					if err := remove(old, was); err != nil {
						return err
					}
				}
				if err := b.Put(k, v); err != nil {
					return err
				}
				records, size = records+1, size+int64(len(v))
			}
			return nil
		})
	})
	if err != nil {
		return err
	}
	q.records, q.bytes, q.removed = records, size, removed
	q.acked = max(q.acked, removed)
	for _, r := range dropped {
		q.onDrop(r)
	}
	if len(all) > 0 {
		q.bell.ring()
	}
	if q.records == 0 && q.fileBytes() > shrinkBytes {
		// What goes wrong here loses nothing, and the next write meets it again.
		_ = q.shrink()
	}
	return nil
}

// place gives a draft its number.
func (q *fileQueue) place(b *bbolt.Bucket, d *draft) (k, v []byte, err error) {
	seq, err := b.NextSequence()
	if err != nil {
		return nil, nil, err
	}
	payload, err := d.encode(q.source, q.id, seq)
	if err != nil {
		return nil, nil, err
	}
	return binary.BigEndian.AppendUint64(nil, seq), encodeRecord(record{seq, d.kind, d.requests, payload}), nil
}

func (q *fileQueue) head() (record, bool, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.broken != nil {
		return record{}, false, q.broken
	}
	if q.db == nil || q.records == 0 {
		return record{}, false, nil
	}
	var r record
	found := false
	err := q.guard(func() error {
		return q.db.View(func(tx *bbolt.Tx) error {
			k, v := tx.Bucket(bucketRecords).Cursor().Seek(binary.BigEndian.AppendUint64(nil, q.acked+1))
			if k == nil {
				return nil
			}
			var err error
			r, err = decodeRecord(k, v)
			r.payload = append([]byte(nil), r.payload...)
			found = err == nil
			return err
		})
	})
	return r, found, err
}

func (q *fileQueue) ack(seq uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.acked = max(q.acked, seq)
}

// guard is [guard], and remembers that the file is corrupt.
func (q *fileQueue) guard(f func() error) error {
	err := guard(f)
	if errors.Is(err, errCorrupt) {
		q.broken = err
	}
	return err
}

// usable opens the file again if that has failed before.
func (q *fileQueue) usable() error {
	if q.broken != nil {
		return q.broken
	}
	if q.db != nil {
		return nil
	}
	err := q.load()
	if errors.Is(err, errCorrupt) {
		q.broken = err
	}
	return err
}

// shrink replaces a large file that holds nothing by a small one with the same
// id, which goes on with the same numbers.
func (q *fileQueue) shrink() error {
	var last uint64
	if err := q.guard(func() error {
		return q.db.View(func(tx *bbolt.Tx) error {
			last = tx.Bucket(bucketRecords).Sequence()
			return nil
		})
	}); err != nil {
		return err
	}
	fresh := q.path + ".new"
	if err := os.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := makeFile(fresh, q.id, last); err != nil {
		return err
	}
	_ = q.db.Close()
	q.db = nil
	return errors.Join(os.Rename(fresh, q.path), q.load())
}

// makeFile makes an empty outbox with an id and a last number.
func makeFile(path, id string, last uint64) error {
	db, err := openDB(path)
	if err != nil {
		return err
	}
	err = guard(func() error {
		return db.Update(func(tx *bbolt.Tx) error {
			if err := prepare(tx); err != nil {
				return err
			}
			if err := tx.Bucket(bucketMeta).Put(keyID, []byte(id)); err != nil {
				return err
			}
			return tx.Bucket(bucketRecords).SetSequence(last)
		})
	})
	closeDB(db, err)
	return err
}

// size returns what the file holds that is not acknowledged or not yet removed,
// and the size of the file.
func (q *fileQueue) size() (records int, bytes, file int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.records, q.bytes, q.fileBytes()
}

func (q *fileQueue) fileBytes() int64 {
	info, err := os.Stat(q.path)
	if err != nil {
		return 0
	}
	return info.Size()
}

// close removes what is acknowledged and closes the file.
func (q *fileQueue) close() error {
	err := q.write(nil)
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.db != nil {
		closeDB(q.db, q.broken)
		q.db = nil
	}
	if q.broken == nil {
		q.broken = errClosed
	}
	return err
}

var errClosed = errors.New("the outbox is closed")

func encodeRecord(r record) []byte {
	v := make([]byte, headerBytes, headerBytes+len(r.payload))
	v[0] = byte(r.kind)
	binary.BigEndian.PutUint32(v[1:], uint32(min(r.requests, 1<<31))) // bounded
	v = append(v, r.payload...)
	binary.BigEndian.PutUint32(v[5:], checksum(v))
	return v
}

// decodeRecord reads a value of the file, whose payload it does not copy.
func decodeRecord(k, v []byte) (record, error) {
	if len(k) != 8 || len(v) < headerBytes || !Kind(v[0]).durable() || binary.BigEndian.Uint32(v[5:]) != checksum(v) {
		return record{}, fmt.Errorf("%w: record %x does not read", errCorrupt, k)
	}
	return record{
		seq: binary.BigEndian.Uint64(k), kind: Kind(v[0]),
		requests: int(binary.BigEndian.Uint32(v[1:])), payload: v[headerBytes:],
	}, nil
}

// checksum covers all of a value but the checksum itself.
func checksum(v []byte) uint32 {
	table := crc32.MakeTable(crc32.Castagnoli)
	return crc32.Update(crc32.Checksum(v[:5], table), table, v[headerBytes:])
}
