package e2e

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/tests/internal/await"
	"github.com/ccnq/ccnq/tests/internal/cluster"
	"github.com/ccnq/ccnq/tests/internal/origin"
	"github.com/ccnq/ccnq/tests/internal/visitor"
)

// reference is the field that carries the id of a refusal.
const reference = "Ccnq-Reference"

// TestF14_RetryAfterThatClientsCanUse has the refusals of the queue; those of
// blocks come with the denylist.
func TestF14_RetryAfterThatClientsCanUse(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name, verdict string
		settings      cluster.Settings
	}{
		{"queue full", "queue-full", limits("1", "0")},
		{"waited too long", "queue-timeout", limits("1", "5").With(cluster.Settings{"CCNQ_QUEUE_PENDING_TIMEOUT_MS": "50"})},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c := cluster.New(t, cluster.Options{Settings: tc.settings})
			held, pending := occupy(t, c, visitor.Request{IP: alice})
			ask := visitor.Request{Edge: c.Edges[0].URL, IP: bob}
			refused := c.Get(t, ask)
			require.Equal(t, http.StatusTooManyRequests, refused.Status)
			require.Equal(t, []string{"5"}, refused.Header["Retry-After"], "as in the seed")
			require.Equal(t, []string{"no-store"}, refused.Header["Cache-Control"])
			requireVerdicts(t, c, 1, tc.verdict)
			finish(t, held, pending)
			c.NothingLeft(t)
			require.Equal(t, http.StatusOK, c.Get(t, ask).Status, "a lone client that comes again")
			require.Equal(t, 2, c.Origin.Total(), "the origin never saw the refused request")
			c.NothingLeft(t)
		})
	}
}

func TestRefusal_Format(t *testing.T) {
	t.Parallel()
	c := cluster.New(t, cluster.Options{Settings: limits("1", "0")})
	held, pending := occupy(t, c, visitor.Request{IP: alice})
	ask := func(method, accept string) visitor.Answer {
		return c.Get(t, visitor.Request{
			Edge: c.Edges[0].URL, IP: bob, Method: method, Path: "/a%20page?secret=1",
			Header: http.Header{"Accept": {accept}},
		})
	}
	references := map[string]bool{}
	for _, tc := range []struct{ name, method, accept, contentType string }{
		{"a browser", "GET", "text/html,application/xhtml+xml,*/*;q=0.8", "text/plain; charset=utf-8"},
		{"anything", "GET", "*/*", "text/plain; charset=utf-8"},
		{"an API client", "POST", "application/json", "application/json"},
		{"a head", "HEAD", "*/*", "text/plain; charset=utf-8"},
	} {
		answer := ask(tc.method, tc.accept)
		require.Equal(t, http.StatusTooManyRequests, answer.Status, tc.name)
		require.Equal(t, tc.contentType, answer.Header.Get("Content-Type"), tc.name)
		require.Equal(t, "5", answer.Header.Get("Retry-After"), tc.name)
		require.Equal(t, "no-store", answer.Header.Get("Cache-Control"), tc.name)
		require.Equal(t, "BYPASS", answer.Header.Get("X-Cache"), tc.name)
		require.NotEmpty(t, answer.Header.Get("Cache-Status"), tc.name)
		id := answer.Header.Get(reference)
		require.NotEmpty(t, id, tc.name)
		require.False(t, references[id], "a reference is unique")
		references[id] = true
		switch {
		case tc.method == http.MethodHead:
			require.Empty(t, answer.Body)
		case tc.contentType == "application/json":
			var body struct {
				Status     int
				Error      string
				Message    string
				RetryAfter int `json:"retry_after"`
				Reference  string
			}
			require.NoError(t, json.Unmarshal([]byte(answer.Body), &body), answer.Body)
			require.Equal(t, http.StatusTooManyRequests, body.Status)
			require.Equal(t, "queue-full", body.Error)
			require.NotEmpty(t, body.Message)
			require.Equal(t, 5, body.RetryAfter)
			require.Equal(t, id, body.Reference)
		default:
			require.Contains(t, answer.Body, id)
			require.Contains(t, answer.Body, "5 s")
		}
	}
	finish(t, held, pending)

	// The reference stands in the log, with what an operator looks for.
	logged := map[string]bool{}
	await.True(t, "each refusal has a line in the log", func() bool {
		for _, line := range c.Edges[0].Log.Lines(t, "refused") {
			id, _ := line["reference"].(string)
			logged[id] = true
			require.Equal(t, bob, line["client"])
			require.Equal(t, "203.0.113.0/24", line["group"])
			require.Equal(t, "queue-full", line["verdict"])
			require.InEpsilon(t, float64(http.StatusTooManyRequests), line["status"], 0)
		}
		return len(logged) == len(references)
	})
	for id := range references {
		require.True(t, logged[id])
	}
	require.NotContains(t, c.Edges[0].Log.Text(), "secret", "a query may hold anything")
}

// TestDisconnect_WhileWaiting: a client that leaves the line gets nothing, and
// its place in line is free at once.
func TestDisconnect_WhileWaiting(t *testing.T) {
	t.Parallel()
	head := []string{
		"Host: site.example", visitor.AddressField + ": " + bob, origin.Group + ": " + visitor.Group(bob),
	}
	cases := []struct {
		name  string
		lines []string
	}{
		{"GET", append(append([]string{"GET / HTTP/1.1"}, head...), "")},
		{"POST with a body that nobody reads", append(append([]string{"POST / HTTP/1.1"}, head...),
			"Content-Length: 1000000", "", strings.Repeat("x", 50_000))},
		{"POST in chunks", append(append([]string{"POST / HTTP/1.1"}, head...),
			"Transfer-Encoding: chunked", "", "5", "hello")},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c := cluster.New(t, cluster.Options{Edges: 2, Settings: limits("1", "1").With(noRepair)})
			held, pending := occupy(t, c, visitor.Request{IP: alice})

			leaver := visitor.Dial(t, c.Edges[0].URL)
			leaver.Lines(t, tc.lines...)
			c.Waiting(t, 1)
			full := c.Get(t, visitor.Request{Edge: c.Edges[1].URL, IP: alice})
			require.Equal(t, http.StatusTooManyRequests, full.Status, "the line is full")

			leaver.CloseWrite(t) // and still listens
			c.Waiting(t, 0)
			rest, _ := io.ReadAll(leaver) // a body that nobody has read makes the end a reset
			require.Empty(t, string(rest), "what a client that has left is sent")

			// The place in line is free, and the turn of the one who left is not taken.
			next := c.Send(t.Context(), visitor.Request{Edge: c.Edges[1].URL, IP: bob})
			c.Waiting(t, 1)
			finish(t, held, pending)
			require.Equal(t, http.StatusOK, next.Answer(t).Status)
			require.Equal(t, 2, c.Origin.Total())
			requireVerdicts(t, c, 1, "client-gone")
			c.NothingLeft(t)
			c.NothingRepaired(t)
		})
	}
}
