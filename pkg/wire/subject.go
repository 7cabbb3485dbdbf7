package wire

import (
	"fmt"
	"strings"
)

// Subjects of version 1. Those with an asterisk end in the id of an edge.
const (
	// SubjectAdmit asks for a place in a queue: [AdmitRequest] → [AdmitReply].
	SubjectAdmit = "ccnq.v1.queue.admit.*"
	// SubjectCancel takes a request back: [CancelRequest] → [CancelReply].
	SubjectCancel = "ccnq.v1.queue.cancel.*"
	// SubjectRelease gives places back: [ReleaseRequest] → [ReleaseReply].
	SubjectRelease = "ccnq.v1.queue.release.*"
	// SubjectStatus is heartbeat, safety poll and repair in one:
	// [StatusRequest] → [StatusReply].
	SubjectStatus = "ccnq.v1.queue.status.*"
	// SubjectPromoted tells an edge whose turn has come: [Promoted], no reply.
	SubjectPromoted = "ccnq.v1.edge.*.promoted"
)

// MaxEdgeID is the greatest length of an edge id in bytes.
const MaxEdgeID = 64

// EdgeSubject puts the id of an edge in the place of the asterisk of one of
// the Subject constants.
func EdgeSubject(subject, edgeID string) string {
	return strings.Replace(subject, "*", edgeID, 1)
}

// OwnSubject is the subject of one coordinator alone, by its id, beside that of
// the pattern, which all share.
func OwnSubject(pattern, coordinator string) string { return pattern + "." + coordinator }

// EdgeOf returns the id of the edge in a concrete subject that belongs to the
// pattern, or an error if the subject does not fit or the id is not valid.
func EdgeOf(pattern, subject string) (string, error) {
	before, after, ok := strings.Cut(pattern, "*")
	if !ok || len(subject) < len(before)+len(after) ||
		!strings.HasPrefix(subject, before) || !strings.HasSuffix(subject, after) {
		return "", fmt.Errorf("subject %q does not fit %q", clip([]byte(subject)), pattern)
	}
	id := subject[len(before) : len(subject)-len(after)]
	if err := CheckEdgeID(id); err != nil {
		return "", err
	}
	return id, nil
}

// CheckEdgeID reports whether id can name an edge: 1 to [MaxEdgeID] of
// A-Z a-z 0-9 _ and -.
func CheckEdgeID(id string) error {
	if id == "" {
		return fmt.Errorf("edge id is empty")
	}
	if len(id) > MaxEdgeID {
		return fmt.Errorf("edge id %q is longer than %d", clip([]byte(id)), MaxEdgeID)
	}
	for i := range len(id) {
		if !edgeIDByte(id[i]) {
			return fmt.Errorf("edge id %q has a character other than A-Z a-z 0-9 _ -", id)
		}
	}
	return nil
}

// ReduceEdgeID makes an edge id of a host name: every other character becomes
// a hyphen, and what is longer than room bytes is cut. It may return the empty
// string.
func ReduceEdgeID(host string, room int) string {
	out := make([]byte, 0, min(len(host), room))
	for i := 0; i < len(host) && len(out) < room; i++ {
		c := host[i]
		if !edgeIDByte(c) {
			c = '-'
		}
		out = append(out, c)
	}
	return string(out)
}

// InboxPrefix is the prefix of the reply subjects of an edge, so that one edge
// can be denied the replies of another.
func InboxPrefix(edgeID string) string { return "_INBOX_" + edgeID }

func edgeIDByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-'
}
