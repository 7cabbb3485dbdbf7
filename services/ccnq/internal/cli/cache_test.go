package cli

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/pkg/bus"
	"github.com/ccnq/ccnq/pkg/wire"
)

// purgers are edges that note what they are told.
type purgers struct {
	mu       sync.Mutex
	requests []wire.PurgeRequest
}

func (p *purgers) start(t *testing.T, conn *bus.Conn, warnings map[string]string) {
	t.Helper()
	for edge, warning := range warnings {
		require.NoError(t, bus.Answer(conn, wire.SubjectPurge, wire.SubjectPurged, edge, func(req wire.PurgeRequest) wire.PurgeReply {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.requests = append(p.requests, req)
			return wire.PurgeReply{Warning: warning}
		}, func(err error) { t.Errorf("refused: %v", err) }))
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, conn.Ping(ctx))
}

func TestCachePurge(t *testing.T) {
	conn := natsServer(t)
	code, _, stderr := command(t, "cache", "purge", "--host", "example.org")
	require.Equal(t, exitFailed, code)
	require.Contains(t, stderr, "no edge answered")

	p := &purgers{}
	p.start(t, conn, map[string]string{"edge-2": "", "edge-1": ""})
	code, stdout, stderr := command(t, "cache", "purge", "--by", "me",
		"--url", "https://example.org/a?b,c", "--url", "https://example.org/b", "--prefix", "https://example.org/p/", "--host", "example.org:8443")
	require.Equal(t, exitOK, code, stderr)
	require.Equal(t, []string{"EDGE WARNING", "edge-1", "edge-2"}, rowsOf(stdout))
	require.Contains(t, stderr, "nobody keeps the purge")
	require.Len(t, p.requests, 2)
	require.Equal(t, "me", p.requests[0].By)
	require.Equal(t, []wire.PurgeTarget{
		{Scope: wire.PurgeURL, Target: "https://example.org/a?b,c"}, {Scope: wire.PurgeURL, Target: "https://example.org/b"},
		{Scope: wire.PurgePrefix, Target: "https://example.org/p/"}, {Scope: wire.PurgeHost, Target: "example.org:8443"},
	}, p.requests[0].Targets)
	require.Equal(t, p.requests[0].ID, p.requests[1].ID)

	_, err := bus.EnsureStream(t.Context(), conn, bus.StreamSpec{Name: wire.StreamPurges, Subjects: []string{wire.SubjectPurge}, Direct: true})
	require.NoError(t, err)
	p.start(t, conn, map[string]string{"edge-3": "the disk is full\x1b[2J"})
	code, stdout, stderr = command(t, "cache", "purge", "--host", "example.org")
	require.Equal(t, exitFailed, code)
	require.Empty(t, stderr)
	require.Contains(t, stdout, "the disk is full\ufffd[2J")

	code, stdout, _ = command(t, "cache", "purge", "--host", "example.org", "--json")
	require.Equal(t, exitFailed, code)
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	require.Len(t, lines, 3)
	var reply edgeAnswer
	require.NoError(t, json.Unmarshal([]byte(lines[2]), &reply))
	require.Equal(t, "edge-3", reply.Edge)
}

// rowsOf is a table without its blanks.
func rowsOf(table string) (rows []string) {
	for line := range strings.Lines(table) {
		rows = append(rows, strings.Join(strings.Fields(line), " "))
	}
	return rows
}

func TestCachePurgeRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "nothing to purge"},
		{[]string{"--url", "/a"}, `target "/a" is not a URL`},
		{[]string{"--host", "https://example.org"}, "is not a host"},
		{[]string{"--prefix", "example.org"}, "is not a URL"},
	} {
		code, _, stderr := command(t, append([]string{"cache", "purge"}, c.args...)...)
		require.Equal(t, exitConfig, code)
		require.Contains(t, stderr, c.want)
	}
}
