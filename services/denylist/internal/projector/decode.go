package projector

import (
	"fmt"
	"strings"

	"github.com/ccnq/ccnq/pkg/bus"
	"github.com/ccnq/ccnq/pkg/wire"
	"github.com/ccnq/ccnq/services/denylist/internal/store"
)

// deniedSubjects are those of the events that count: the reasons of the queue,
// and qos-counted, which an edge uses for its load-aware limits only when
// CCNQ_QOS_FEEDS_DENYLIST tells it to.
var deniedSubjects = []string{
	fmt.Sprintf(wire.SubjectDenied, wire.DeniedQueueFull, "*"),
	fmt.Sprintf(wire.SubjectDenied, wire.DeniedQueueTimeout, "*"),
	fmt.Sprintf(wire.SubjectDenied, wire.DeniedByQoSCounted, "*"),
}

// changeSubjects are those of the events that tell of blocks, by scope. What
// would have been blocked is a block that monitor mode does not enforce.
var changeSubjects = append([]string{
	fmt.Sprintf(wire.SubjectBlocked, wire.ScopeIP), fmt.Sprintf(wire.SubjectBlocked, wire.ScopeRange),
	fmt.Sprintf(wire.SubjectWouldBlock, wire.ScopeIP), fmt.Sprintf(wire.SubjectWouldBlock, wire.ScopeRange),
}, liftSubjects...)

// liftSubjects are those of changeSubjects that tell of lifts.
var liftSubjects = []string{
	fmt.Sprintf(wire.SubjectUnblocked, wire.ScopeIP), fmt.Sprintf(wire.SubjectUnblocked, wire.ScopeRange),
}

var deniedPrefix, _, _ = strings.Cut(wire.SubjectDenied, "%")

// decodeDenied reads a denied event.
func decodeDenied(m bus.StreamMessage) (store.Record, error) {
	reason, edge, _ := strings.Cut(strings.TrimPrefix(m.Subject, deniedPrefix), ".")
	if err := wire.CheckEdgeID(edge); err != nil {
		return store.Record{}, err
	}
	if len(m.Data) > wire.MaxDeniedBytes {
		return store.Record{}, fmt.Errorf("%d bytes are more than %d", len(m.Data), wire.MaxDeniedBytes)
	}
	event, err := wire.Decode[wire.Event[wire.Denied]](m.Data)
	switch {
	case err != nil:
		return store.Record{}, err
	case event.Type != wire.TypeDenied:
		return store.Record{}, fmt.Errorf("type %q does not belong on the subject", event.Type)
	case string(event.Data.Reason) != reason:
		return store.Record{}, fmt.Errorf("reason %q is not that of the subject", event.Data.Reason)
	}
	return store.Record{Seq: m.Sequence, At: m.Time, Edge: edge, Denied: event.Data}, nil
}

// decodeChange reads a blocked, unblocked or would-block event.
func decodeChange(m bus.StreamMessage) (store.Change, error) {
	event, err := wire.Decode[wire.Event[wire.BlockChange]](m.Data)
	if err != nil {
		return store.Change{}, err
	}
	c := store.Change{Kind: store.KindBlocked, At: event.Time, BlockChange: event.Data}
	pattern := wire.SubjectBlocked
	switch event.Type {
	case wire.TypeBlocked:
	case wire.TypeWouldBlock:
		pattern = wire.SubjectWouldBlock
	case wire.TypeUnblocked:
		c.Kind, pattern = store.KindUnblocked, wire.SubjectUnblocked
	default:
		return store.Change{}, fmt.Errorf("type %q does not belong on the subject", event.Type)
	}
	if want := fmt.Sprintf(pattern, c.Scope); m.Subject != want {
		return store.Change{}, fmt.Errorf("an event for %s is on another subject", want)
	}
	return c, nil
}

// batch decodes messages of one stream; what cannot be understood is moved
// aside. There must be one message at least.
func batch(messages []bus.StreamMessage, at store.Checkpoint) store.Batch {
	b := store.Batch{Next: store.Checkpoint{Created: at.Created, Seq: messages[len(messages)-1].Sequence}}
	for _, m := range messages {
		record, err := decodeDenied(m)
		if err != nil {
			b.Quarantined = append(b.Quarantined, aside(m, err))
			continue
		}
		b.Records = append(b.Records, record)
	}
	return b
}

func aside(m bus.StreamMessage, why error) store.Quarantined {
	return store.Quarantined{
		Seq: m.Sequence, At: m.Time, Subject: m.Subject, Why: why.Error(),
		Payload: m.Data[:min(len(m.Data), store.MaxPayload)],
	}
}
