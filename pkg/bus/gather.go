package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/ccnq/ccnq/pkg/wire"
)

// streamHeader names the stream of a message that was read from one.
const streamHeader = "Nats-Stream"

// maxGathered bounds the replies to one question.
const maxGathered = 10_000

// Gathered is what became of a question to all edges.
type Gathered[Resp wire.Message] struct {
	// Replies by the id of the edge.
	Replies map[string]Resp
	// Stored says that a stream has taken the question, for who is away.
	Stored bool
}

// Gather asks all edges that listen on subject, and collects their replies
// until none has come for the time of quiet, or ctx ends, which must have a
// deadline. Replies go to subjects that begin with replies and end in the id of
// the edge, so that a permission can be written for each. Those that cannot be
// decoded are left out. That nobody answers is no error. The error says that
// nothing could be asked.
func Gather[Req, Resp wire.Message](ctx context.Context, c *Conn, subject, replies string, req Req, quiet time.Duration) (Gathered[Resp], error) {
	all := Gathered[Resp]{Replies: map[string]Resp{}}
	operation := "ask " + subject
	data, err := json.Marshal(req)
	if err != nil {
		return all, fmt.Errorf("%s: %w", operation, err)
	}
	if !c.nc.IsConnected() {
		return all, fmt.Errorf("%s: %w", operation, ErrDisconnected)
	}
	inbox := replies + "." + strings.TrimPrefix(nats.NewInbox(), nats.InboxPrefix)
	messages := make(chan *nats.Msg, maxGathered)
	stream, err := c.nc.ChanSubscribe(inbox, messages)
	if err != nil {
		return all, translate(operation, err)
	}
	defer func() { _ = stream.Unsubscribe() }()
	edges, err := c.nc.ChanSubscribe(inbox+".*", messages)
	if err != nil {
		return all, translate(operation, err)
	}
	defer func() { _ = edges.Unsubscribe() }()
	if err := c.nc.PublishRequest(subject, inbox, data); err != nil {
		return all, translate(operation, err)
	}
	timer := time.NewTimer(quiet)
	defer timer.Stop()
	for range maxGathered {
		select {
		case msg := <-messages:
			timer.Reset(quiet)
			if msg.Subject == inbox {
				_, err := parseAck(msg)
				if errors.Is(err, ErrNoResponders) {
					return all, nil
				}
				all.Stored = all.Stored || err == nil
				continue
			}
			edge := strings.TrimPrefix(msg.Subject, inbox+".")
			if resp, err := wire.Decode[Resp](msg.Data); err == nil && wire.CheckEdgeID(edge) == nil {
				all.Replies[edge] = resp
			}
		case <-timer.C:
			return all, nil
		case <-ctx.Done():
			return all, nil // what has come is the answer
		}
	}
	return all, nil
}

// Answer calls handle with each question on subject, one at a time in order of
// arrival, until the connection is closed, and sends what it returns to whoever
// [Gather]s with the same replies. All edges who call it answer. A question that
// cannot be decoded is handed to refused instead, and so is one that comes out
// of a stream: NATS delivers what a stream holds wherever a reader of the stream
// says, and that is no question.
func Answer[Req, Resp wire.Message](c *Conn, subject, replies, edgeID string, handle func(Req) Resp, refused func(error)) error {
	_, err := c.nc.Subscribe(subject, func(msg *nats.Msg) {
		req, err := wire.Decode[Req](msg.Data)
		if err == nil && (msg.Subject != subject || msg.Header.Get(streamHeader) != "") {
			err = errors.New("it comes out of a stream")
		}
		if err != nil {
			refused(fmt.Errorf("on %s: %w", subject, err))
			return
		}
		resp := handle(req)
		if !strings.HasPrefix(msg.Reply, replies+".") {
			return // nobody gathers
		}
		data, err := json.Marshal(resp)
		if err == nil {
			err = c.nc.Publish(msg.Reply+"."+edgeID, data)
		}
		if err != nil { // who asks sees that one answer is missing
			c.logger.Debug("reply dropped", "error", err)
		}
	})
	return translate("subscribe to "+subject, err)
}
