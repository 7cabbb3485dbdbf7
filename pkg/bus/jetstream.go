package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// What a stream answers when it refuses.
var (
	// ErrConflict means that the subject's last message is not the expected
	// one: somebody else wrote first.
	ErrConflict = errors.New("the subject has changed")
	// ErrNotFound means that there is no such stream or message.
	ErrNotFound = errors.New("not in NATS")
	// ErrRefused means that a stream answered and did not take the message: it
	// is full, or JetStream has no room. Trying again later may succeed.
	ErrRefused = errors.New("the stream refused it")
)

// apiTimeout bounds one request to JetStream whose context has no deadline.
const apiTimeout = 5 * time.Second

// StreamMessage is one message of a stream.
type StreamMessage struct {
	Subject string
	// Sequence is its place in the stream, from 1; 0 when it was seen live and
	// the place is not known.
	Sequence uint64
	// Time is the server's time at which the stream took it; zero when it was
	// seen live.
	Time time.Time
	Data []byte
	// Deleted says that the message is a mark of a KV bucket's deleted key.
	Deleted bool
}

// PublishAcked sends payload and returns nil once a stream has stored it. A
// message with the same id that the stream still remembers is acknowledged and
// not stored twice. The error wraps [ErrNoResponders] when no stream takes the
// subject, [ErrRefused] when the stream does not take the message, [ErrTimeout]
// or [ErrDisconnected] when that is unknown: the message may have been stored,
// and may be sent again under its id. A ctx without a deadline gets five
// seconds.
func PublishAcked(ctx context.Context, c *Conn, subject string, payload []byte, msgID string) error {
	operation := "store " + subject
	if !c.nc.IsConnected() {
		return fmt.Errorf("%s: %w", operation, ErrDisconnected)
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	msg := &nats.Msg{Subject: subject, Data: payload, Header: nats.Header{}}
	if msgID != "" {
		msg.Header.Set(nats.MsgIdHdr, msgID)
	}
	reply, err := c.nc.RequestMsgWithContext(ctx, msg)
	if err != nil {
		return translate(operation, err)
	}
	if _, err := parseAck(reply); err != nil {
		return fmt.Errorf("%s: %w", operation, err)
	}
	return nil
}

// bounded gives a context without a deadline one.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, apiTimeout)
}

// parseAck reads a stream's answer to a message and returns the message's
// place.
func parseAck(msg *nats.Msg) (uint64, error) {
	if msg.Header.Get(statusHeader) == statusNoResponders {
		return 0, ErrNoResponders
	}
	var ack struct {
		Stream   string              `json:"stream"`
		Sequence uint64              `json:"seq"`
		Error    *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(msg.Data, &ack); err != nil {
		return 0, fmt.Errorf("%w: the answer is no acknowledgement", ErrRefused)
	}
	if ack.Error != nil {
		return 0, refusal(ack.Error)
	}
	if ack.Stream == "" || ack.Sequence == 0 {
		return 0, fmt.Errorf("%w: the answer names no stream", ErrRefused)
	}
	return ack.Sequence, nil
}

// Headers and states of a message from the server itself.
const (
	statusHeader       = "Status"
	statusNoResponders = "503"
	statusNotFound     = "404"
	statusEndOfBatch   = "204"
)

// refusal turns an error of JetStream's API into one of this package.
func refusal(e *jetstream.APIError) error {
	switch e.ErrorCode {
	case jetstream.JSErrCodeStreamWrongLastSequence, jetstream.JSErrCodeStreamWrongLastSequenceConstant:
		return fmt.Errorf("%w: %s", ErrConflict, e.Description)
	case jetstream.JSErrCodeStreamNotFound, jetstream.JSErrCodeMessageNotFound, jetstream.JSErrCodeConsumerNotFound:
		return fmt.Errorf("%w: %s", ErrNotFound, e.Description)
	}
	return fmt.Errorf("%w: %s", ErrRefused, e.Description)
}

// translateAPI is [translate] for the calls that manage streams.
func translateAPI(operation string, err error) error {
	if api, ok := errors.AsType[*jetstream.APIError](err); ok {
		return fmt.Errorf("%s: %w", operation, refusal(api))
	}
	if errors.Is(err, jetstream.ErrNoStreamResponse) {
		err = nats.ErrNoResponders
	}
	return translate(operation, err)
}
