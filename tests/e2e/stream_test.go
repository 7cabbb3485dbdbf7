package e2e

import (
	"bufio"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/tests/internal/await"
	"github.com/ccnq/ccnq/tests/internal/cluster"
	"github.com/ccnq/ccnq/tests/internal/origin"
	"github.com/ccnq/ccnq/tests/internal/visitor"
)

// upgraded opens a connection that has switched to the origin's protocol.
func upgraded(t *testing.T, e *cluster.Edge, ip string) *visitor.Conn {
	t.Helper()
	conn := visitor.Dial(t, e.URL)
	conn.Lines(t, "GET /socket HTTP/1.1", "Host: site.example", visitor.AddressField+": "+ip,
		origin.Group+": "+visitor.Group(ip), origin.Do+": "+origin.DoUpgrade,
		"Connection: Upgrade", "Upgrade: lines", "")
	resp := conn.Head(t)
	require.Equal(t, 101, resp.StatusCode)
	require.Equal(t, "lines", resp.Header.Get("Upgrade"))
	conn.Lines(t, "are you there?")
	line, err := conn.ReadLine()
	require.NoError(t, err)
	require.Equal(t, "are you there?\r\n", line)
	return conn
}

func TestUpgrade_HoldsItsPlaceUntilItEnds(t *testing.T) {
	t.Parallel()
	c := cluster.New(t, cluster.Options{Edges: 2, Settings: limits("1", "1").With(noRepair)})
	conn := upgraded(t, c.Edges[0], alice)
	waits := c.Send(t.Context(), visitor.Request{Edge: c.Edges[1].URL, IP: bob})
	c.Waiting(t, 1)
	require.Equal(t, refused, c.Get(t, visitor.Request{Edge: c.Edges[0].URL, IP: bob}).Status)
	conn.Lines(t, "still open")
	line, err := conn.ReadLine()
	require.NoError(t, err)
	require.Equal(t, "still open\r\n", line)
	require.NoError(t, conn.Close())
	require.Equal(t, served, waits.Answer(t).Status)
	c.NothingLeft(t)
}

func TestEventStream_FlowsAndHoldsItsPlace(t *testing.T) {
	t.Parallel()
	c := cluster.New(t, cluster.Options{Settings: limits("1", "1").With(noRepair)})
	resp, err := c.Open(t.Context(), visitor.Request{Edge: c.Edges[0].URL, IP: alice, Do: origin.DoEvents})
	require.NoError(t, err)
	defer resp.Body.Close()
	events := bufio.NewReader(resp.Body)
	line, err := events.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "data: 1\n", line, "an event arrives while the stream is open")
	stream := c.Origin.Next(t)
	waits := c.Send(t.Context(), visitor.Request{Edge: c.Edges[0].URL, IP: bob})
	c.Waiting(t, 1)
	stream.Release()
	rest, err := io.ReadAll(events)
	require.NoError(t, err)
	require.Equal(t, "\ndata: 2\n\n", string(rest))
	require.Equal(t, served, waits.Answer(t).Status)
	c.NothingLeft(t)
}

// TestMaxActiveDuration_CutsBothSides: the client, the origin, and the place is
// free for the next one.
func TestMaxActiveDuration_CutsBothSides(t *testing.T) {
	t.Parallel()
	settings := limits("1", "1").With(noRepair).With(cluster.Settings{"CCNQ_QUEUE_MAX_ACTIVE_DURATION_MS": "5000"})
	t.Run("a request", func(t *testing.T) {
		t.Parallel()
		c := cluster.New(t, cluster.Options{Settings: settings})
		held, pending := occupy(t, c, visitor.Request{IP: alice})
		next := c.Send(t.Context(), visitor.Request{Edge: c.Edges[0].URL, IP: bob})
		require.Error(t, pending.Answer(t).Err, "no error page: the connection is closed")
		<-held.Ended()
		require.Equal(t, served, next.Answer(t).Status)
		c.NothingLeft(t)
	})
	t.Run("an upgrade", func(t *testing.T) {
		t.Parallel()
		c := cluster.New(t, cluster.Options{Settings: settings})
		conn := upgraded(t, c.Edges[0], alice)
		require.True(t, conn.Ended(t))
		require.Equal(t, served, c.Get(t, visitor.Request{Edge: c.Edges[0].URL, IP: bob}).Status)
		c.NothingLeft(t)
	})
	t.Run("not what is out of scope", func(t *testing.T) {
		t.Parallel()
		c := cluster.New(t, cluster.Options{Settings: settings, Rules: rulesA})
		free, freePending := occupy(t, c, visitor.Request{IP: alice, Path: "/b/"})
		limited, limitedPending := occupy(t, c, visitor.Request{IP: alice, Path: "/a/"})
		require.Error(t, limitedPending.Answer(t).Err)
		<-limited.Ended()
		finish(t, free, freePending)
		c.NothingLeft(t)
	})
}

// TestSlowUpload_ReachesTheOriginAsItComes: nothing is buffered whole.
func TestSlowUpload_ReachesTheOriginAsItComes(t *testing.T) {
	t.Parallel()
	c := cluster.New(t, cluster.Options{Settings: limits("1", "0")})
	body, feed := io.Pipe()
	pending := c.Send(t.Context(), visitor.Request{
		Edge: c.Edges[0].URL, IP: alice, Method: "POST", Do: origin.DoEcho, Body: body,
	})
	_, err := io.WriteString(feed, "first ")
	require.NoError(t, err)
	await.True(t, "the request is at the origin", func() bool { return c.Origin.Now(visitor.Group(alice)) == 1 })
	require.Equal(t, refused, c.Get(t, visitor.Request{Edge: c.Edges[0].URL, IP: bob}).Status, "an upload holds its place")
	_, err = io.WriteString(feed, "second")
	require.NoError(t, err)
	require.NoError(t, feed.Close())
	require.Equal(t, "first second", seen(t, pending.Answer(t)).Body)
	c.NothingLeft(t)
}
