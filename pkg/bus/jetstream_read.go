package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// readerBatch and readerBytes bound what the server sends ahead of a
	// [Reader].
	readerBatch = 1_000
	readerBytes = 8 << 20
	// readerExpires is how long one request for messages stays open.
	readerExpires = 10 * time.Second
	// readerBeat is how often the server shows that a silent request is still
	// open; after readerSilence the reader gives up.
	readerBeat    = time.Second
	readerSilence = 5 * time.Second
	// readerIdle is how long the server keeps the consumer of a reader that
	// asks for nothing.
	readerIdle = 2 * time.Minute
)

// ErrGap means that a message on its way to a [Reader] was lost; it is still in
// the stream.
var ErrGap = errors.New("a message was lost on its way")

// Reader reads a stream in order, from a place on, and misses nothing without
// an error. It is bound to one life of the stream. It is not safe for
// concurrent use.
type Reader struct {
	c        *Conn
	js       jetstream.JetStream
	stream   string
	consumer string
	inbox    string // with a number for each request
	request  string // the inbox of the open request
	requests int
	sub      *nats.Subscription
	messages chan *nats.Msg
	state    StreamState
	open     int    // messages that the open request may still bring
	received uint64 // messages of this consumer
	pending  uint64 // messages in the stream behind the last one read
	failed   error
}

// OpenReader begins to read at place from; places that are gone are passed
// over. Filters choose subjects; none means all. The error wraps [ErrNotFound]
// if there is no such stream. A ctx without a deadline gets five seconds.
func OpenReader(ctx context.Context, c *Conn, stream string, from uint64, filters ...string) (*Reader, error) {
	operation := "read stream " + stream
	js, err := c.jetStream(operation)
	if err != nil {
		return nil, err
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	consumer, err := js.CreateConsumer(ctx, stream, jetstream.ConsumerConfig{
		FilterSubjects:    filters,
		DeliverPolicy:     jetstream.DeliverByStartSequencePolicy,
		OptStartSeq:       max(from, 1),
		AckPolicy:         jetstream.AckNonePolicy,
		MemoryStorage:     true,
		Replicas:          1,
		InactiveThreshold: readerIdle,
	})
	if err != nil {
		return nil, translateAPI(operation, err)
	}
	r := &Reader{
		c: c, js: js, stream: stream, consumer: consumer.CachedInfo().Name, inbox: c.nc.NewInbox() + ".",
		messages: make(chan *nats.Msg, readerBatch+int(readerExpires/readerBeat)+4),
		pending:  consumer.CachedInfo().NumPending,
	}
	if r.sub, err = c.nc.ChanSubscribe(r.inbox+"*", r.messages); err != nil {
		return nil, translate(operation, err)
	}
	// Asked after the consumer was made: if this is another life of the stream,
	// the consumer is gone and Next says so.
	info, err := js.Stream(ctx, stream)
	if err != nil {
		r.Close(ctx)
		return nil, translateAPI(operation, err)
	}
	r.state = streamState(info.CachedInfo())
	return r, nil
}

// Stream returns the state of the stream when the reader was opened.
func (r *Reader) Stream() StreamState { return r.state }

// Pending returns how many messages the stream held behind the last one read,
// when that one was sent; 0 is the end.
func (r *Reader) Pending() uint64 { return r.pending }

// Next returns the next messages, up to 1,000 of them and about 8 MiB. At the
// end of the stream it waits up to wait for a new one, and returns none if none
// comes. Any error but ctx's means that the reader lost its place: [ErrGap],
// [ErrNotFound] or [ErrNoResponders] (consumer or stream gone), [ErrTimeout],
// [ErrDisconnected]. Then close it and open another behind the last message.
func (r *Reader) Next(ctx context.Context, wait time.Duration) ([]StreamMessage, error) {
	if r.failed != nil {
		return nil, r.failed
	}
	var out []StreamMessage
	until := time.NewTimer(wait)
	defer until.Stop()
	silence := time.NewTimer(readerSilence)
	defer silence.Stop()
	// Pending is of the time when a message was sent; what has come since then is
	// here without more waiting.
	for len(out) == 0 || len(out) < readerBatch && r.open > 0 && (r.pending > 0 || len(r.messages) > 0) {
		if r.open == 0 {
			if err := r.ask(); err != nil {
				return nil, r.fail(err)
			}
		}
		select {
		case msg := <-r.messages:
			m, err := r.take(msg)
			if err != nil {
				return nil, r.fail(err)
			}
			if m != nil {
				out = append(out, *m)
			}
			silence.Reset(readerSilence)
		case <-silence.C:
			if !r.c.Connected() {
				return nil, r.fail(ErrDisconnected)
			}
			return nil, r.fail(ErrTimeout)
		case <-until.C:
			if len(out) == 0 {
				return nil, nil
			}
			until.Reset(readerSilence) // more is on its way
		case <-ctx.Done():
			if len(out) == 0 {
				return nil, ctx.Err()
			}
			return out, nil
		}
	}
	return out, nil
}

// Close removes the consumer from the server, unless the reader has failed: a
// consumer that nobody asks is forgotten by itself after two minutes. A ctx
// without a deadline gets five seconds.
func (r *Reader) Close(ctx context.Context) {
	_ = r.sub.Unsubscribe() // fails only when the connection is closed
	if r.failed != nil || !r.c.Connected() {
		return
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	_ = r.js.DeleteConsumer(ctx, r.stream, r.consumer)
}

func (r *Reader) fail(err error) error {
	r.failed = fmt.Errorf("read stream %s: %w", r.stream, err)
	return r.failed
}

// ask opens a request for messages.
func (r *Reader) ask() error {
	request, err := json.Marshal(map[string]any{
		"batch":          readerBatch,
		"max_bytes":      readerBytes,
		"expires":        readerExpires.Nanoseconds(),
		"idle_heartbeat": readerBeat.Nanoseconds(),
	})
	if err != nil {
		return err
	}
	r.open = readerBatch
	r.requests++
	r.request = r.inbox + strconv.Itoa(r.requests)
	subject := "$JS.API.CONSUMER.MSG.NEXT." + r.stream + "." + r.consumer
	return translate("ask for messages", r.c.nc.PublishRequest(subject, r.request, request))
}

// take reads one message from the server: one of the stream, or word about the
// request (nil).
func (r *Reader) take(msg *nats.Msg) (*StreamMessage, error) {
	if status := msg.Header.Get(statusHeader); status != "" && len(msg.Data) == 0 {
		if msg.Subject != r.request {
			return nil, nil // about a request that was served in full
		}
		return nil, r.word(status, msg.Header.Get("Description"))
	}
	meta, err := msg.Metadata()
	if err != nil {
		return nil, err
	}
	r.received++
	r.open--
	if meta.Sequence.Consumer != r.received {
		return nil, ErrGap
	}
	r.pending = meta.NumPending
	return &StreamMessage{
		Subject:  msg.Subject,
		Sequence: meta.Sequence.Stream,
		Time:     meta.Timestamp.UTC(),
		Data:     msg.Data,
		Deleted:  deletes(msg.Header),
	}, nil
}

// word handles what the server says about the open request.
func (r *Reader) word(status, description string) error {
	switch status {
	case "100": // still open
		return nil
	case statusNotFound, "408":
		r.open = 0
		return nil
	case statusNoResponders:
		return ErrNoResponders
	}
	if status == "409" {
		text := strings.ToLower(description)
		if strings.Contains(text, "batch completed") || strings.Contains(text, "maxbytes") {
			r.open = 0
			return nil
		}
	}
	return fmt.Errorf("%w: %s %s", ErrNotFound, status, description)
}
