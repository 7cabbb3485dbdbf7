package bus

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/pkg/bus/embed"
	"github.com/ccnq/ccnq/pkg/wire"
)

func TestRequestAndReply(t *testing.T) {
	t.Parallel()
	s := server(t, embed.Options{})
	before := time.Now()
	calls := make(chan *Call[wire.CancelRequest, wire.CancelReply], 1)
	serve(t, connectTo(t, s), func(call *Call[wire.CancelRequest, wire.CancelReply]) {
		calls <- call
		pending(call)
	})
	was, err := ask(deadline(t), connectTo(t, s))
	require.NoError(t, err)
	require.Equal(t, wire.WasPending, was)
	call := <-calls
	require.Equal(t, edgeID, call.Edge)
	require.Equal(t, "g", call.Request.Bucket.Key)
	require.False(t, call.Received.Before(before))
}

func TestRequestWithInboxPrefix(t *testing.T) {
	t.Parallel()
	s := server(t, embed.Options{})
	serve(t, connectTo(t, s), pending)
	watcher, err := nats.Connect("", nats.InProcessServer(s.InProcess()))
	require.NoError(t, err)
	defer watcher.Close()
	replies, err := watcher.SubscribeSync(wire.InboxPrefix(edgeID) + ".>")
	require.NoError(t, err)
	require.NoError(t, watcher.Flush())
	_, err = ask(deadline(t), connect(t, Options{InProcess: s.InProcess(), InboxPrefix: wire.InboxPrefix(edgeID)}))
	require.NoError(t, err)
	_, err = replies.NextMsgWithContext(deadline(t))
	require.NoError(t, err)
}

func TestNobodyAnswers(t *testing.T) {
	t.Parallel()
	_, err := ask(deadline(t), connectTo(t, server(t, embed.Options{})))
	require.ErrorIs(t, err, ErrNoResponders)
	require.ErrorContains(t, err, "ccnq.v1.queue.cancel.edge-1")
}

func TestNoReplyInTime(t *testing.T) {
	t.Parallel()
	s := server(t, embed.Options{})
	release := make(chan struct{})
	serve(t, connectTo(t, s), func(call *Call[wire.CancelRequest, wire.CancelReply]) {
		go func() { <-release; pending(call) }()
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err := ask(ctx, connectTo(t, s))
	require.ErrorIs(t, err, ErrTimeout)
	ctx, cancel = context.WithCancel(t.Context())
	cancel()
	_, err = ask(ctx, connectTo(t, s))
	require.ErrorIs(t, err, context.Canceled)
	close(release)
}

func TestRemoteErrors(t *testing.T) {
	t.Parallel()
	for _, code := range []Code{CodeInvalid, CodeExpired, CodeBusy, CodeUnavailable} {
		t.Run(string(code), func(t *testing.T) {
			t.Parallel()
			s := server(t, embed.Options{})
			serve(t, connectTo(t, s), func(call *Call[wire.CancelRequest, wire.CancelReply]) {
				call.Fail(code, "two\r\nlines: \x00 of it")
			})
			_, err := ask(deadline(t), connectTo(t, s))
			require.Equal(t, code, CodeOf(err))
			require.ErrorContains(t, err, string(code)+": two lines:")
		})
	}
	require.Empty(t, CodeOf(ErrTimeout))
	require.Empty(t, CodeOf(nil))
}

func TestInvalidMessagesAreRefused(t *testing.T) {
	t.Parallel()
	s := server(t, embed.Options{})
	var handled atomic.Int64
	_, refused := serve(t, connectTo(t, s), func(call *Call[wire.CancelRequest, wire.CancelReply]) {
		handled.Add(1)
		pending(call)
	})
	raw, err := nats.Connect("", nats.InProcessServer(s.InProcess()))
	require.NoError(t, err)
	defer raw.Close()
	good := `{"request_id":"01900000-0000-7000-8000-000000000001","bucket":{"kind":"group","key":"g"}}`
	for _, bad := range []struct{ subject, data string }{
		{"ccnq.v1.queue.cancel.edge-1", ``},
		{"ccnq.v1.queue.cancel.edge-1", `{`},
		{"ccnq.v1.queue.cancel.edge-1", `null`},
		{"ccnq.v1.queue.cancel.edge-1", `[]`},
		{"ccnq.v1.queue.cancel.edge-1", good + good},
		{"ccnq.v1.queue.cancel.edge-1", strings.Replace(good, "group", "class", 1)},
		{"ccnq.v1.queue.cancel.edge-1", "\xff\xfe"},
		{"ccnq.v1.queue.cancel.edge@1", good},
		{"ccnq.v1.queue.cancel." + strings.Repeat("e", 65), good},
	} {
		msg, err := raw.RequestWithContext(deadline(t), bad.subject, []byte(bad.data))
		require.NoError(t, err)
		require.Equal(t, "invalid", msg.Header.Get("Nats-Service-Error-Code"), "%s %s", bad.subject, bad.data)
	}
	require.Len(t, refused.all(), 9)
	require.Zero(t, handled.Load())
	msg, err := raw.RequestWithContext(deadline(t), "ccnq.v1.queue.cancel.edge-1", []byte(good))
	require.NoError(t, err)
	require.JSONEq(t, `{"was":"pending"}`, string(msg.Data))
	require.NoError(t, raw.Publish("ccnq.v1.queue.cancel.edge-1", []byte(good)), "nobody waits for this one")
	_, err = ask(deadline(t), connectTo(t, s))
	require.NoError(t, err)
}

func TestInvalidReplyIsAnError(t *testing.T) {
	t.Parallel()
	s := server(t, embed.Options{})
	raw, err := nats.Connect("", nats.InProcessServer(s.InProcess()))
	require.NoError(t, err)
	defer raw.Close()
	_, err = raw.Subscribe(wire.SubjectCancel, func(m *nats.Msg) { _ = m.Respond([]byte(`{"was":"eaten"}`)) })
	require.NoError(t, err)
	require.NoError(t, raw.Flush())
	_, err = ask(deadline(t), connectTo(t, s))
	require.ErrorIs(t, err, wire.ErrInvalid)
	require.ErrorContains(t, err, `"eaten"`)
}

func TestServicesShareTheWork(t *testing.T) {
	t.Parallel()
	s := server(t, embed.Options{})
	var first, second atomic.Int64
	count := func(n *atomic.Int64) func(*Call[wire.CancelRequest, wire.CancelReply]) {
		return func(call *Call[wire.CancelRequest, wire.CancelReply]) { n.Add(1); pending(call) }
	}
	serve(t, connectTo(t, s), count(&first))
	serve(t, connectTo(t, s), count(&second))
	c := connectTo(t, s)
	for range 200 {
		_, err := ask(deadline(t), c)
		require.NoError(t, err)
	}
	require.EqualValues(t, 200, first.Load()+second.Load(), "each request is answered by one")
	require.Positive(t, first.Load())
	require.Positive(t, second.Load())
}

func TestPublishAndSubscribe(t *testing.T) {
	t.Parallel()
	s := server(t, embed.Options{})
	c := connectTo(t, s)
	subject := wire.EdgeSubject(wire.SubjectPromoted, edgeID)
	got, refused := make(chan wire.Promoted, 10), make(chan error, 10)
	require.NoError(t, Subscribe(c.Conn, subject, func(m wire.Promoted) { got <- m }, func(err error) { refused <- err }))
	require.NoError(t, c.Ping(deadline(t)))
	sender := connectTo(t, s)
	for i := range byte(3) {
		require.NoError(t, Publish(sender.Conn, subject, wire.Promoted{RequestIDs: []wire.RequestID{{15: i + 1}}}))
	}
	for i := range byte(3) {
		require.Equal(t, []wire.RequestID{{15: i + 1}}, (<-got).RequestIDs)
	}
	raw, err := nats.Connect("", nats.InProcessServer(s.InProcess()))
	require.NoError(t, err)
	defer raw.Close()
	require.NoError(t, raw.Publish(subject, []byte("nonsense")))
	err = <-refused
	require.ErrorIs(t, err, wire.ErrInvalid)
	require.ErrorContains(t, err, subject)
}

// A user has reply subjects of its own, unless its name cannot be part of one.
func TestInboxPrefixIsTheUsers(t *testing.T) {
	t.Parallel()
	file := func(text string) string {
		name := filepath.Join(t.TempDir(), "user")
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
		return name
	}
	for name, test := range map[string]struct {
		opts Options
		want string
	}{
		"nothing":   {Options{}, "_INBOX."},
		"user":      {Options{UserFile: file("denylist\n")}, "_INBOX_denylist."},
		"odd user":  {Options{UserFile: file("a.b>")}, "_INBOX."},
		"both":      {Options{UserFile: file("denylist"), InboxPrefix: "_INBOX_edge-1"}, "_INBOX_edge-1."},
		"no secret": {Options{TokenFile: file("secret")}, "_INBOX."},
	} {
		if test.opts.UserFile != "" {
			test.opts.PasswordFile = file("secret")
		}
		c := connect(t, test.opts)
		require.True(t, strings.HasPrefix(c.nc.NewInbox(), test.want), "%s: %s", name, c.nc.NewInbox())
	}
}
