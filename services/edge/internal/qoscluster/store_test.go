package qoscluster

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/ccnq/ccnq/pkg/bus"
	"github.com/ccnq/ccnq/pkg/bus/embed"
	"github.com/ccnq/ccnq/pkg/qos"
	"github.com/ccnq/ccnq/pkg/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	// patience bounds every wait for something that must happen.
	patience = 60 * time.Second
	look     = 10 * time.Millisecond
)

// broker is a NATS server with the two streams that a store needs.
type broker struct {
	t    *testing.T
	nats *embed.Server
	conn *bus.Conn
}

func newBroker(t *testing.T) *broker {
	t.Helper()
	nats, err := embed.Start(embed.Options{Host: "127.0.0.1", Port: -1, StoreDir: t.TempDir()})
	require.NoError(t, err)
	t.Cleanup(nats.Stop)
	b := &broker{t: t, nats: nats}
	b.conn = b.connect()
	return b
}

func (b *broker) connect() *bus.Conn {
	b.t.Helper()
	conn, err := bus.Connect(bus.Options{URL: b.nats.ClientURL(), Logger: slog.New(slog.DiscardHandler)})
	require.NoError(b.t, err)
	b.t.Cleanup(conn.Close)
	require.Eventually(b.t, conn.Connected, patience, look)
	return conn
}

func (b *broker) streams() {
	b.t.Helper()
	for _, spec := range []bus.StreamSpec{
		{Name: wire.StreamQoSHits, Subjects: []string{wire.SubjectQoSHits}, Memory: true},
		{Name: wire.StreamQoSLists, Subjects: []string{wire.SubjectQoSLists}, Memory: true, MaxPerSubject: 1, Direct: true},
	} {
		_, err := bus.EnsureStream(b.t.Context(), b.conn, spec)
		require.NoError(b.t, err)
	}
}

// stored returns what the stream of hits has.
func (b *broker) stored() (all []wire.QoSHits) {
	b.t.Helper()
	reader, err := bus.OpenReader(b.t.Context(), b.conn, wire.StreamQoSHits, 1)
	require.NoError(b.t, err)
	defer reader.Close(b.t.Context())
	for reader.Pending() > 0 {
		messages, err := reader.Next(b.t.Context(), time.Second)
		require.NoError(b.t, err)
		for _, m := range messages {
			require.Equal(b.t, "ccnq.v1.qos.hits.edge-1", m.Subject)
			h, err := wire.Decode[wire.QoSHits](m.Data)
			require.NoError(b.t, err)
			all = append(all, h)
		}
	}
	return all
}

func (b *broker) store() *Store {
	s := New(Options{EdgeID: "edge-1", Conn: b.conn, Logger: slog.New(slog.DiscardHandler)})
	b.t.Cleanup(s.Stop)
	return s
}

func batchOf(id string, addresses int) *qos.Batch {
	b := &qos.Batch{ID: id, Window: 7, UniqueWindow: 6, Total: int64(addresses)}
	for i := range addresses {
		b.IPs = append(b.IPs, qos.Hits{Key: fmt.Sprintf("10.%d.%d.7", i/256, i%256), N: 1})
	}
	return b
}

// TestPublishUntilAcknowledged: what is not acknowledged is sent again, unchanged,
// and nothing else before it.
func TestPublishUntilAcknowledged(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	s := b.store()
	batch := batchOf("a-1", 20_000)
	require.ErrorIs(t, s.Publish(t.Context(), nil, batch), bus.ErrNoResponders)
	b.streams()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.Error(t, s.Publish(ended, nil, batch))
	require.NoError(t, s.Publish(t.Context(), nil, batch))
	require.NoError(t, s.Publish(t.Context(), nil, batchOf("a-2", 1)))
	all := b.stored()
	require.Greater(t, len(all), 2, "in pieces")
	total, addresses := int64(0), map[string]bool{}
	for i, h := range all {
		require.EqualValues(t, i+1, h.Seq)
		require.Equal(t, all[0].Source, h.Source)
		require.EqualValues(t, 1, h.UniqueWindowsAgo)
		total += h.Total
		for _, ip := range h.IPs {
			addresses[ip.Key] = true
		}
	}
	require.EqualValues(t, 20_001, total)
	require.Len(t, addresses, 20_000)
	require.NotEqual(t, all[0].Source, b.store().source, "each life has a name of its own")
}

// TestResumesWithinABatch: an acknowledgement that is lost makes a message come
// twice, with the same number and content.
func TestResumesWithinABatch(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	b.streams()
	s := b.store()
	batch := batchOf("a-1", 20_000)
	require.NoError(t, s.Publish(t.Context(), nil, batch))
	before := b.stored()
	// As if the last answer had not come.
	s.seq--
	var err error
	s.waiting, err = s.encode(&qos.Batch{
		Window: 7, UniqueWindow: 6, IPs: batch.IPs[len(batch.IPs)-len(before[len(before)-1].IPs):],
	})
	require.NoError(t, err)
	require.NoError(t, s.Publish(t.Context(), nil, batch))
	require.Equal(t, before, b.stored(), "the stream knows it by its id")
	require.EqualValues(t, len(before), s.seq)
}

// TestNextBatchAfterALostAcknowledgement is what Compat does: the hits come again in
// another batch, whose messages are not taken for those of the first one.
func TestNextBatchAfterALostAcknowledgement(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	b.streams()
	s := b.store()
	waiting, err := s.encode(batchOf("a-1", 20_000))
	require.NoError(t, err)
	require.Greater(t, len(waiting), 1)
	s.batch, s.waiting = "a-1", waiting
	require.NoError(t, s.send(t.Context(), waiting[0])) // and as if the answer had not come
	require.NoError(t, s.Publish(t.Context(), nil, batchOf("a-2", 3)))
	require.NoError(t, s.Publish(t.Context(), nil, batchOf("a-3", 4)))
	all := b.stored()
	var addresses []int
	for _, h := range all {
		addresses = append(addresses, len(h.IPs))
	}
	require.Equal(t, []int{len(all[0].IPs), 3, 4}, addresses)
	require.Greater(t, all[1].Seq, all[0].Seq+uint64(len(waiting))-1, "what was given up may come yet")
	require.Equal(t, all[1].Seq+1, all[2].Seq)
}

func TestEncodeKeepsTheBounds(t *testing.T) {
	t.Parallel()
	s := New(Options{EdgeID: "edge-1"})
	batch := &qos.Batch{ID: "a", Window: 9, UniqueWindow: 9, Total: 5}
	for i := range 3 * wire.MaxQoSKeys {
		batch.Subnets = append(batch.Subnets, qos.Hits{Key: fmt.Sprintf("2001:db8:%x:%x::", i/1000+1, i%1000+1), N: 1 << 39})
	}
	long := strings.Repeat("x", wire.MaxQoSKey)
	batch.Hosts = []qos.Hits{{Key: long, N: 1}, {Key: "a b", N: 1}, {Key: `"`, N: 1}, {Key: long + "x", N: 1}, {Key: "a.example", N: 1}}
	batch.UniqueIPs = []qos.Hits{{Key: "203.0.113.0", N: 3}, {Key: "198.51.100.0", N: 0}}
	messages, err := s.encode(batch)
	require.NoError(t, err)
	var subnets, hosts, unique, total int
	for i, data := range messages {
		require.Less(t, len(data), wire.MaxQoSBytes+1024)
		h, err := wire.Decode[wire.QoSHits](data)
		require.NoError(t, err)
		require.EqualValues(t, i+1, h.Seq)
		subnets, hosts, total = subnets+len(h.Subnets), hosts+len(h.Hosts), total+int(h.Total)
		unique += len(h.UniqueIPs)
	}
	require.Equal(t, len(batch.Subnets), subnets)
	require.Equal(t, 2, hosts, "hosts that no server accepts are in the total alone")
	require.Equal(t, 1, unique, "no address is nothing to tell")
	require.Equal(t, 5, total)
}

// heard collects what a store hands over.
type heard struct {
	mu    sync.Mutex
	lists []*qos.Blocklists
}

func (h *heard) apply(l *qos.Blocklists) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lists = append(h.lists, l)
}

func (h *heard) last() *qos.Blocklists {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.lists) == 0 {
		return nil
	}
	return h.lists[len(h.lists)-1]
}

func (h *heard) len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.lists)
}

func (b *broker) put(subject string, m wire.Message) {
	b.t.Helper()
	require.NoError(b.t, bus.PublishAcked(b.t.Context(), b.conn, subject, encoded(b.t, m), ""))
}

func encoded(t *testing.T, m wire.Message) []byte {
	t.Helper()
	data, err := json.Marshal(m)
	require.NoError(t, err)
	return data
}

// write publishes lists of one address in each piece.
func (b *broker) write(term, version int64, ips ...string) {
	b.t.Helper()
	for i, ip := range ips {
		b.put(wire.QoSPieceSubject(i), wire.QoSLists{Term: term, Version: version, IPs: []string{ip}})
	}
	b.mark(term, version, len(ips))
}

func (b *broker) mark(term, version int64, pieces int) {
	b.t.Helper()
	b.put(wire.SubjectQoSMark, wire.QoSMark{Term: term, Version: version, Pieces: pieces, Written: time.Now().UTC()})
}

func TestListsAreHeard(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	b.streams()
	b.write(1, 1, "203.0.113.1", "203.0.113.2")
	var h heard
	s := b.store()
	require.ErrorIs(t, s.Err(), ErrNoLists)
	require.NoError(t, s.Start(h.apply))
	is := func(want ...string) func() bool {
		return func() bool { l := h.last(); return l != nil && fmt.Sprint(l.IPs) == fmt.Sprint(want) }
	}
	require.Eventually(t, is("203.0.113.1", "203.0.113.2"), patience, look, "a new edge reads them")
	require.NoError(t, s.Err())
	lists, err := s.Blocklists(t.Context(), nil, time.Time{})
	require.NoError(t, err)
	require.Nil(t, lists)

	b.write(1, 2, "203.0.113.3")
	require.Eventually(t, is("203.0.113.3"), patience, look)
	b.write(1, 1, "203.0.113.1") // a message that was late
	b.write(1, 3)
	require.Eventually(t, is(), patience, look, "all lists are empty")
	require.Equal(t, 3, h.len())

	// A process that leads no more is not believed.
	b.write(2, 1, "203.0.113.4")
	require.Eventually(t, is("203.0.113.4"), patience, look)
	b.write(1, 9, "203.0.113.5")
	b.put(wire.SubjectQoSMark, wire.QoSLists{Term: 1, Version: 1}) // another message than it should be: no version is newer
	require.NoError(t, bus.PublishAcked(t.Context(), b.conn, wire.SubjectQoSMark, []byte("nonsense"), ""))
	require.NoError(t, bus.PublishAcked(t.Context(), b.conn, wire.QoSPieceSubject(0), []byte("nonsense"), ""))
	b.write(2, 2, "203.0.113.6")
	require.Eventually(t, is("203.0.113.6"), patience, look)
	require.Equal(t, 5, h.len())
}

// TestListsWaitForTheirPieces: a mark whose pieces were not heard makes the store read
// the stream.
func TestListsWaitForTheirPieces(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	b.streams()
	var h heard
	s := b.store()
	require.NoError(t, s.Start(h.apply))
	b.write(1, 1)
	require.Eventually(t, func() bool { return h.last() != nil }, patience, look)

	b.put(wire.QoSPieceSubject(0), wire.QoSLists{Term: 1, Version: 2, IPs: []string{"203.0.113.1"}})
	s.lists.mu.Lock()
	clear(s.lists.pieces) // as if it had not been heard
	s.lists.mu.Unlock()
	b.mark(1, 2, 1)
	require.Eventually(t, func() bool { return len(h.last().IPs) == 1 }, patience, look)
}

// TestPiecesAreBounded: whoever may write lists cannot fill the memory with pieces of
// no mark.
func TestPiecesAreBounded(t *testing.T) {
	t.Parallel()
	s := New(Options{EdgeID: "edge-1"})
	s.lists.pieces = map[string]piece{}
	for i := range 3 * wire.MaxQoSPieces {
		s.keep(wire.QoSPieceSubject(i), piece{wire.QoSLists{Term: 1, Version: 1}, 10})
	}
	require.Len(t, s.lists.pieces, wire.MaxQoSPieces)
	s.keep(wire.QoSPieceSubject(0), piece{wire.QoSLists{Term: 1, Version: 2}, maxBytes})
	require.EqualValues(t, 1, s.lists.pieces[wire.QoSPieceSubject(0)].Version)
	require.Equal(t, 10*wire.MaxQoSPieces, s.lists.bytes)
}
