package bus

import (
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

// What a stream holds can be delivered to any subject by whoever may read it.
// Such a message is no request, whatever it says.
func TestServiceRefusesWhatAStreamDelivers(t *testing.T) {
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
	_, err = EnsureStream(deadline(t), c.Conn, StreamSpec{Name: "EVENTS", Subjects: []string{"events"}})
	require.NoError(t, err)
	require.NoError(t, EnsureDurable(deadline(t), c.Conn, DurableSpec{Stream: "EVENTS", Name: "alerts", AckWait: time.Minute}))
	request := []byte(`{"target":"203.0.113.7"}`)
	require.NoError(t, PublishAcked(deadline(t), c.Conn, "events", request, ""))
	require.NoError(t, c.nc.PublishRequest("$JS.API.CONSUMER.MSG.NEXT.EVENTS.alerts", wire.SubjectUnblock, []byte(`{"batch":1}`)))
	require.Eventually(t, func() bool { return len(refused.all()) == 1 }, 20*time.Second, time.Millisecond)
	require.Contains(t, refused.all()[0], "events: ")

	reply, err := Request[wire.UnblockRequest, wire.UnblockReply](deadline(t), c.Conn, wire.SubjectUnblock, wire.UnblockRequest{Target: "203.0.113.7"})
	require.NoError(t, err)
	require.True(t, reply.Lifted)
	require.Len(t, refused.all(), 1)
}
