package e2e

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/pkg/bus"
	"github.com/ccnq/ccnq/pkg/bus/embed"
	"github.com/ccnq/ccnq/pkg/wire"
	"github.com/ccnq/ccnq/tests/internal/await"
	"github.com/ccnq/ccnq/tests/internal/cluster"
	"github.com/ccnq/ccnq/tests/internal/origin"
	"github.com/ccnq/ccnq/tests/internal/visitor"
)

// lasting keeps pages for longer than a test takes.
var lasting = cluster.Settings{"CCNQ_CACHE_TTL_MS": "3600000"}

// operator is somebody at the command line.
func operator(t *testing.T, url string) *bus.Conn {
	t.Helper()
	conn, err := bus.Connect(bus.Options{URL: url, Name: "operator", Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	await.True(t, "the operator is connected", conn.Connected)
	return conn
}

// purge orders a purge of pages of an edge, and returns who answered.
func purge(t *testing.T, conn *bus.Conn, id string, targets ...string) (edges []string) {
	t.Helper()
	req := wire.PurgeRequest{ID: id}
	for _, target := range targets {
		req.Targets = append(req.Targets, wire.PurgeTarget{Scope: wire.PurgeURL, Target: target})
	}
	ctx, cancel := context.WithTimeout(t.Context(), await.Limit)
	defer cancel()
	all, err := bus.Gather[wire.PurgeRequest, wire.PurgeReply](ctx, conn, wire.SubjectPurge, wire.SubjectPurged, req, 5*time.Second)
	require.NoError(t, err)
	require.True(t, all.Stored)
	for edge, reply := range all.Replies {
		require.Empty(t, reply.Warning)
		edges = append(edges, edge)
	}
	return edges
}

// hasRead waits until an edge has applied the purges up to one.
func hasRead(t *testing.T, e *cluster.Edge, seq string) {
	t.Helper()
	await.True(t, "the edge has read the purges", func() bool {
		place, err := os.ReadFile(filepath.Join(e.CacheDir, "purges.json"))
		return err == nil && strings.Contains(string(place), `"seq":`+seq+`}`)
	})
}

// TestPurge_EveryEdge: a purge reaches all edges at once, and one that was away
// when it is back.
func TestPurge_EveryEdge(t *testing.T) {
	t.Parallel()
	server, err := embed.Start(embed.Options{Host: "127.0.0.1", Port: -1, StoreDir: t.TempDir()})
	require.NoError(t, err)
	t.Cleanup(server.Stop)
	nats := server.ClientURL()
	c := cached(t, cluster.Options{Edges: 2, Denylist: true, NATS: nats, Settings: lasting})
	conn := operator(t, nats)
	await.True(t, "the stream is there", func() bool {
		_, err := bus.StreamInfo(t.Context(), conn, wire.StreamPurges)
		return err == nil
	})
	get := func(e *cluster.Edge, path string) visitor.Answer {
		return c.Get(t, visitor.Request{Edge: e.URL, IP: alice, Path: path})
	}
	// The edges are reached by different ports, which tell hosts apart.
	everywhere := func(path string) []string { return []string{c.Edges[0].URL + path, c.Edges[1].URL + path} }
	for _, e := range c.Edges {
		hasRead(t, e, "0")
		for _, path := range []string{"/a", "/b", "/c"} {
			xCache(t, "MISS", get(e, path))
			xCache(t, "HIT", get(e, path))
		}
	}
	require.ElementsMatch(t, []string{"edge-1", "edge-2"}, purge(t, conn, "p1", everywhere("/a")...))
	for _, e := range c.Edges {
		xCache(t, "MISS", get(e, "/a"))
		xCache(t, "HIT", get(e, "/b"))
		hasRead(t, e, "1")
	}

	away := c.Edges[1]
	cluster.Stop(t, away)
	require.Equal(t, []string{"edge-1"}, purge(t, conn, "p2", everywhere("/b")...))
	back := cluster.StartEdge(t, cluster.Common(c.Origin.URL).With(caching(t)).With(lasting).With(cluster.Settings{
		"CCNQ_CACHE_DIR": away.CacheDir, "CCNQ_NATS_URL": nats, "CCNQ_EDGE_ID": "edge-2",
		"CCNQ_PORT": away.URL[strings.LastIndexByte(away.URL, ':')+1:],
	}))
	hasRead(t, back, "2")
	xCache(t, "HIT", get(back, "/a"))
	xCache(t, "MISS", get(back, "/b"))
	xCache(t, "HIT", get(back, "/c"))
	require.ElementsMatch(t, []string{"edge-1", "edge-2"}, purge(t, conn, "p3", everywhere("/c")...), "an edge with nothing but a cache hears of it too")
	xCache(t, "MISS", get(back, "/c"))
}

// TestPurge_AdminListener: an edge without NATS is purged where its metrics are.
func TestPurge_AdminListener(t *testing.T) {
	t.Parallel()
	visitors, site := visitor.New(t), origin.New(t)
	e := cluster.StartEdge(t, cluster.Common(site.URL).With(caching(t)).With(lasting))
	get := func() visitor.Answer {
		return visitors.Get(t, visitor.Request{Edge: e.URL, IP: alice, Path: "/a"})
	}
	xCache(t, "MISS", get())
	xCache(t, "HIT", get())
	resp, err := http.Post(e.Admin+"/cache/purge", "application/json", strings.NewReader(`{"targets":[{"scope":"host","target":"`+strings.TrimPrefix(e.URL, "http://")+`"}]}`))
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, resp.StatusCode, string(body))
	require.Equal(t, "{}\n", string(body))
	xCache(t, "MISS", get())
}
