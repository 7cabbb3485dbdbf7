package wire

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var subjects = map[string]string{
	SubjectAdmit:    "ccnq.v1.queue.admit.edge-1",
	SubjectCancel:   "ccnq.v1.queue.cancel.edge-1",
	SubjectPromoted: "ccnq.v1.edge.edge-1.promoted",
	SubjectRelease:  "ccnq.v1.queue.release.edge-1",
	SubjectStatus:   "ccnq.v1.queue.status.edge-1",
}

func TestEdgeSubject(t *testing.T) {
	t.Parallel()
	for pattern, subject := range subjects {
		require.Equal(t, subject, EdgeSubject(pattern, "edge-1"))
		id, err := EdgeOf(pattern, subject)
		require.NoError(t, err)
		require.Equal(t, "edge-1", id)
	}
}

func TestOwnSubject(t *testing.T) {
	t.Parallel()
	own := OwnSubject(SubjectAdmit, "c1")
	require.Equal(t, "ccnq.v1.queue.admit.edge-1.c1", EdgeSubject(own, "edge-1"))
	id, err := EdgeOf(own, "ccnq.v1.queue.admit.edge-1.c1")
	require.NoError(t, err)
	require.Equal(t, "edge-1", id)
	for _, subject := range []string{"ccnq.v1.queue.admit.edge-1", "ccnq.v1.queue.admit.edge-1.c2", "ccnq.v1.queue.admit.a.b.c1"} {
		_, err := EdgeOf(own, subject)
		require.Error(t, err, subject)
	}
}

func TestEdgeOfRefuses(t *testing.T) {
	t.Parallel()
	for _, subject := range []string{
		"", "ccnq.v1.queue.admit", "ccnq.v1.queue.admit.", "ccnq.v1.queue.admit.a.b", "ccnq.v1.queue.admit.*",
		"ccnq.v1.queue.admit.>", "ccnq.v1.queue.cancel.a", "xccnq.v1.queue.admit.a", "ccnq.v2.queue.admit.a",
		"ccnq.v1.queue.admit.a b", "ccnq.v1.queue.admit." + strings.Repeat("a", 65), strings.Repeat("x", 10_000),
	} {
		_, err := EdgeOf(SubjectAdmit, subject)
		require.Error(t, err, "%q", subject)
		require.Less(t, len(err.Error()), 300)
	}
	for _, subject := range []string{"ccnq.v1.edge.promoted", "ccnq.v1.edge..promoted", "ccnq.v1.edge.a.b.promoted"} {
		_, err := EdgeOf(SubjectPromoted, subject)
		require.Error(t, err, "%q", subject)
	}
	_, err := EdgeOf("no.asterisk", "no.asterisk")
	require.Error(t, err)
}

func TestCheckEdgeID(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"a", "Z9_-", strings.Repeat("x", MaxEdgeID)} {
		require.NoError(t, CheckEdgeID(id), id)
	}
	for _, id := range []string{"", "a.b", "a b", "é", "a*", ">", "a\n", "a\x00", strings.Repeat("x", MaxEdgeID+1)} {
		require.Error(t, CheckEdgeID(id), "%q", id)
	}
}

func TestReduceEdgeID(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		host string
		room int
		want string
	}{
		{"", 10, ""},
		{"edge-1", 10, "edge-1"},
		{"edge-1.example.org", 64, "edge-1-example-org"},
		{"edge-1.example.org", 8, "edge-1-e"},
		{"ü", 64, "--"},
		{"edge", 0, ""},
	} {
		require.Equal(t, test.want, ReduceEdgeID(test.host, test.room), test.host)
	}
}

func TestInboxPrefix(t *testing.T) {
	t.Parallel()
	require.Equal(t, "_INBOX_edge-1", InboxPrefix("edge-1"))
}

func FuzzEdgeOf(f *testing.F) {
	for _, subject := range subjects {
		f.Add(subject)
	}
	f.Add("ccnq.v1.edge.promoted")
	f.Add("ccnq.v1.queue.admit.*")
	f.Fuzz(func(t *testing.T, subject string) {
		for pattern := range subjects {
			id, err := EdgeOf(pattern, subject)
			if err != nil {
				continue
			}
			require.NoError(t, CheckEdgeID(id))
			require.Equal(t, subject, EdgeSubject(pattern, id))
			require.NotContains(t, id, ".")
		}
	})
}

func FuzzReduceEdgeID(f *testing.F) {
	f.Add("edge-1.example.org", 10)
	f.Add("\xff\x00", 3)
	f.Fuzz(func(t *testing.T, host string, room int) {
		room = max(0, min(room, MaxEdgeID))
		if id := ReduceEdgeID(host, room); id != "" {
			require.NoError(t, CheckEdgeID(id))
			require.LessOrEqual(t, len(id), room)
		}
	})
}
