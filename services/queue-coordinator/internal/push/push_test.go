package push

import (
	"encoding/binary"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/ccnq/ccnq/pkg/bus"
	"github.com/ccnq/ccnq/pkg/bus/embed"
	"github.com/ccnq/ccnq/pkg/wire"
	"github.com/ccnq/ccnq/services/queue-coordinator/internal/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func setup(t *testing.T) (*bus.Conn, *Pusher) {
	t.Helper()
	server, err := embed.Start(embed.Options{})
	require.NoError(t, err)
	t.Cleanup(server.Stop)
	conn, err := bus.Connect(bus.Options{InProcess: server.InProcess(), Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	return conn, New(conn, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
}

func listen(t *testing.T, conn *bus.Conn, edge string) <-chan wire.Promoted {
	t.Helper()
	got := make(chan wire.Promoted, 10)
	require.NoError(t, bus.Subscribe(conn, wire.EdgeSubject(wire.SubjectPromoted, edge),
		func(m wire.Promoted) { got <- m }, func(err error) { t.Error(err) }))
	return got
}

func id(n int) (id wire.RequestID) {
	binary.BigEndian.PutUint64(id[8:], uint64(n))
	return id
}

func TestOneMessageForEachEdge(t *testing.T) {
	t.Parallel()
	conn, p := setup(t)
	first, second := listen(t, conn, "edge-1"), listen(t, conn, "edge-2")
	now := time.Now()
	p.Promoted([]store.Promotion{
		{ID: id(1), EdgeID: "edge-1", Freed: now.Add(-time.Second)},
		{ID: id(2), EdgeID: "edge-2"},
		{ID: id(3), EdgeID: "edge-1", Freed: now.Add(-time.Minute)},
	})
	m := <-first
	require.Equal(t, []wire.RequestID{id(1), id(3)}, m.RequestIDs)
	require.GreaterOrEqual(t, m.AgeUS, time.Minute.Microseconds(), "of the place that was freed first")
	require.Equal(t, wire.Promoted{RequestIDs: []wire.RequestID{id(2)}}, <-second, "nobody knows when it was freed")
	require.InDelta(t, 3, testutil.ToFloat64(p.pushed), 0)
}

func TestMoreThanOneMessageHolds(t *testing.T) {
	t.Parallel()
	conn, p := setup(t)
	got := listen(t, conn, "edge-1")
	promotions := make([]store.Promotion, wire.MaxIDs+1)
	for i := range promotions {
		promotions[i] = store.Promotion{ID: id(i + 1), EdgeID: "edge-1"}
	}
	p.Promoted(promotions)
	require.Len(t, (<-got).RequestIDs, wire.MaxIDs)
	require.Equal(t, []wire.RequestID{id(wire.MaxIDs + 1)}, (<-got).RequestIDs)
}

func TestLostPushesAreCounted(t *testing.T) {
	t.Parallel()
	conn, p := setup(t)
	conn.Close()
	p.Promoted([]store.Promotion{{ID: id(1), EdgeID: "edge-1"}, {ID: id(2), EdgeID: "edge-2"}})
	require.InDelta(t, 2, testutil.ToFloat64(p.lost), 0)
	p.Promoted(nil)
}
