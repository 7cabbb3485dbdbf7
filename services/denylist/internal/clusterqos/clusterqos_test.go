package clusterqos

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/pkg/admin"
	"github.com/ccnq/ccnq/pkg/bus"
	"github.com/ccnq/ccnq/pkg/qos"
	"github.com/ccnq/ccnq/pkg/wire"
	"github.com/ccnq/ccnq/services/denylist/internal/streams"
)

// limits are such that nothing ends while a test runs: 10 requests of an address in an
// hour. Should a window begin meanwhile, the last one counts a little less, so that tests
// send more than just enough.
func limits() qos.ClusterLimits {
	return qos.ClusterLimits{Window: time.Hour, MaxTrackedActors: 1000, MaxIPRate: 10. / 3600, RequiredIPs: 1, Compat: true}
}

// process is an aggregator with its own connection, and who makes its streams.
type process struct {
	*Aggregator
	stop func()
	log  *safeBuffer
}

type safeBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func (b *broker) join(name string) *process {
	b.t.Helper()
	p := &process{log: new(safeBuffer)}
	logger := slog.New(slog.NewTextHandler(p.log, nil))
	var keeper *streams.Keeper
	conn, err := bus.Connect(bus.Options{
		URL: "nats://127.0.0.1:" + strconv.Itoa(b.port), Logger: logger,
		OnChange: func(bool) {
			if keeper != nil {
				keeper.Missing()
			}
		},
	})
	require.NoError(b.t, err)
	require.Eventually(b.t, conn.Connected, patience, look)
	keeper = streams.New(streams.Options{
		Conn: conn, MaxAge: 24 * time.Hour, MaxBytes: 1 << 20, More: Streams(limits()), Logger: logger,
	})
	p.Aggregator = New(Options{
		Conn: conn, Limits: limits(), Holder: name,
		Wait: keeper.Wait, Missing: keeper.Missing, Logger: logger, Registry: prometheus.NewRegistry(),
	})
	ctx, cancel := context.WithCancel(b.t.Context())
	var running sync.WaitGroup
	running.Go(func() { keeper.Run(ctx) })
	running.Go(func() { p.Run(ctx) })
	p.stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
		conn.Close()
	})
	b.t.Cleanup(func() {
		p.stop()
		if b.t.Failed() {
			b.t.Log(name, p.log.String())
		}
	})
	return p
}

// edge sends hits as an edge does: each message until it is acknowledged.
type edge struct {
	b    *broker
	conn *bus.Conn
	name string
	seq  uint64
}

func (b *broker) edge(name string) *edge { return &edge{b: b, conn: b.connect(), name: name} }

func (e *edge) send(ip string, n int64) {
	e.b.t.Helper()
	e.seq++
	data, err := json.Marshal(hits(e.seq, ip, n))
	require.NoError(e.b.t, err)
	require.Eventually(e.b.t, func() bool { return e.publish(data) == nil }, patience, look)
}

func (e *edge) publish(data []byte) error {
	return bus.PublishAcked(e.b.t.Context(), e.conn, wire.EdgeSubject(wire.SubjectQoSHits, e.name), data, "")
}

// published returns the lists that the mark names, or none.
func (b *broker) published(conn *bus.Conn) (mark wire.QoSMark, lists []wire.QoSLists) {
	b.t.Helper()
	m, err := bus.DirectGetLast(b.t.Context(), conn, wire.StreamQoSLists, wire.SubjectQoSMark)
	if err != nil {
		return mark, nil
	}
	mark, err = wire.Decode[wire.QoSMark](m.Data)
	require.NoError(b.t, err)
	for i := range mark.Pieces {
		m, err := bus.DirectGetLast(b.t.Context(), conn, wire.StreamQoSLists, wire.QoSPieceSubject(i))
		require.NoError(b.t, err)
		piece, err := wire.Decode[wire.QoSLists](m.Data)
		require.NoError(b.t, err)
		lists = append(lists, piece)
	}
	return mark, lists
}

// blocked waits until exactly these addresses are published.
func (b *broker) blocked(conn *bus.Conn, ips ...string) (mark wire.QoSMark) {
	b.t.Helper()
	require.Eventually(b.t, func() bool {
		var lists []wire.QoSLists
		var found []string
		mark, lists = b.published(conn)
		for _, piece := range lists {
			if piece.Version != mark.Version {
				return false
			}
			found = append(found, piece.IPs...)
		}
		return mark.Term > 0 && fmt.Sprint(found) == fmt.Sprint(ips)
	}, patience, look, "%v", ips)
	return mark
}

func TestHitsOfThreeEdgesMakeABlock(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	p := b.join("one")
	e := []*edge{b.edge("edge-1"), b.edge("edge-2"), b.edge("edge-3")}
	first := b.blocked(e[0].conn)
	for i := range e {
		e[i].send("203.0.113.7", 3)
	}
	e[0].send("203.0.113.8", 9)
	require.Eventually(t, func() bool { return testutil.ToFloat64(p.metrics.counted) == 4 }, patience, look)
	e[2].send("203.0.113.7", 3)
	mark := b.blocked(e[0].conn, "203.0.113.7")
	require.True(t, mark.Newer(first))
	require.Equal(t, first.Term, mark.Term)
	require.Equal(t, admin.OK, p.Status())

	// What is sent again is not counted again, and what is not valid not at all.
	data, err := json.Marshal(hits(e[0].seq, "203.0.113.8", 9))
	require.NoError(t, err)
	require.NoError(t, e[0].publish(data))
	require.NoError(t, e[0].publish([]byte("nonsense")))
	e[0].send("203.0.113.9", 12)
	b.blocked(e[0].conn, "203.0.113.7", "203.0.113.9")
	require.InDelta(t, 1, testutil.ToFloat64(p.metrics.duplicate), 0)
	require.InDelta(t, 1, testutil.ToFloat64(p.metrics.refused), 0)
	require.Contains(t, p.log.String(), "a message about hits is refused")
}

// TestAnotherProcessTakesOver: it knows what the first one knew, and its lists are
// newer.
func TestAnotherProcessTakesOver(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	one := b.join("one")
	require.Eventually(t, one.Leads, patience, look)
	e := b.edge("edge-1")
	e.send("203.0.113.7", 8)
	two := b.join("two")
	e.send("203.0.113.7", 3)
	before := b.blocked(e.conn, "203.0.113.7")
	require.False(t, two.Leads())
	require.Eventually(t, func() bool { return testutil.ToFloat64(two.metrics.counted) == 2 }, patience, look,
		"one that starts late reads all there is")

	one.stop()
	require.Eventually(t, two.Leads, patience, look)
	require.Eventually(t, func() bool {
		after := b.blocked(e.conn, "203.0.113.7")
		return after.Newer(before) && after.Term > before.Term
	}, patience, look)
}

// TestNATSLosesItsMemory: the process knows what it had read, and edges send the
// rest again.
func TestNATSLosesItsMemory(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	p := b.join("one")
	e := b.edge("edge-1")
	e.send("203.0.113.7", 8)
	require.Eventually(t, func() bool { return testutil.ToFloat64(p.metrics.counted) == 1 }, patience, look)
	before := b.blocked(e.conn)

	b.nats.Stop()
	require.Eventually(t, func() bool { return !p.Leads() }, patience, look)
	require.NotEqual(t, admin.OK, p.Status())
	b.start()
	e.send("203.0.113.7", 3)
	after := b.blocked(e.conn, "203.0.113.7")
	require.Greater(t, after.Term, before.Term)
	require.InDelta(t, 2, testutil.ToFloat64(p.metrics.counted), 0)
}

func TestListsInPieces(t *testing.T) {
	t.Parallel()
	lists := &qos.Blocklists{}
	for i := range 60_000 {
		lists.IPs = append(lists.IPs, fmt.Sprintf("2001:db8:%x:%x:ffff:ffff:ffff:ffff", i/256+1, i%256+1))
		lists.Hosts = append(lists.Hosts, fmt.Sprintf("host-%d.example", i))
	}
	whole := new(qos.Blocklists)
	pieces := cut(lists)
	require.Greater(t, len(pieces), 10)
	for _, piece := range pieces {
		piece.Term, piece.Version = 1<<62, 1<<62
		require.NoError(t, piece.Validate())
		data, err := json.Marshal(piece)
		require.NoError(t, err)
		require.Less(t, len(data), wire.MaxQoSBytes+512)
		whole.IPs, whole.Hosts = append(whole.IPs, piece.IPs...), append(whole.Hosts, piece.Hosts...)
	}
	require.True(t, equal(lists, whole))
	require.Empty(t, cut(&qos.Blocklists{}))
}
