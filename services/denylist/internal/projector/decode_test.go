package projector

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/pkg/bus"
	"github.com/ccnq/ccnq/pkg/wire"
	"github.com/ccnq/ccnq/services/denylist/internal/store"
)

var at = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

func deniedEvent() wire.Event[wire.Denied] {
	return wire.NewEvent("o-1", wire.EdgeSource("edge-1"), wire.TypeDenied, "queue-full", at, wire.Denied{
		OutboxID: "o", Seq: 1, Reason: wire.DeniedQueueFull,
		Addresses: []wire.DeniedAddress{{
			IP: netip.MustParseAddr("192.0.2.1"), Group: netip.MustParsePrefix("192.0.2.0/24"), Count: 1, First: at, Last: at,
		}},
	})
}

func message(t testing.TB, subject string, event any) bus.StreamMessage {
	t.Helper()
	data, err := json.Marshal(event)
	require.NoError(t, err)
	return bus.StreamMessage{Subject: subject, Sequence: 7, Time: at, Data: data}
}

func TestDecodeDenied(t *testing.T) {
	t.Parallel()
	subject := fmt.Sprintf(wire.SubjectDenied, wire.DeniedQueueFull, "edge-1")
	event := deniedEvent()
	record, err := decodeDenied(message(t, subject, event))
	require.NoError(t, err)
	require.Equal(t, store.Record{Seq: 7, At: at, Edge: "edge-1", Denied: event.Data}, record)

	wrongType := event
	wrongType.Type = wire.TypeWouldDeny
	_, err = decodeDenied(message(t, subject, wrongType))
	require.ErrorContains(t, err, `type "ccnq.v1.would-deny" does not belong`)
	_, err = decodeDenied(message(t, fmt.Sprintf(wire.SubjectDenied, wire.DeniedQueueTimeout, "edge-1"), event))
	require.ErrorContains(t, err, "is not that of the subject")
	_, err = decodeDenied(message(t, fmt.Sprintf(wire.SubjectDenied, wire.DeniedQueueFull, "edge one"), event))
	require.ErrorContains(t, err, "edge id")
}

func TestDecodeChange(t *testing.T) {
	t.Parallel()
	change := wire.BlockChange{Scope: wire.ScopeIP, Target: "192.0.2.1", BlockedUntil: at, Since: at, Version: 3, KeepCounts: true}
	for _, test := range []struct {
		typ, pattern string
		want         store.Kind
	}{
		{wire.TypeBlocked, wire.SubjectBlocked, store.KindBlocked},
		{wire.TypeWouldBlock, wire.SubjectWouldBlock, store.KindBlocked},
		{wire.TypeUnblocked, wire.SubjectUnblocked, store.KindUnblocked},
	} {
		event := wire.NewEvent("c", wire.DenylistSource, test.typ, "", at, change)
		got, err := decodeChange(message(t, fmt.Sprintf(test.pattern, "ip"), event))
		require.NoError(t, err)
		require.Equal(t, store.Change{Kind: test.want, At: at, BlockChange: change}, got)
		_, err = decodeChange(message(t, fmt.Sprintf(test.pattern, "range"), event))
		require.ErrorContains(t, err, "is on another subject")
	}
	_, err := decodeChange(message(t, fmt.Sprintf(wire.SubjectBlocked, "ip"), deniedEvent()))
	require.Error(t, err)
}

// FuzzDecode hands hostile messages to everything that decodes one: each
// becomes a record that keeps its bounds, or is moved aside.
func FuzzDecode(f *testing.F) {
	denied := fmt.Sprintf(wire.SubjectDenied, wire.DeniedQueueFull, "edge-1")
	f.Add(denied, message(f, denied, deniedEvent()).Data)
	blocked := fmt.Sprintf(wire.SubjectBlocked, "ip")
	f.Add(blocked, message(f, blocked, wire.NewEvent("c", wire.DenylistSource, wire.TypeBlocked, "", at,
		wire.BlockChange{Scope: wire.ScopeIP, Target: "192.0.2.1", BlockedUntil: at, Version: 3})).Data)
	f.Add(denied, []byte("null"))
	f.Add("", []byte(`{"specversion":"1.0","id":"a","source":"b","type":"ccnq.v1.denied","time":"2030-01-01T00:00:00Z","data":{}}`))
	f.Fuzz(func(t *testing.T, subject string, data []byte) {
		m := bus.StreamMessage{Subject: subject, Sequence: 1, Time: at, Data: data}
		b := batch([]bus.StreamMessage{m}, store.Checkpoint{Created: at})
		require.Equal(t, 1, len(b.Records)+len(b.Quarantined))
		require.NoError(t, b.Check(store.Checkpoint{Created: at}))
		for _, r := range b.Records {
			require.NoError(t, r.Denied.Validate())
			require.NoError(t, wire.CheckEdgeID(r.Edge))
			require.True(t, r.Denied.Reason.Counts() || subject != denied)
		}
		for _, q := range b.Quarantined {
			require.NotEmpty(t, q.Why)
			require.LessOrEqual(t, len(q.Payload), store.MaxPayload)
		}
		if c, err := decodeChange(m); err == nil {
			require.NoError(t, c.Validate())
		}
	})
}
