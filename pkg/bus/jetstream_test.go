package bus

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/pkg/bus/embed"
	"github.com/ccnq/ccnq/pkg/wire"
)

// streams starts a server with JetStream and connects to it.
func streams(t testing.TB) *client {
	t.Helper()
	return connectTo(t, server(t, embed.Options{StoreDir: t.TempDir()}))
}

func ensure(t testing.TB, c *client, spec StreamSpec) StreamState {
	t.Helper()
	state, err := EnsureStream(deadline(t), c.Conn, spec)
	require.NoError(t, err)
	return state
}

// spec is the stream of most tests.
var spec = StreamSpec{Name: "S", Subjects: []string{"s.>"}, Direct: true}

// fill stores n messages s.0, s.1 … with those numbers as content.
func fill(t testing.TB, c *client, n int) {
	t.Helper()
	puts := make([]Put, n)
	for i := range puts {
		puts[i] = Put{Subject: fmt.Sprintf("s.%d", i), Data: fmt.Append(nil, i)}
	}
	results, err := PutAll(deadline(t), c.Conn, puts)
	require.NoError(t, err)
	for i, r := range results {
		require.NoError(t, r.Err)
		require.EqualValues(t, i+1, r.Sequence, "in order")
	}
}

func TestPublishAcked(t *testing.T) {
	t.Parallel()
	c := streams(t)
	err := PublishAcked(deadline(t), c.Conn, "s.a", []byte("x"), "")
	require.ErrorIs(t, err, ErrNoResponders, "there is no stream yet")
	small := spec
	small.Memory, small.MaxBytes, small.RefuseWhenFull = true, 1_000, true
	ensure(t, c, small)
	for range 2 {
		require.NoError(t, PublishAcked(context.Background(), c.Conn, "s.a", []byte("x"), "same"))
	}
	require.NoError(t, PublishAcked(deadline(t), c.Conn, "s.a", []byte("x"), "other"))
	info, err := StreamInfo(deadline(t), c.Conn, "S")
	require.NoError(t, err)
	require.EqualValues(t, 2, info.Messages, "one id is stored once")
	require.EqualValues(t, 1, info.First)
	require.EqualValues(t, 2, info.Last)
	require.Positive(t, info.Bytes)
	err = PublishAcked(deadline(t), c.Conn, "s.a", make([]byte, 2_000), "big")
	require.ErrorIs(t, err, ErrRefused)
	require.ErrorContains(t, err, "store s.a")
	_, err = StreamInfo(deadline(t), c.Conn, "other")
	require.ErrorIs(t, err, ErrNotFound)

	ctx, cancel := context.WithCancel(deadline(t))
	cancel()
	require.ErrorIs(t, PublishAcked(ctx, c.Conn, "s.a", []byte("x"), ""), context.Canceled)
	c.Close()
	require.ErrorIs(t, PublishAcked(deadline(t), c.Conn, "s.a", []byte("x"), ""), ErrDisconnected)
	_, err = EnsureStream(deadline(t), c.Conn, spec)
	require.ErrorIs(t, err, ErrDisconnected)
}

// TestAnswersThatAreNone asks somebody who is no stream.
func TestAnswersThatAreNone(t *testing.T) {
	t.Parallel()
	c := streams(t)
	for subject, answer := range map[string]string{"x.empty": "", "x.json": `{"stream":""}`, "x.words": "thanks"} {
		_, err := c.nc.Subscribe(subject, func(m *nats.Msg) { _ = m.Respond([]byte(answer)) })
		require.NoError(t, err)
		require.NoError(t, c.Ping(deadline(t)))
		require.ErrorIs(t, PublishAcked(deadline(t), c.Conn, subject, nil, ""), ErrRefused, subject)
		_, err = PutBlock(deadline(t), c.Conn, Put{Subject: subject})
		require.ErrorIs(t, err, ErrRefused, subject)
	}
}

func TestEnsureStreamChangesIt(t *testing.T) {
	t.Parallel()
	c := streams(t)
	first := ensure(t, c, spec)
	fill(t, c, 3)
	changed := spec
	changed.MaxAge, changed.Description = time.Hour, "for the test"
	second := ensure(t, c, changed)
	require.Equal(t, first.Created, second.Created)
	require.EqualValues(t, 3, second.Messages)
	changed.Memory = true
	_, err := EnsureStream(deadline(t), c.Conn, changed)
	require.ErrorIs(t, err, ErrRefused)
	require.ErrorContains(t, err, "make stream S")
}

func TestEnsureStreamKeepsReplicas(t *testing.T) {
	t.Parallel()
	for existing, want := range map[int]int{1: 2, 2: 2, 3: 3} {
		s := StreamSpec{Name: "S", Replicas: 2}
		s.keep(jetstream.StreamConfig{Replicas: existing})
		require.Equal(t, want, s.config().Replicas)
	}
}

func TestEnsureDurableKeepsItsPlace(t *testing.T) {
	t.Parallel()
	c := streams(t)
	durable := DurableSpec{Stream: "S", Name: "alerts", Subjects: []string{"s.>"}, AckWait: time.Minute}
	require.ErrorIs(t, EnsureDurable(deadline(t), c.Conn, durable), ErrNotFound)
	ensure(t, c, spec)
	fill(t, c, 2)
	require.NoError(t, EnsureDurable(deadline(t), c.Conn, durable))
	require.NoError(t, PublishAcked(deadline(t), c.Conn, "s.new", nil, ""))
	durable.AckWait = time.Hour
	require.NoError(t, EnsureDurable(deadline(t), c.Conn, durable))
	js, err := jetstream.New(c.nc)
	require.NoError(t, err)
	alerts, err := js.Consumer(deadline(t), "S", "alerts")
	require.NoError(t, err)
	require.Equal(t, time.Hour, alerts.CachedInfo().Config.AckWait)
	msg, err := alerts.Next()
	require.NoError(t, err)
	require.Equal(t, "s.new", msg.Subject(), "not what came before it")
	require.NoError(t, msg.Ack())
}

func TestBlocksBucket(t *testing.T) {
	t.Parallel()
	c := streams(t)
	_, err := EnsureBlocksBucket(deadline(t), c.Conn, 1, 0)
	require.NoError(t, err)
	subject := wire.KVSubject("ip.192-0-2-1")
	first, err := PutBlock(deadline(t), c.Conn, Put{Subject: subject, Data: []byte("1"), TTL: 1_500 * time.Millisecond, Conditional: true})
	require.NoError(t, err)
	_, err = PutBlock(deadline(t), c.Conn, Put{Subject: subject, Data: []byte("x"), Conditional: true})
	require.ErrorIs(t, err, ErrConflict, "the key is there")
	second, err := PutBlock(deadline(t), c.Conn, Put{Subject: subject, Data: []byte("2"), TTL: 1_500 * time.Millisecond, Expect: first, Conditional: true})
	require.NoError(t, err)
	require.Greater(t, second, first)
	_, err = PutBlock(deadline(t), c.Conn, Put{Subject: subject, Data: []byte("x"), Expect: first, Conditional: true})
	require.ErrorIs(t, err, ErrConflict, "the key has changed")

	m, err := DirectGetLast(deadline(t), c.Conn, wire.StreamBlocks, subject)
	require.NoError(t, err)
	require.Equal(t, "2", string(m.Data))
	require.Equal(t, second, m.Sequence)
	require.Equal(t, subject, m.Subject)
	require.False(t, m.Time.IsZero())
	_, err = DirectGetLast(deadline(t), c.Conn, wire.StreamBlocks, wire.KVSubject(wire.KeyMark))
	require.ErrorIs(t, err, ErrNotFound)
	_, err = DirectGetLast(deadline(t), c.Conn, "other", "s")
	require.ErrorIs(t, err, ErrNoResponders)

	// What other clients see: a bucket, one message a key, its life, no marks.
	js, err := jetstream.New(c.nc)
	require.NoError(t, err)
	kv, err := js.KeyValue(deadline(t), wire.BucketBlocks)
	require.NoError(t, err)
	entry, err := kv.Get(deadline(t), "ip.192-0-2-1")
	require.NoError(t, err)
	require.Equal(t, "2", string(entry.Value()))
	stream, err := js.Stream(deadline(t), wire.StreamBlocks)
	require.NoError(t, err)
	require.EqualValues(t, 1, stream.CachedInfo().State.Msgs)
	require.Zero(t, stream.CachedInfo().Config.SubjectDeleteMarkerTTL)
	raw, err := stream.GetMsg(deadline(t), second)
	require.NoError(t, err)
	require.Equal(t, "2", raw.Header.Get("Nats-TTL"), "whole seconds, rounded up")

	watched := make(chan StreamMessage, 10)
	w, err := WatchSubject(c.Conn, wire.SubjectBlocks, func(m StreamMessage) { watched <- m })
	require.NoError(t, err)
	require.NoError(t, c.Ping(deadline(t)))
	require.NoError(t, kv.Delete(deadline(t), "ip.192-0-2-1"))
	require.Equal(t, StreamMessage{Subject: subject, Data: []byte{}, Deleted: true}, <-watched)
	m, err = DirectGetLast(deadline(t), c.Conn, wire.StreamBlocks, subject)
	require.NoError(t, err)
	require.True(t, m.Deleted)
	_, err = PutBlock(deadline(t), c.Conn, Put{Subject: subject, Data: []byte("3")})
	require.NoError(t, err)
	require.Equal(t, StreamMessage{Subject: subject, Data: []byte("3")}, <-watched)
	require.Zero(t, w.Lost())
	require.Zero(t, w.Waiting())
	w.Stop()
}

func TestWatchCountsWhatItLoses(t *testing.T) {
	t.Parallel()
	c := streams(t)
	busy, release := make(chan struct{}, 1), make(chan struct{})
	w, err := WatchSubject(c.Conn, "s.>", func(StreamMessage) {
		select {
		case busy <- struct{}{}:
		default:
		}
		<-release
	})
	require.NoError(t, err)
	require.NoError(t, w.sub.SetPendingLimits(10, -1))
	for range 100 {
		require.NoError(t, c.nc.Publish("s.a", nil))
	}
	<-busy
	require.NoError(t, c.Ping(deadline(t)))
	require.Positive(t, w.Lost())
	require.LessOrEqual(t, w.Waiting(), 10)
	close(release)
	w.Stop()
}

func TestPutAllWithoutAStream(t *testing.T) {
	t.Parallel()
	c := streams(t)
	results, err := PutAll(deadline(t), c.Conn, make3("s.x"))
	require.NoError(t, err)
	for _, r := range results {
		require.ErrorIs(t, r.Err, ErrNoResponders)
	}
	// Somebody listens and never answers.
	_, err = c.nc.Subscribe("s.silent", func(*nats.Msg) {})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	_, err = c.nc.Subscribe("s.silent", func(*nats.Msg) { cancel() })
	require.NoError(t, err)
	require.NoError(t, c.Ping(deadline(t)))
	results, err = PutAll(ctx, c.Conn, make3("s.silent"))
	require.NoError(t, err)
	for _, r := range results {
		require.ErrorIs(t, r.Err, context.Canceled)
	}
	results, err = PutAll(deadline(t), c.Conn, nil)
	require.NoError(t, err)
	require.Empty(t, results)
	c.Close()
	_, err = PutAll(deadline(t), c.Conn, make3("s.x"))
	require.ErrorIs(t, err, ErrDisconnected)
}

func make3(subject string) []Put {
	return []Put{{Subject: subject}, {Subject: subject}, {Subject: subject}}
}

func TestPutAllOfManyAndLarge(t *testing.T) {
	t.Parallel()
	c := streams(t)
	ensure(t, c, spec)
	fill(t, c, putWindow+100)
	large := make([]Put, 20)
	for i := range large {
		large[i] = Put{Subject: "s.large", Data: make([]byte, 500<<10)}
	}
	results, err := PutAll(deadline(t), c.Conn, large)
	require.NoError(t, err)
	for _, r := range results {
		require.NoError(t, r.Err)
	}
	info, err := StreamInfo(deadline(t), c.Conn, "S")
	require.NoError(t, err)
	require.EqualValues(t, putWindow+100+len(large), info.Messages)
}
