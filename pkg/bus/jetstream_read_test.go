package bus

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/pkg/bus/embed"
	"github.com/ccnq/ccnq/pkg/testport"
)

func open(t testing.TB, c *client, from uint64, filters ...string) *Reader {
	t.Helper()
	r, err := OpenReader(deadline(t), c.Conn, "S", from, filters...)
	require.NoError(t, err)
	t.Cleanup(func() { r.Close(deadline(t)) })
	return r
}

// drain reads to the end of the stream.
func drain(t testing.TB, r *Reader) []StreamMessage {
	t.Helper()
	var all []StreamMessage
	for r.Pending() > 0 {
		messages, err := r.Next(deadline(t), time.Minute)
		require.NoError(t, err)
		require.NotEmpty(t, messages)
		all = append(all, messages...)
	}
	return all
}

func TestReader(t *testing.T) {
	t.Parallel()
	for _, memory := range []bool{false, true} {
		t.Run(fmt.Sprintf("memory=%v", memory), func(t *testing.T) {
			t.Parallel()
			c := streams(t)
			_, err := OpenReader(deadline(t), c.Conn, "S", 1)
			require.ErrorIs(t, err, ErrNotFound)
			s := spec
			s.Memory = memory
			created := ensure(t, c, s).Created
			const n = readerBatch + 345
			fill(t, c, n)
			r := open(t, c, 11)
			require.Equal(t, created, r.Stream().Created)
			require.EqualValues(t, n, r.Stream().Last)
			all := drain(t, r)
			require.Len(t, all, n-10)
			for i, m := range all {
				require.EqualValues(t, i+11, m.Sequence)
				require.Equal(t, fmt.Sprintf("s.%d", i+10), m.Subject)
				require.Equal(t, fmt.Sprint(i+10), string(m.Data))
				require.False(t, m.Time.Before(created))
			}
			messages, err := r.Next(deadline(t), time.Nanosecond)
			require.NoError(t, err)
			require.Empty(t, messages, "the end")
			ctx, cancel := context.WithCancel(deadline(t))
			cancel()
			_, err = r.Next(ctx, time.Minute)
			require.ErrorIs(t, err, context.Canceled)

			// The same reader hears what comes then.
			go func() { _ = PublishAcked(context.Background(), c.Conn, "s.new", []byte("new"), "") }()
			messages, err = r.Next(deadline(t), time.Minute)
			require.NoError(t, err)
			require.Len(t, messages, 1)
			require.Equal(t, "new", string(messages[0].Data))

			one := open(t, c, 0, "s.7", "s.new")
			require.Len(t, drain(t, one), 2)
			require.Empty(t, drain(t, open(t, c, n+100)), "behind the end")
		})
	}
}

// TestReaderTakesWhatHasCome lets messages come one by one while nobody reads:
// the next look gives all of them, although each was the last of the stream when
// it was sent.
func TestReaderTakesWhatHasCome(t *testing.T) {
	t.Parallel()
	c := streams(t)
	ensure(t, c, spec)
	r := open(t, c, 1)
	messages, err := r.Next(deadline(t), time.Nanosecond)
	require.NoError(t, err)
	require.Empty(t, messages, "it has asked")
	const n = 20
	for range n {
		require.NoError(t, PublishAcked(deadline(t), c.Conn, "s.new", []byte("new"), ""))
	}
	require.Eventually(t, func() bool { return len(r.messages) >= n }, 10*time.Second, time.Millisecond)
	messages, err = r.Next(deadline(t), time.Minute)
	require.NoError(t, err)
	require.Len(t, messages, n)
}

func TestReaderOfLargeMessages(t *testing.T) {
	t.Parallel()
	c := streams(t)
	ensure(t, c, spec)
	puts := make([]Put, 36)
	for i := range puts {
		puts[i] = Put{Subject: "s.large", Data: make([]byte, 300<<10)}
	}
	_, err := PutAll(deadline(t), c.Conn, puts)
	require.NoError(t, err)
	require.Len(t, drain(t, open(t, c, 1)), len(puts))
}

func TestReaderWhoseStreamIsMadeAnew(t *testing.T) {
	t.Parallel()
	c := streams(t)
	old := ensure(t, c, spec)
	fill(t, c, 20)
	r := open(t, c, 1)
	require.Len(t, drain(t, r), 20)
	js, err := jetstream.New(c.nc)
	require.NoError(t, err)
	require.NoError(t, js.DeleteStream(deadline(t), "S"))
	ensure(t, c, spec)
	fill(t, c, 3)
	for err == nil {
		var messages []StreamMessage
		messages, err = r.Next(deadline(t), time.Minute)
		require.Empty(t, messages, "the new stream is not the old one")
	}
	require.True(t, isAny(err, ErrNotFound, ErrNoResponders, ErrTimeout), "%v", err)
	_, again := r.Next(deadline(t), time.Minute)
	require.Equal(t, err, again)
	r = open(t, c, 1)
	require.True(t, r.Stream().Created.After(old.Created))
	require.Len(t, drain(t, r), 3)
}

func TestReaderAfterARestart(t *testing.T) {
	t.Parallel()
	opts := embed.Options{Host: "127.0.0.1", Port: testport.Reserve(t), StoreDir: t.TempDir()}
	s := server(t, opts)
	c := connect(t, Options{URL: s.ClientURL()})
	c.until(t, true)
	created := ensure(t, c, spec).Created
	fill(t, c, 5)
	r := open(t, c, 1)
	require.Len(t, drain(t, r), 5)
	w, err := WatchSubject(c.Conn, "s.>", func(StreamMessage) {})
	require.NoError(t, err)
	t.Cleanup(w.Stop)
	breaks := w.Reconnects()
	s.Stop()
	c.until(t, false)
	server(t, opts)
	c.until(t, true)
	require.Equal(t, breaks+1, w.Reconnects())
	for err == nil {
		_, err = r.Next(deadline(t), time.Minute)
	}
	require.True(t, isAny(err, ErrNotFound, ErrNoResponders, ErrTimeout), "%v", err)
	r = open(t, c, 5)
	require.Equal(t, created, r.Stream().Created)
	require.Len(t, drain(t, r), 1)
}

func isAny(err error, targets ...error) bool {
	for _, target := range targets {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}

func TestReaderNoticesAGap(t *testing.T) {
	t.Parallel()
	c := streams(t)
	ensure(t, c, spec)
	fill(t, c, 3)
	r := open(t, c, 1)
	// Somebody else takes a message of this consumer.
	other := c.nc.NewInbox()
	taken, err := c.nc.SubscribeSync(other)
	require.NoError(t, err)
	require.NoError(t, c.nc.PublishRequest("$JS.API.CONSUMER.MSG.NEXT.S."+r.consumer, other, []byte("1")))
	_, err = taken.NextMsgWithContext(deadline(t))
	require.NoError(t, err)
	_, err = r.Next(deadline(t), time.Minute)
	require.ErrorIs(t, err, ErrGap)
}

func TestDirectGetPage(t *testing.T) {
	t.Parallel()
	for _, memory := range []bool{false, true} {
		t.Run(fmt.Sprintf("memory=%v", memory), func(t *testing.T) {
			t.Parallel()
			c := streams(t)
			_, err := DirectGetPage(deadline(t), c.Conn, "S", 1, 10, "s.>")
			require.ErrorIs(t, err, ErrNoResponders)
			s := spec
			s.Memory, s.MaxPerSubject = memory, 1
			ensure(t, c, s)
			page, err := DirectGetPage(deadline(t), c.Conn, "S", 1, 10, "s.>")
			require.NoError(t, err)
			require.Equal(t, Page{Messages: []StreamMessage{}, Done: true}, page)
			fill(t, c, 500)
			// Holes, and subjects that came again.
			results, err := PutAll(deadline(t), c.Conn, []Put{{Subject: "s.0"}, {Subject: "s.250", Data: []byte("again")}})
			require.NoError(t, err)
			require.NoError(t, results[1].Err)

			got, next, pages := map[string]string{}, uint64(0), 0
			for done := false; !done; pages++ {
				page, err := DirectGetPage(deadline(t), c.Conn, "S", next, 150, "s.>")
				require.NoError(t, err)
				for _, m := range page.Messages {
					require.NotContains(t, got, m.Subject)
					require.GreaterOrEqual(t, m.Sequence, next)
					require.False(t, m.Time.IsZero())
					got[m.Subject] = string(m.Data)
				}
				next, done = page.Next, page.Done
			}
			require.Len(t, got, 500)
			require.Equal(t, 4, pages)
			require.Equal(t, "again", got["s.250"])
			require.Equal(t, "499", got["s.499"])

			page, err = DirectGetPage(deadline(t), c.Conn, "S", 1, 300, "s.7")
			require.NoError(t, err)
			require.Len(t, page.Messages, 1)
			require.True(t, page.Done)
			page, err = DirectGetPage(deadline(t), c.Conn, "S", 3, 10, "")
			require.NoError(t, err)
			require.Len(t, page.Messages, 10)
			require.EqualValues(t, 3, page.Messages[0].Sequence)
			require.False(t, page.Done)
			page, err = DirectGetPage(deadline(t), c.Conn, "S", 5_000, 300, "s.>")
			require.NoError(t, err)
			require.Empty(t, page.Messages)
			require.True(t, page.Done)
		})
	}
}

// TestDirectGetPageIsComplete answers in the stream's place, with pages that
// lack something.
func TestDirectGetPageIsComplete(t *testing.T) {
	t.Parallel()
	c := streams(t)
	message := func(seq, before int) nats.Header {
		return nats.Header{
			"Nats-Subject": {"forged", "s.1"}, "Nats-Sequence": {"forged", fmt.Sprint(seq)},
			"Nats-Time-Stamp": {"2026-01-02T03:04:05Z"}, "Nats-Last-Sequence": {fmt.Sprint(before)},
		}
	}
	end := func(last int) nats.Header {
		return nats.Header{"Status": {"204"}, "Description": {"EOB"}, "Nats-Num-Pending": {"0"}, "Nats-Last-Sequence": {fmt.Sprint(last)}}
	}
	for name, tc := range map[string]struct {
		replies []nats.Header
		want    error
	}{
		"whole":         {[]nats.Header{message(1, 0), message(5, 1), end(5)}, nil},
		"first lost":    {[]nats.Header{message(5, 1), end(5)}, ErrGap},
		"middle lost":   {[]nats.Header{message(1, 0), message(7, 5), end(7)}, ErrGap},
		"last lost":     {[]nats.Header{message(1, 0), end(5)}, ErrGap},
		"refused":       {[]nats.Header{{"Status": {"408"}, "Description": {"Bad Request"}}}, ErrRefused},
		"end in middle": {[]nats.Header{message(1, 0), {"Status": {"404"}}}, ErrGap},
		"too many":      {[]nats.Header{message(1, 0), message(2, 1), message(3, 2), end(3)}, ErrGap},
	} {
		t.Run(name, func(t *testing.T) {
			stream := "fake"
			sub, err := c.nc.Subscribe(directSubject(stream), func(m *nats.Msg) {
				for _, h := range tc.replies {
					_ = c.nc.PublishMsg(&nats.Msg{Subject: m.Reply, Header: h})
				}
			})
			require.NoError(t, err)
			page, err := DirectGetPage(deadline(t), c.Conn, stream, 1, 2, "s.>")
			require.NoError(t, sub.Unsubscribe())
			require.ErrorIs(t, err, tc.want)
			if tc.want == nil {
				require.Len(t, page.Messages, 2)
				require.Equal(t, "s.1", page.Messages[0].Subject)
				require.EqualValues(t, 1, page.Messages[0].Sequence)
				require.EqualValues(t, 6, page.Next)
			}
		})
	}
}

// TestDirectGetPageOverABrokenConnection does not wait for what will not come.
func TestDirectGetPageOverABrokenConnection(t *testing.T) {
	t.Parallel()
	s := server(t, embed.Options{Host: "127.0.0.1", Port: -1})
	c := connect(t, Options{URL: s.ClientURL()})
	c.until(t, true)
	asked := make(chan struct{})
	_, err := c.nc.Subscribe(directSubject("S"), func(*nats.Msg) { close(asked) })
	require.NoError(t, err)
	failed := make(chan error)
	go func() {
		_, err := DirectGetPage(deadline(t), c.Conn, "S", 1, 10, "")
		failed <- err
	}()
	<-asked
	s.Stop()
	require.ErrorIs(t, <-failed, ErrDisconnected)
}
