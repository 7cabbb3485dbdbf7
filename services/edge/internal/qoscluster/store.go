package qoscluster

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/ccnq/ccnq/pkg/bus"
	"github.com/ccnq/ccnq/pkg/qos"
	"github.com/ccnq/ccnq/pkg/wire"
)

// ackTimeout bounds the wait for one acknowledgement.
const ackTimeout = 2 * time.Second

// Options say how a store works.
type Options struct {
	// EdgeID is in the subjects.
	EdgeID string
	// Conn is the connection to NATS. It may be down.
	Conn *bus.Conn
	// Logger is required.
	Logger *slog.Logger
}

// Store is a [qos.ClusterStore] on NATS.
type Store struct {
	opts    Options
	subject string
	source  string

	// Of Publish, which one goroutine calls at a time.
	seq     uint64
	batch   string   // id of the batch that messages are of
	waiting [][]byte // of which these are not acknowledged, the first of them seq+1

	lists lists
	stop  context.CancelFunc
	done  sync.WaitGroup
}

// New makes a store that hears of no lists yet. Call Start, and Stop at the end.
func New(opts Options) *Store {
	return &Store{
		opts: opts, subject: wire.EdgeSubject(wire.SubjectQoSHits, opts.EdgeID), source: rand.Text(), stop: func() {},
		lists: lists{again: make(chan struct{}, 1), firstPause: firstPause, longestPause: longestPause},
	}
}

// Publish implements [qos.ClusterStore].
func (s *Store) Publish(ctx context.Context, _ *qos.ClusterLimits, batch *qos.Batch) error {
	if s.batch != batch.ID {
		// Package qos goes on to the next batch when all of this one is there. With
		// qos.Options.Compat it also does when this one has failed, and counts its hits
		// again with the next: what waits is given up, but it may have arrived, so its
		// numbers are not used for anything else.
		s.seq += uint64(len(s.waiting))
		s.waiting = nil
		waiting, err := s.encode(batch)
		if err != nil {
			return err
		}
		s.batch, s.waiting = batch.ID, waiting
	}
	for len(s.waiting) > 0 {
		if err := s.send(ctx, s.waiting[0]); err != nil {
			return err
		}
		s.seq++
		s.waiting = s.waiting[1:]
	}
	return nil
}

func (s *Store) send(ctx context.Context, message []byte) error {
	ctx, cancel := context.WithTimeout(ctx, ackTimeout)
	defer cancel()
	return bus.PublishAcked(ctx, s.opts.Conn, s.subject, message, fmt.Sprintf("%s-%d", s.source, s.seq+1))
}

// Blocklists implements [qos.ClusterStore]. Lists come by another way, so there are
// none here, only word whether any do come.
func (s *Store) Blocklists(context.Context, *qos.ClusterLimits, time.Time) (*qos.Blocklists, error) {
	return nil, s.Err()
}

// encode makes messages of a batch.
func (s *Store) encode(batch *qos.Batch) ([][]byte, error) {
	// Which window it is by this edge's clock does not matter, only how many ago.
	p := packer{windowsAgo: max(batch.Window-batch.UniqueWindow, 0)}
	p.next = wire.QoSHits{Total: batch.Total, UniqueWindowsAgo: p.windowsAgo}
	p.add(batch.IPs, func(h *wire.QoSHits) *wire.QoSCounts { return &h.IPs })
	p.add(batch.Subnets, func(h *wire.QoSHits) *wire.QoSCounts { return &h.Subnets })
	for _, seen := range batch.UniqueIPs {
		if seen.N > 0 { // else it says nothing, and no server accepts it
			p.put(seen, func(h *wire.QoSHits) *wire.QoSCounts { return &h.UniqueIPs })
		}
	}
	for _, hit := range batch.Hosts {
		if wire.CheckQoSHost(hit.Key) == nil { // else only its hits count, in the total
			p.put(hit, func(h *wire.QoSHits) *wire.QoSCounts { return &h.Hosts })
		}
	}
	p.messages = append(p.messages, p.next)
	out := make([][]byte, len(p.messages))
	for i, m := range p.messages {
		m.Source, m.Seq = s.source, s.seq+uint64(i)+1
		if err := m.Validate(); err != nil {
			return nil, fmt.Errorf("a batch cannot be sent: %w", err) // never happens: package qos keeps to the form
		}
		data, err := json.Marshal(m)
		if err != nil {
			return nil, err
		}
		out[i] = data
	}
	return out, nil
}

// packer fills messages up to the bounds of package wire.
type packer struct {
	messages   []wire.QoSHits // that are full
	next       wire.QoSHits
	bytes      int
	keys       int
	windowsAgo int64
}

// countBytes is the most that a count takes in a message beside its key.
const countBytes = 20

func (p *packer) add(hits []qos.Hits, list func(*wire.QoSHits) *wire.QoSCounts) {
	for _, hit := range hits {
		p.put(hit, list)
	}
}

func (p *packer) put(hit qos.Hits, list func(*wire.QoSHits) *wire.QoSCounts) {
	size := len(hit.Key) + countBytes
	if p.bytes+size > wire.MaxQoSBytes || p.keys == wire.MaxQoSKeys {
		p.messages = append(p.messages, p.next)
		p.next, p.bytes, p.keys = wire.QoSHits{UniqueWindowsAgo: p.windowsAgo}, 0, 0
	}
	of := list(&p.next)
	*of = append(*of, wire.QoSCount{Key: hit.Key, N: hit.N})
	p.bytes, p.keys = p.bytes+size, p.keys+1
}

// ErrNoLists means that nobody has published lists for a while.
var ErrNoLists = errors.New("the denylist service publishes no lists")
