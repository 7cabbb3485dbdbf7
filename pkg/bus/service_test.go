package bus

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/pkg/bus/embed"
	"github.com/ccnq/ccnq/pkg/wire"
)

func TestStopWaitsForAnswers(t *testing.T) {
	t.Parallel()
	s := server(t, embed.Options{})
	first := make(chan *Call[wire.CancelRequest, wire.CancelReply], 1)
	service, _ := serve(t, connectTo(t, s), func(call *Call[wire.CancelRequest, wire.CancelReply]) {
		select {
		case first <- call: // and keeps it
		default:
			pending(call)
		}
	})
	c := connectTo(t, s)
	answered := make(chan error)
	go func() {
		_, err := ask(deadline(t), c)
		answered <- err
	}()
	require.Eventually(t, func() bool { return len(first) == 1 }, 20*time.Second, time.Millisecond)
	stopped := make(chan error, 1)
	go func() { stopped <- service.Stop() }()
	for {
		if _, err := ask(deadline(t), c); err != nil {
			require.ErrorIs(t, err, ErrNoResponders)
			break // it no longer listens
		}
	}
	require.Empty(t, stopped, "a call is not answered yet")
	pending(<-first)
	require.NoError(t, <-answered)
	require.NoError(t, <-stopped)
	require.NoError(t, service.Stop(), "twice")
}

// TestStopLosesNothing stops services while requests come in: each is answered
// by one that is still there, or by nobody, but never waits in vain.
func TestStopLosesNothing(t *testing.T) {
	t.Parallel()
	s := server(t, embed.Options{})
	answer := func(call *Call[wire.CancelRequest, wire.CancelReply]) { go pending(call) }
	serve(t, connectTo(t, s), answer)
	var stop atomic.Bool
	var asking sync.WaitGroup
	for range 8 {
		c := connectTo(t, s)
		asking.Go(func() {
			for !stop.Load() {
				if _, err := ask(deadline(t), c); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 20 {
		service, _ := serve(t, connectTo(t, s), answer)
		require.NoError(t, service.Stop())
	}
	stop.Store(true)
	asking.Wait()
}

func TestStopWithoutAConnection(t *testing.T) {
	t.Parallel()
	s := server(t, embed.Options{Host: "127.0.0.1", Port: -1})
	c := connect(t, Options{URL: s.ClientURL()})
	c.until(t, true)
	service, _ := serve(t, c, pending)
	s.Stop()
	c.until(t, false)
	require.NoError(t, service.Stop())
	c.Close()
	late, err := NewService(c.Conn, serviceName, "1.0.0", nil)
	if err == nil {
		require.NoError(t, late.Stop())
	}
}

func TestNamesAreChecked(t *testing.T) {
	t.Parallel()
	c := connectTo(t, server(t, embed.Options{}))
	_, err := NewService(c.Conn, "not a name", "1.0.0", nil)
	require.ErrorContains(t, err, "register service")
	_, err = NewService(c.Conn, serviceName, "one", nil)
	require.ErrorContains(t, err, "register service")
}

func TestHandleWithoutAnEdge(t *testing.T) {
	t.Parallel()
	s := server(t, embed.Options{})
	c := connectTo(t, s)
	service, _ := serve(t, c, pending)
	edges := make(chan string, 1)
	require.NoError(t, Handle(service, "list", wire.SubjectList, func(call *Call[wire.ListRequest, wire.ListReply]) {
		edges <- call.Edge
		call.Reply(wire.ListReply{Next: "n"})
	}))
	require.NoError(t, c.Ping(deadline(t)))
	reply, err := Request[wire.ListRequest, wire.ListReply](deadline(t), c.Conn, wire.SubjectList, wire.ListRequest{})
	require.NoError(t, err)
	require.Equal(t, "n", reply.Next)
	require.Empty(t, <-edges)
	_, err = Request[wire.ListRequest, wire.ListReply](deadline(t), c.Conn, wire.SubjectList, wire.ListRequest{Limit: -1})
	require.Equal(t, CodeInvalid, CodeOf(err))
}

// What a stream holds can be sent to any subject by whoever may read it. There
// it is no request, no push and no live change, whatever it says.
func TestWhatComesFromAStreamIsRefused(t *testing.T) {
	t.Parallel()
	s := server(t, embed.Options{StoreDir: t.TempDir()})
	c := connectTo(t, s)
	refused := new(refusals)
	service, err := NewService(c.Conn, serviceName, "1.0.0", refused.add)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, service.Stop()) })
	require.NoError(t, Handle(service, "unblock", wire.SubjectUnblock, func(call *Call[wire.UnblockRequest, wire.UnblockReply]) {
		call.Reply(wire.UnblockReply{Lifted: true})
	}))
	pushed := make(chan wire.UnblockRequest, 10)
	require.NoError(t, Subscribe(c.Conn, "push", func(m wire.UnblockRequest) { pushed <- m }, func(err error) { refused.add("push", err) }))
	seen := make(chan StreamMessage, 10)
	watch, err := WatchSubject(c.Conn, "live.>", func(m StreamMessage) { seen <- m })
	require.NoError(t, err)
	defer watch.Stop()
	_, err = EnsureStream(deadline(t), c.Conn, StreamSpec{Name: "EVENTS", Subjects: []string{"events"}, Direct: true})
	require.NoError(t, err)
	require.NoError(t, EnsureDurable(deadline(t), c.Conn, DurableSpec{Stream: "EVENTS", Name: "alerts", AckWait: time.Minute}))
	request := []byte(`{"target":"203.0.113.7"}`)
	for range 3 {
		require.NoError(t, PublishAcked(deadline(t), c.Conn, "events", request, ""))
	}

	for _, to := range []string{wire.SubjectUnblock, "push", "live.x"} {
		require.NoError(t, c.nc.PublishRequest("$JS.API.CONSUMER.MSG.NEXT.EVENTS.alerts", to, []byte(`{"batch":1}`)))
		require.NoError(t, c.nc.PublishRequest("$JS.API.DIRECT.GET.EVENTS", to, []byte(`{"last_by_subj":"events"}`)))
	}
	require.Eventually(t, func() bool { return len(refused.all()) == 4 }, 20*time.Second, time.Millisecond)
	require.Eventually(t, func() bool { return strings.Contains(c.log.String(), "forged") }, 20*time.Second, time.Millisecond)

	// The same from whoever may write there.
	reply, err := Request[wire.UnblockRequest, wire.UnblockReply](deadline(t), c.Conn, wire.SubjectUnblock, wire.UnblockRequest{Target: "203.0.113.7"})
	require.NoError(t, err)
	require.True(t, reply.Lifted)
	require.NoError(t, c.nc.Publish("push", request))
	require.NoError(t, c.nc.Publish("live.x", request))
	require.Equal(t, "203.0.113.7", (<-pushed).Target)
	require.Equal(t, request, (<-seen).Data)
	require.Empty(t, pushed)
	require.Empty(t, seen)
	require.Len(t, refused.all(), 4)
}
