package bus

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/pkg/bus/embed"
	"github.com/ccnq/ccnq/pkg/wire"
)

func TestGather(t *testing.T) {
	t.Parallel()
	s := server(t, embed.Options{StoreDir: t.TempDir()})
	asker := connect(t, Options{InProcess: s.InProcess()})
	asker.until(t, true)
	request := wire.PurgeRequest{ID: "p1", Targets: []wire.PurgeTarget{{Scope: wire.PurgeHost, Target: "example.org"}}}
	const quiet, patience = time.Second, 30 * time.Second
	gather := func() Gathered[wire.PurgeReply] {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		all, err := Gather[wire.PurgeRequest, wire.PurgeReply](ctx, asker.Conn, wire.SubjectPurge, wire.SubjectPurged, request, quiet)
		require.NoError(t, err)
		return all
	}
	require.Equal(t, Gathered[wire.PurgeReply]{Replies: map[string]wire.PurgeReply{}}, gather(), "nobody is there, which is known at once")

	var refused atomic.Int64
	for _, id := range []string{"edge-1", "edge-2", "edge-3"} {
		edge := connect(t, Options{InProcess: s.InProcess()})
		edge.until(t, true)
		require.NoError(t, Answer(edge.Conn, wire.SubjectPurge, wire.SubjectPurged, id, func(got wire.PurgeRequest) wire.PurgeReply {
			if got.ID != request.ID {
				refused.Add(100)
			}
			return wire.PurgeReply{Warning: "of " + id}
		}, func(error) { refused.Add(1) }))
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		require.NoError(t, edge.Ping(ctx))
		cancel()
	}
	all := gather()
	require.False(t, all.Stored)
	require.Equal(t, map[string]wire.PurgeReply{"edge-1": {Warning: "of edge-1"}, "edge-2": {Warning: "of edge-2"}, "edge-3": {Warning: "of edge-3"}}, all.Replies)

	_, err := EnsureStream(t.Context(), asker.Conn, StreamSpec{Name: wire.StreamPurges, Subjects: []string{wire.SubjectPurge}, Direct: true})
	require.NoError(t, err)
	all = gather()
	require.True(t, all.Stored)
	require.Len(t, all.Replies, 3)

	require.NoError(t, Publish(asker.Conn, wire.SubjectPurge, wire.PurgeReply{}))
	require.Eventually(t, func() bool { return refused.Load() == 3 }, patience, 10*time.Millisecond, "what is no question is refused by each")

	require.NoError(t, asker.nc.PublishRequest(directSubject(wire.StreamPurges), wire.SubjectPurge, []byte(`{"seq":1}`)))
	require.Eventually(t, func() bool { return refused.Load() == 6 }, patience, 10*time.Millisecond, "what a stream holds is no question")

	asker.Close()
	_, err = Gather[wire.PurgeRequest, wire.PurgeReply](t.Context(), asker.Conn, wire.SubjectPurge, wire.SubjectPurged, request, quiet)
	require.ErrorIs(t, err, ErrDisconnected)
}
