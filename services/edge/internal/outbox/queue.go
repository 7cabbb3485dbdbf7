package outbox

import (
	"crypto/rand"
	"encoding/hex"
	"sync"
)

// record is one message that waits for its acknowledgement.
type record struct {
	seq      uint64
	kind     Kind
	requests int // refused, that it tells of
	payload  []byte
}

// queue is one outbox: records in the order of their numbers. Its methods are
// safe for concurrent use.
type queue interface {
	// name is the id of the outbox.
	name() string
	// head returns the oldest record that is not acknowledged; false if there
	// is none.
	head() (record, bool, error)
	// ack says that everything up to seq has been stored elsewhere.
	ack(seq uint64)
	// wake receives a value after records were added.
	wake() <-chan struct{}
}

// newID returns an outbox id that no other has.
func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// ringer is a bell that can be rung without waiting.
type ringer chan struct{}

func newRinger() ringer { return make(ringer, 1) }

func (s ringer) ring() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// memoryQueue is an outbox that ends with the process.
type memoryQueue struct {
	id     string
	source string
	limit  int
	bell   ringer
	onDrop func(record)

	mu      sync.Mutex
	last    uint64
	records []record
	bytes   int
}

func newMemoryQueue(source string, limit int, onDrop func(record)) *memoryQueue {
	return &memoryQueue{id: newID(), source: source, limit: limit, bell: newRinger(), onDrop: onDrop}
}

func (q *memoryQueue) name() string { return q.id }

func (q *memoryQueue) wake() <-chan struct{} { return q.bell }

// add appends the drafts; when there is no room, the oldest records go.
func (q *memoryQueue) add(all []draft) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range all {
		payload, err := all[i].encode(q.source, q.id, q.last+1)
		if err != nil {
			return err
		}
		q.last++
		for len(q.records) > 0 && q.bytes+len(payload) > q.limit {
			q.onDrop(q.records[0])
			q.drop()
		}
		q.records = append(q.records, record{seq: q.last, kind: all[i].kind, requests: all[i].requests, payload: payload})
		q.bytes += len(payload)
	}
	if len(all) > 0 {
		q.bell.ring()
	}
	return nil
}

func (q *memoryQueue) drop() {
	q.bytes -= len(q.records[0].payload)
	q.records[0] = record{}
	q.records = q.records[1:]
}

func (q *memoryQueue) head() (record, bool, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.records) == 0 {
		return record{}, false, nil
	}
	return q.records[0], true, nil
}

func (q *memoryQueue) ack(seq uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.records) > 0 && q.records[0].seq <= seq {
		q.drop()
	}
}

// size returns what waits.
func (q *memoryQueue) size() (records, bytes int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.records), q.bytes
}
