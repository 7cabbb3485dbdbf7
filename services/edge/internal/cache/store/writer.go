package store

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

const (
	// linger is how long a write waits for others.
	linger = 100 * time.Millisecond
	// maxRemovals in one transaction.
	maxRemovals = 10_000
	// evictStep is how many entries are evicted before others get the lock.
	evictStep = 256
	// maxRetries of a transaction for which the file has no room; the pause before
	// each is longer by retryPause than the last.
	maxRetries = 12
	retryPause = 10 * time.Millisecond
	// firstPause follows a fault of the disk; the pauses double up to lastPause.
	firstPause = time.Second
	lastPause  = 30 * time.Second
	// fullFor is how long a file may have no room even for removals before it is
	// taken for corrupt.
	fullFor = time.Minute
)

// write is the one goroutine that changes the file.
func (s *Store[H]) write() {
	tick := time.NewTicker(s.opts.SweepInterval)
	defer tick.Stop()
	for {
		select {
		case <-s.ring:
			s.gather()
			s.drain(context.Background())
		case <-s.disk.retry():
			s.recover()
		case <-tick.C:
			s.inspect()
		case <-s.ending:
			s.queue.close()
			s.drain(s.finish)
			s.closeDisk()
			return
		}
	}
}

// gather waits for a whole batch, or for linger.
func (s *Store[H]) gather() {
	if s.queue.long() {
		return
	}
	timer := time.NewTimer(linger)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.hurry:
	case <-s.ending:
	}
}

// drain writes all that waits, until ctx ends.
func (s *Store[H]) drain(ctx context.Context) {
	for ctx.Err() == nil {
		ops := s.queue.take()
		v := s.volume.Load()
		switch {
		case v == nil:
			s.settle(ops, errNotKept)
		case v.broken.Load():
			s.settle(ops, errNotKept)
			s.discard(v, errBroken)
		case s.disk.pausing():
			s.settle(ops, errNotKept)
		default:
			s.writeBatch(v, ops)
		}
		if len(ops) == 0 && (v == nil || s.disk.pausing() || !v.index.hasDead()) {
			return
		}
	}
}

// batch is one transaction.
type batch[H any] struct {
	done    Generation // purges that are swept
	dead    []remove
	puts    []op[H]
	purges  []storedPurge
	written int64
}

// writeBatch writes ops, and removes what is to be removed.
func (s *Store[H]) writeBatch(v *volume, ops []op[H]) {
	var incoming int64
	var b batch[H]
	for _, o := range ops {
		b.purges = append(b.purges, o.purges...)
		if o.overrun {
			s.metrics.evicted(evictedPurged, v.index.scan(func(*slot) bool { return true }))
		}
		if o.item != nil {
			incoming += o.charge
		}
	}
	s.makeRoom(v, incoming)
	b.done = s.purges.swept()
	x := v.index
	x.mu.Lock()
	b.dead = x.takeDead(maxRemovals)
	if len(x.dead) > 0 {
		b.done = 0 // some of what it removes may be left
	}
	var late []op[H]
	for _, o := range ops {
		if o.item == nil {
			continue
		}
		if _, ok := x.holds(o.item.key, o.item.id); ok && o.volume == v {
			b.puts = append(b.puts, o)
		} else {
			late = append(late, o)
		}
	}
	x.mu.Unlock()
	s.settle(late, nil)

	err := s.commit(v, &b)
	if err != nil {
		x.mu.Lock()
		x.bury(b.dead...)
		x.mu.Unlock()
	}
	switch {
	case errors.Is(err, errNoRoom): // counted with what is dropped
	case err != nil:
		s.failed(v, err)
	default:
		s.metrics.written.Add(float64(b.written))
		if b.written > 0 { // less shows nothing
			s.disk.wrote()
			s.trouble.over(s.opts.Logger)
		}
	}
	s.settleBatch(v, ops, &b, err)
}

// settleBatch tells of the end of a batch.
func (s *Store[H]) settleBatch(v *volume, ops []op[H], b *batch[H], err error) {
	for _, o := range b.puts {
		if err != nil {
			v.index.dropVersion(o.item.key, o.item.id)
			if errors.Is(err, errNoRoom) {
				s.metrics.dropped(droppedBusy)
			} else {
				s.metrics.dropped(droppedFault)
			}
		}
	}
	s.settle(b.puts, nil)
	for _, o := range ops {
		if o.done == nil {
			continue
		}
		if err != nil {
			o.done <- errors.Join(errNotKept, err)
		} else {
			o.done <- nil
		}
		s.wake(s.sweep)
	}
}

// settle forgets ops that are written, or will not be.
func (s *Store[H]) settle(ops []op[H], purges error) {
	for _, o := range ops {
		if o.item != nil {
			if purges != nil { // there is no file for it
				o.volume.index.dropVersion(o.item.key, o.item.id)
				s.metrics.dropped(droppedFault)
			}
			s.pending.remove(o.item.id)
			s.queue.release(o.charge)
		}
		if o.done != nil {
			o.done <- purges
			s.wake(s.sweep)
		}
	}
}

// commit writes a batch. When the file has no room for it, that is mostly
// because a reader keeps the pages that were freed meanwhile: it is tried again
// soon. If that does not help, entries are evicted.
func (s *Store[H]) commit(v *volume, b *batch[H]) error {
	for i := range maxRetries {
		err := s.commitOnce(v, b)
		if !errors.Is(err, berrors.ErrMaxSizeReached) {
			return err
		}
		<-time.After(retryPause * time.Duration(i))
		if i == 0 {
			continue
		}
		s.metrics.evicted(evictedSize, v.index.evictBytes(s.opts.MaxBytes/16))
		if err := s.freePages(v, b); err != nil {
			return err
		}
	}
	return errNoRoom
}

// freePages does removals in transactions of their own, so small that they find
// room: only what one frees can be used by the next.
func (s *Store[H]) freePages(v *volume, b *batch[H]) error {
	v.db.MaxSize = hardLimit(s.opts.MaxBytes)
	defer func() { v.db.MaxSize = softLimit(s.opts.MaxBytes) }()
	x := v.index
	x.mu.Lock()
	b.dead = append(b.dead, x.takeDead(len(x.dead))...)
	x.mu.Unlock()
	for i := 1; len(b.dead) > 0; {
		n := min(len(b.dead), evictStep)
		err := s.commitOnce(v, &batch[H]{dead: b.dead[:n]})
		switch {
		case err == nil:
			b.dead, i = b.dead[n:], 1
		case !errors.Is(err, berrors.ErrMaxSizeReached):
			return err
		case i > maxRetries:
			return s.full(v)
		default:
			<-time.After(retryPause * time.Duration(i))
			i++
		}
	}
	return nil
}

// full is the error when even removals find no room. A reader that stands still
// keeps all pages that are freed meanwhile, but not for long: the machine may be
// overloaded, or have been stopped.
func (s *Store[H]) full(v *volume) error {
	if v.fullSince.IsZero() {
		v.fullSince = time.Now()
	}
	if time.Since(v.fullSince) >= fullFor {
		return fmt.Errorf("%w: it has no room even for removals", errBroken)
	}
	s.trouble.begin(s.opts.Logger, "the cache's file has no room just now: nothing new is stored", errNoRoom)
	return errNoRoom
}

func (s *Store[H]) commitOnce(v *volume, b *batch[H]) error {
	b.written = 0
	err := v.update(func(tx *bbolt.Tx) error {
		records, chunks := tx.Bucket(bucketRecords), tx.Bucket(bucketChunks)
		records.FillPercent, chunks.FillPercent = 1, 1 // both are only written at their ends
		if err := removeDead(records, chunks, b.dead); err != nil {
			return err
		}
		if err := writePurges(tx, b.purges, b.done); err != nil {
			return err
		}
		for i := range b.puts {
			n, err := s.writeItem(records, chunks, &b.puts[i])
			if err != nil {
				return err
			}
			b.written += n
		}
		return nil
	})
	if err != nil {
		return err
	}
	v.fullSince = time.Time{}
	return v.measure()
}

func removeDead(records, chunks *bbolt.Bucket, dead []remove) error {
	var key [8]byte
	for _, r := range dead {
		if r.id != 0 {
			binary.BigEndian.PutUint64(key[:], r.id)
			if err := records.Delete(key[:]); err != nil {
				return err
			}
		}
		for i := range uint64(r.chunks) {
			binary.BigEndian.PutUint64(key[:], r.base+i)
			if err := chunks.Delete(key[:]); err != nil {
				return err
			}
		}
	}
	return nil
}

// writeItem writes a record, and the body if it is not there yet. The library
// keeps the values until the transaction ends.
func (s *Store[H]) writeItem(records, chunks *bbolt.Bucket, o *op[H]) (written int64, err error) {
	it := o.item
	body := it.pieces
	if it.whole != nil {
		body = [][]byte{it.whole}
	}
	r := record{key: it.key, base: it.base, size: uint32(it.size), until: o.until, gen: uint32(it.gen), name: []byte(it.name)}
	inRecord := body
	if it.base != 0 {
		inRecord = nil
	}
	size := fixedBytes + len(it.name) + s.opts.Codec.Size(it.head) + crcBytes
	if it.base == 0 {
		size += int(it.size)
	}
	value, err := appendRecord(make([]byte, 0, size), it.id, &r, func(b []byte) []byte { return s.opts.Codec.Append(b, it.head) }, inRecord)
	if errors.Is(err, errTooLarge) { // the codec's Size was wrong
		o.volume.index.dropVersion(it.key, it.id)
		s.metrics.dropped(droppedTooLarge)
		return 0, nil
	}
	written = int64(len(value))
	if err := records.Put(binary.BigEndian.AppendUint64(nil, it.id), value); err != nil {
		return 0, err
	}
	if it.base == 0 || !it.inMemory {
		return written, nil
	}
	pieces := pieceReader{pieces: body}
	for i := range uint64(chunksOf(it.size)) {
		id := it.base + i
		n := min(chunkBytes, it.size-int64(i)*chunkBytes)
		value := appendChunk(make([]byte, 0, n+crcBytes), id, pieces.next(int(n))...)
		written += int64(len(value))
		if err := chunks.Put(binary.BigEndian.AppendUint64(nil, id), value); err != nil {
			return 0, err
		}
	}
	return written, nil
}

// pieceReader cuts pieces anew.
type pieceReader struct {
	pieces [][]byte
	offset int
}

// next returns the next n bytes, which there must be.
func (r *pieceReader) next(n int) (parts [][]byte) {
	for n > 0 {
		part := r.pieces[0][r.offset:]
		if len(part) > n {
			r.offset += n
			return append(parts, part[:n])
		}
		parts = append(parts, part)
		n -= len(part)
		r.pieces, r.offset = r.pieces[1:], 0
	}
	return parts
}

// makeRoom evicts entries until incoming bytes fit into the budget. What the
// file really uses decides, so pages that are not full count, and bodies that
// are gone from the index and still read.
func (s *Store[H]) makeRoom(v *volume, incoming int64) {
	x := v.index
	for over := true; over; {
		n := 0
		x.mu.Lock()
		for over = v.used.Load()+incoming-x.deadSum > s.opts.MaxBytes; over && n < evictStep; n++ {
			if !x.evict() {
				over = false
				break
			}
			over = v.used.Load()+incoming-x.deadSum > s.opts.MaxBytes
		}
		x.mu.Unlock()
		s.metrics.evicted(evictedSize, n)
	}
}

// evictBytes evicts entries of about n bytes.
func (x *index) evictBytes(n int64) (evicted int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for target := x.deadSum + n; x.deadSum < target && x.evict(); {
		evicted++
	}
	return evicted
}

// hasDead says whether something is to be removed from the file.
func (x *index) hasDead() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.dead) > 0
}
