package wire

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	id1   = mustID("01936f2a-7c00-7000-8000-00000000000a")
	id2   = mustID("01936f2a-7c01-7abc-bdef-0123456789ab")
	group = Bucket{Kind: KindGroup, Key: "203.0.113.0/24"}
)

func mustID(s string) RequestID {
	id, err := ParseRequestID(s)
	if err != nil {
		panic(err)
	}
	return id
}

// goldens is one example of each message with every field, and one with only
// what its first release had to send. The files of a released version are
// never edited: an old sender must be understood.
var goldens = map[string]Message{
	"admit_reply":        AdmitReply{Decision: Rejected, RetryAfterMS: 5000, FullForMS: 80, Limits: Limits{MaxServed: 1, MaxPending: 5}},
	"admit_reply_by":     AdmitReply{By: By{Coordinator: "c1"}, Decision: Admitted, Limits: Limits{MaxServed: 1, MaxPending: 5}},
	"admit_reply_min":    AdmitReply{Decision: Queued, Limits: Limits{MaxServed: 1, MaxPending: 5}},
	"admit_request":      AdmitRequest{RequestID: id1, Bucket: group, Mode: ModeNoWait, BudgetMS: 1000},
	"admit_request_min":  AdmitRequest{RequestID: id1, Bucket: group, BudgetMS: 1000},
	"cancel_reply":       CancelReply{Was: WasPending},
	"cancel_reply_by":    CancelReply{By: By{Coordinator: "c1"}, Was: WasActive},
	"cancel_request":     CancelRequest{RequestID: id1, Bucket: group},
	"promoted":           Promoted{RequestIDs: []RequestID{id1, id2}, AgeUS: 1250},
	"promoted_min":       Promoted{RequestIDs: []RequestID{id1}},
	"release_reply":      ReleaseReply{},
	"release_reply_by":   ReleaseReply{By{Coordinator: "c1"}},
	"release_request":    ReleaseRequest{Items: []Item{{id1, group}, {id2, Bucket{KindGroup, "2001:db8::/64"}}}},
	"status_reply":       StatusReply{Promoted: []RequestID{id1}, Unknown: []RequestID{id2}},
	"status_reply_by":    StatusReply{By: By{Coordinator: "c1"}, Promoted: []RequestID{}, Unknown: []RequestID{}},
	"status_reply_min":   StatusReply{Promoted: []RequestID{}, Unknown: []RequestID{}},
	"status_request":     StatusRequest{Epoch: 7, LeaseMS: 5000, StaleMS: 2000, Part: 1, Parts: 2, Waiting: []RequestID{id1}, Active: []RequestID{id2}},
	"status_request_min": StatusRequest{Epoch: 1, Waiting: []RequestID{}, Active: []RequestID{}},
}

const goldenDir = "testdata/v1"

// decodeAs decodes into the type of like.
func decodeAs(like Message, data []byte) (Message, error) {
	switch like.(type) {
	case AdmitReply:
		return decode[AdmitReply](data)
	case AdmitRequest:
		return decode[AdmitRequest](data)
	case CancelReply:
		return decode[CancelReply](data)
	case CancelRequest:
		return decode[CancelRequest](data)
	case Promoted:
		return decode[Promoted](data)
	case ReleaseReply:
		return decode[ReleaseReply](data)
	case ReleaseRequest:
		return decode[ReleaseRequest](data)
	case StatusReply:
		return decode[StatusReply](data)
	case StatusRequest:
		return decode[StatusRequest](data)
	}
	if m, ok, err := decodeDenylistAs(like, data); ok {
		return m, err
	}
	if m, ok, err := decodeQoSAs(like, data); ok {
		return m, err
	}
	if m, ok, err := decodePurgeAs(like, data); ok {
		return m, err
	}
	panic("a message without a case: " + reflect.TypeOf(like).Name())
}

func decode[M Message](data []byte) (Message, error) { return Decode[M](data) }

func TestGoldens(t *testing.T) {
	t.Parallel()
	for name, message := range goldens {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			golden, err := os.ReadFile(filepath.Join(goldenDir, name+".json"))
			require.NoError(t, err)

			decoded, err := decodeAs(message, golden)
			require.NoError(t, err)
			require.Equal(t, message, decoded)

			encoded, err := json.Marshal(message)
			require.NoError(t, err)
			var compact bytes.Buffer
			require.NoError(t, json.Compact(&compact, golden))
			require.Equal(t, compact.String(), string(encoded))
		})
	}
}

func TestEveryGoldenIsTested(t *testing.T) {
	t.Parallel()
	files, err := os.ReadDir(goldenDir)
	require.NoError(t, err)
	require.Len(t, files, len(goldens))
	for _, file := range files {
		require.Contains(t, goldens, strings.TrimSuffix(file.Name(), ".json"))
	}
}

// A newer sender may add fields; a reader of this version ignores them.
func TestDecodeIgnoresUnknownFields(t *testing.T) {
	t.Parallel()
	for name, message := range goldens {
		encoded, err := json.Marshal(message)
		require.NoError(t, err)
		newer := `{"added_later":{"x":[1]},` + strings.TrimPrefix(string(encoded), "{")
		newer = strings.Replace(newer, ",}", "}", 1) // the empty message
		decoded, err := decodeAs(message, []byte(newer))
		require.NoError(t, err, name)
		require.Equal(t, message, decoded, name)
	}
}
