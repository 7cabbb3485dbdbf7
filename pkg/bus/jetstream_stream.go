package bus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/ccnq/ccnq/pkg/wire"
)

// StreamSpec says how a stream is kept.
type StreamSpec struct {
	Name        string
	Description string
	Subjects    []string
	// Memory keeps the stream in memory instead of in files.
	Memory bool
	// MaxAge is how long messages are kept; 0 means for ever.
	MaxAge time.Duration
	// MaxBytes bounds the stream; 0 means no bound.
	MaxBytes int64
	// MaxMessageBytes bounds one message, headers included; 0 means no bound.
	MaxMessageBytes int32
	// MaxPerSubject is how many messages of one subject are kept; 0 means all.
	MaxPerSubject int64
	// RefuseWhenFull refuses new messages when MaxBytes is reached; otherwise
	// the oldest are dropped.
	RefuseWhenFull bool
	// Direct lets [DirectGetPage] and [DirectGetLast] read the stream.
	Direct bool
	// MessageTTL lets a message carry a life of its own, see [Put].
	MessageTTL bool
	// Bucket makes the stream one that clients see as a KV bucket: single
	// messages cannot be deleted, and a message may replace all of its subject.
	Bucket bool
	// Replicas is the number of servers that keep the stream at least; 0 means 1.
	Replicas int
}

// StreamState is what a stream holds now.
type StreamState struct {
	// Created tells one life of a stream from the next of the same name.
	Created time.Time
	// First and Last are the places of the oldest and the newest message. An
	// empty stream has First = Last+1.
	First, Last uint64
	Messages    uint64
	Bytes       uint64
}

// EnsureStream makes the stream, or changes the existing one to the spec, but
// for servers that an operator has added to those that keep it. What NATS cannot
// change (files or memory) is an error. A ctx without a deadline gets five
// seconds.
func EnsureStream(ctx context.Context, c *Conn, spec StreamSpec) (StreamState, error) {
	operation := "make stream " + spec.Name
	js, err := c.jetStream(operation)
	if err != nil {
		return StreamState{}, err
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	existing, err := js.Stream(ctx, spec.Name)
	switch {
	case err == nil:
		spec.keep(existing.CachedInfo().Config)
	case !errors.Is(err, jetstream.ErrStreamNotFound):
		return StreamState{}, translateAPI(operation, err)
	}
	stream, err := js.CreateOrUpdateStream(ctx, spec.config())
	if err != nil {
		return StreamState{}, translateAPI(operation, err)
	}
	return streamState(stream.CachedInfo()), nil
}

// EnsureBlocksBucket makes the KV bucket of the blocks ([wire.BucketBlocks]):
// one message a key, each with a life of its own, readable without a consumer,
// and no marks for keys that end (marks of many keys that end at once cost
// seconds). MaxBytes 0 means no bound; a full bucket refuses new keys.
func EnsureBlocksBucket(ctx context.Context, c *Conn, replicas int, maxBytes int64) (StreamState, error) {
	return EnsureStream(ctx, c, StreamSpec{
		Name:           wire.StreamBlocks,
		Description:    "blocks in force, by address and range",
		Subjects:       []string{wire.SubjectBlocks},
		MaxBytes:       maxBytes,
		MaxPerSubject:  1,
		RefuseWhenFull: true,
		Direct:         true,
		MessageTTL:     true,
		Bucket:         true,
		Replicas:       replicas,
	})
}

// StreamInfo returns the state of a stream, or [ErrNotFound]. A ctx without a
// deadline gets five seconds.
func StreamInfo(ctx context.Context, c *Conn, name string) (StreamState, error) {
	operation := "look at stream " + name
	js, err := c.jetStream(operation)
	if err != nil {
		return StreamState{}, err
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	stream, err := js.Stream(ctx, name)
	if err != nil {
		return StreamState{}, translateAPI(operation, err)
	}
	return streamState(stream.CachedInfo()), nil
}

// DurableSpec says what a durable consumer receives.
type DurableSpec struct {
	Stream, Name, Description string
	// Subjects filter the stream; none means all of it.
	Subjects []string
	// AckWait is how long a client may take over one message until it is sent
	// again.
	AckWait time.Duration
}

// EnsureDurable makes a durable pull consumer with explicit acknowledgements,
// or changes the existing one to the spec, whose position stays. A new one
// begins with what the stream takes from then on. A ctx without a deadline gets
// five seconds.
func EnsureDurable(ctx context.Context, c *Conn, spec DurableSpec) error {
	operation := "make consumer " + spec.Name
	js, err := c.jetStream(operation)
	if err != nil {
		return err
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	_, err = js.CreateOrUpdateConsumer(ctx, spec.Stream, jetstream.ConsumerConfig{
		Durable:        spec.Name,
		Description:    spec.Description,
		FilterSubjects: spec.Subjects,
		DeliverPolicy:  jetstream.DeliverNewPolicy,
		AckPolicy:      jetstream.AckExplicitPolicy,
		AckWait:        spec.AckWait,
	})
	return translateAPI(operation, err)
}

// jetStream returns the library's view of the connection, which holds nothing,
// or [ErrDisconnected].
func (c *Conn) jetStream(operation string) (jetstream.JetStream, error) {
	if !c.nc.IsConnected() {
		return nil, fmt.Errorf("%s: %w", operation, ErrDisconnected)
	}
	js, err := jetstream.New(c.nc)
	return js, translate(operation, err)
}

// keep takes over what is the operator's to decide once the stream is there.
func (s *StreamSpec) keep(existing jetstream.StreamConfig) {
	s.Replicas = max(s.Replicas, existing.Replicas)
}

func (s StreamSpec) config() jetstream.StreamConfig {
	unbounded := func(n int64) int64 {
		if n == 0 {
			return -1
		}
		return n
	}
	config := jetstream.StreamConfig{
		Name:              s.Name,
		Description:       s.Description,
		Subjects:          s.Subjects,
		Retention:         jetstream.LimitsPolicy,
		Storage:           jetstream.FileStorage,
		Discard:           jetstream.DiscardOld,
		MaxAge:            s.MaxAge,
		MaxBytes:          unbounded(s.MaxBytes),
		MaxMsgs:           -1,
		MaxMsgSize:        int32(unbounded(int64(s.MaxMessageBytes))),
		MaxMsgsPerSubject: unbounded(s.MaxPerSubject),
		MaxConsumers:      -1,
		AllowDirect:       s.Direct,
		AllowMsgTTL:       s.MessageTTL,
		DenyDelete:        s.Bucket,
		AllowRollup:       s.Bucket,
		Replicas:          max(s.Replicas, 1),
	}
	if s.Memory {
		config.Storage = jetstream.MemoryStorage
	}
	if s.RefuseWhenFull {
		config.Discard = jetstream.DiscardNew
	}
	return config
}

func streamState(info *jetstream.StreamInfo) StreamState {
	return StreamState{
		Created:  info.Created,
		First:    max(info.State.FirstSeq, 1), // NATS says 0 of a new one
		Last:     info.State.LastSeq,
		Messages: info.State.Msgs,
		Bytes:    info.State.Bytes,
	}
}
