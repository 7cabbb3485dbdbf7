package security

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/pkg/bus"
	"github.com/ccnq/ccnq/pkg/testdb"
	"github.com/ccnq/ccnq/pkg/wire"
	"github.com/ccnq/ccnq/tests/internal/await"
	"github.com/ccnq/ccnq/tests/internal/cluster"
	"github.com/ccnq/ccnq/tests/internal/origin"
	"github.com/ccnq/ccnq/tests/internal/visitor"
)

const (
	// alice and bob are of one network, mallory of another.
	alice, bob, mallory = "203.0.113.7", "203.0.113.200", "198.51.100.66"
	// eve is blocked by the operator.
	eve = "192.0.2.99"
)

// site is a whole ccnq on a broker, with a block in force.
func site(t *testing.T, b *broker, user func(string) cluster.Settings) *cluster.Cluster {
	t.Helper()
	return start(t, b, cluster.Options{User: user}, nil)
}

// siteOn is a site with shared users on a database of its own.
func siteOn(t *testing.T, b *broker, db testdb.DB, more cluster.Settings) *cluster.Cluster {
	t.Helper()
	return start(t, b, cluster.Options{User: b.sharedUsers, DB: db}, more)
}

func start(t *testing.T, b *broker, o cluster.Options, more cluster.Settings) *cluster.Cluster {
	t.Helper()
	// The caches hear of purges, and store nothing of what the tests ask for.
	nothing := filepath.Join(t.TempDir(), "cache.json")
	require.NoError(t, os.WriteFile(nothing, []byte(`[[{"target": "path", "matchType": "startsWith", "value": "/stored/"}]]`), 0o600))
	c := cluster.New(t, cluster.Options{
		Edges: 2, Coordinators: 2, Denylist: true, NATS: b.url, User: o.User, DB: o.DB,
		Settings: cluster.Settings{
			"CCNQ_QUEUE_MAX_SERVED_PER_GROUP": "1", "CCNQ_QUEUE_MAX_PENDING_PER_GROUP": "1",
			"CCNQ_QUEUE_DENYLIST_DAILY_THRESHOLD": "2", "CCNQ_QUEUE_DENYLIST_EXCEED_THRESHOLD": "1",
			"CCNQ_CACHE_ENABLED": "true", "CCNQ_CACHE_RULES_FILE": nothing,
		}.With(more),
	})
	for _, e := range c.Edges {
		e.Decides(t)
	}
	block(t, b.connect(t, "operator"), eve)
	blocked(t, c, eve)
	return c
}

func ask[Req, Resp wire.Message](t *testing.T, conn *bus.Conn, subject string, req Req) (Resp, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), await.Limit)
	defer cancel()
	return bus.Request[Req, Resp](ctx, conn, subject, req)
}

// blocked waits until every edge refuses an address for a block. A refusal of
// the queue has Retry-After 5.
func blocked(t *testing.T, c *cluster.Cluster, ip string) {
	t.Helper()
	for _, e := range c.Edges {
		await.True(t, ip+" is blocked at "+e.ID, func() bool {
			a := c.Get(t, visitor.Request{Edge: e.URL, IP: ip})
			return a.Status == http.StatusTooManyRequests && a.Header.Get("Retry-After") != "5"
		})
	}
}

// works takes ccnq through all that it does over NATS.
func works(t *testing.T, b *broker, c *cluster.Cluster) {
	t.Helper()
	events := b.steal(t, "alerts").listens("ccnq.v1.events.>")

	watched := make(chan string, 1000)
	watch, err := bus.WatchSubject(b.connect(t, "operator"), "ccnq.v1.events.denied.>", func(m bus.StreamMessage) { watched <- string(m.Data) })
	require.NoError(t, err)
	defer watch.Stop()

	// One is served, one waits at the other edge and is promoted by a push, one
	// is refused.
	held := c.Send(t.Context(), visitor.Request{Edge: c.Edges[0].URL, IP: alice, Do: origin.DoHold})
	arrival := c.Origin.Next(t)
	waiting := c.Send(t.Context(), visitor.Request{Edge: c.Edges[1].URL, IP: alice})
	c.Waiting(t, 1)
	for range 2 {
		require.Equal(t, http.StatusTooManyRequests, c.Get(t, visitor.Request{Edge: c.Edges[0].URL, IP: bob}).Status)
	}
	arrival.Release()
	require.Equal(t, http.StatusOK, held.Answer(t).Status)
	require.Equal(t, http.StatusOK, waiting.Answer(t).Status)
	c.NothingLeft(t)

	// Two denials make a block, which every edge hears of. Who watches sees both,
	// and so does an operator.
	require.Contains(t, until(t, events, "ccnq.v1.events.denied.queue-full.edge-1"), bob)
	require.Contains(t, await.Value(t, "an event at the operator's", watched), bob)
	blocked(t, c, bob)
	require.Contains(t, until(t, events, "ccnq.v1.events.blocked.ip"), bob)

	// So does the durable consumer, which begins before the first event.
	js, err := jetstream.New(b.steal(t, "alerts").withInbox("_INBOX_alerts"))
	require.NoError(t, err)
	consumer, err := js.Consumer(t.Context(), wire.StreamEvents, "alerts")
	require.NoError(t, err)
	for found := false; !found; {
		msg, err := consumer.Next(jetstream.FetchMaxWait(await.Limit))
		require.NoError(t, err)
		require.NoError(t, msg.DoubleAck(t.Context()))
		found = strings.HasPrefix(msg.Subject(), "ccnq.v1.events.blocked.") && strings.Contains(string(msg.Data()), bob)
	}

	// The operator lifts it, and sees the past.
	operator := b.connect(t, "operator")
	lifted, err := ask[wire.UnblockRequest, wire.UnblockReply](t, operator, wire.SubjectUnblock, wire.UnblockRequest{Target: bob, By: "mira"})
	require.NoError(t, err)
	require.True(t, lifted.Lifted)
	for _, e := range c.Edges {
		await.True(t, "bob passes", func() bool {
			return c.Get(t, visitor.Request{Edge: e.URL, IP: bob}).Status == http.StatusOK
		})
	}
	page, err := bus.DirectGetPage(t.Context(), operator, wire.StreamEvents, 1, 100, "ccnq.v1.events.denied.>")
	require.NoError(t, err)
	require.NotEmpty(t, page.Messages)

	// The operator purges the caches; every edge answers, and keeps its place in
	// the stream.
	ctx, cancel := context.WithTimeout(t.Context(), await.Limit)
	defer cancel()
	purged, err := bus.Gather[wire.PurgeRequest, wire.PurgeReply](ctx, operator, wire.SubjectPurge, wire.SubjectPurged, wire.PurgeRequest{
		ID: "p1", Targets: []wire.PurgeTarget{{Scope: wire.PurgeHost, Target: "example.org"}},
	}, 5*time.Second)
	require.NoError(t, err)
	require.True(t, purged.Stored)
	require.Len(t, purged.Replies, len(c.Edges))
	for _, e := range c.Edges {
		require.Contains(t, purged.Replies, e.ID)
		await.True(t, e.ID+" has read the stream", func() bool {
			place, err := os.ReadFile(filepath.Join(e.CacheDir, "purges.json"))
			return err == nil && strings.Contains(string(place), `"seq":1`)
		})
	}
}

// purges requires that both edges answer an operator who purges, and that they
// can read what they may have missed.
func purges(t *testing.T, b *broker) {
	t.Helper()
	operator := b.connect(t, "operator")
	n := 0
	await.True(t, "both edges answer a purge", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), await.Limit)
		defer cancel()
		n++
		all, err := bus.Gather[wire.PurgeRequest, wire.PurgeReply](ctx, operator, wire.SubjectPurge, wire.SubjectPurged, wire.PurgeRequest{
			ID: fmt.Sprintf("purge-%d", n), Targets: []wire.PurgeTarget{{Scope: wire.PurgeHost, Target: "site.example"}},
		}, 200*time.Millisecond)
		require.NoError(t, err)
		return all.Stored && len(all.Replies) == 2
	})
}

// withInbox is the same credential with the reply subjects of its user.
func (th *thief) withInbox(prefix string) *nats.Conn {
	th.t.Helper()
	opts := th.nc.Opts
	opts.InboxPrefix = prefix
	nc, err := opts.Connect()
	require.NoError(th.t, err)
	th.t.Cleanup(nc.Close)
	return nc
}

// until returns the first message on a subject.
func until(t *testing.T, sub *nats.Subscription, subject string) string {
	t.Helper()
	for {
		msg, err := sub.NextMsg(await.Limit)
		require.NoError(t, err)
		if msg.Subject == subject && !strings.Contains(string(msg.Data), eve) {
			return string(msg.Data)
		}
	}
}

// forbiddenToEdges are messages that no edge may send.
var forbiddenToEdges = []string{
	// blocks, and words in the denylist service's or an operator's name
	"$KV.CCNQ_BLOCKS.ip.192-0-2-99", "$KV.CCNQ_BLOCKS.mark", "$KV.OTHER.key",
	"ccnq.v1.denylist.block", "ccnq.v1.denylist.unblock", "ccnq.v1.denylist.list",
	"ccnq.v1.denylist.explain", "ccnq.v1.denylist.rebuild", "ccnq.v1.cache.purge",
	"ccnq.v1.events.blocked.ip", "ccnq.v1.events.unblocked.ip", "ccnq.v1.events.stream-reset",
	// a coordinator's
	"ccnq.v1.edge.edge-2.promoted",
	// streams and consumers
	"$JS.API.INFO", "$JS.API.STREAM.CREATE.MINE", "$JS.API.STREAM.UPDATE.CCNQ_EVENTS", "$JS.API.STREAM.DELETE.CCNQ_EVENTS",
	"$JS.API.STREAM.CREATE.CCNQ_PURGES", "$JS.API.STREAM.DELETE.CCNQ_PURGES", "$JS.API.STREAM.PURGE.CCNQ_PURGES",
	"$JS.API.STREAM.DELETE.KV_CCNQ_BLOCKS", "$JS.API.STREAM.PURGE.KV_CCNQ_BLOCKS", "$JS.API.STREAM.PURGE.CCNQ_EVENTS",
	"$JS.API.STREAM.MSG.DELETE.KV_CCNQ_BLOCKS", "$JS.API.STREAM.MSG.GET.KV_CCNQ_BLOCKS", "$JS.API.STREAM.INFO.CCNQ_EVENTS",
	"$JS.API.STREAM.RESTORE.KV_CCNQ_BLOCKS", "$JS.API.STREAM.SNAPSHOT.CCNQ_EVENTS",
	"$JS.API.CONSUMER.CREATE.KV_CCNQ_BLOCKS", "$JS.API.CONSUMER.CREATE.CCNQ_EVENTS.mine", "$JS.API.CONSUMER.CREATE.CCNQ_EVENTS.mine.>",
	"$JS.API.CONSUMER.DURABLE.CREATE.CCNQ_EVENTS.mine", "$JS.API.CONSUMER.DELETE.CCNQ_EVENTS.alerts",
	"$JS.API.CONSUMER.MSG.NEXT.CCNQ_EVENTS.alerts", "$JS.ACK.CCNQ_EVENTS.alerts.1.1.1.1.1",
	"$JS.API.DIRECT.GET.CCNQ_EVENTS", "$JS.API.DIRECT.GET.CCNQ_REFUSALS",
	"$SRV.PING", "_INBOX_operator.x.y",
}

// secretFromEdges are subscriptions that no edge may have.
var secretFromEdges = []string{
	">", "*.>", "*.*", "*.*.*", "*.*.>", "ccnq.>", "ccnq.*.>", "ccnq.v1.queue.>", "ccnq.v1.queue.admit.*", "ccnq.v1.queue.admit.*.*", "ccnq.v1.denylist.*", "ccnq.v1.events.>",
	"_INBOX.>", "_INBOX_operator.>", "_INBOX_denylist.x.*", "_INBOX_coordinator.*.*", "_INBOX_alerts.>",
	"$JS.>", "$JS.API.>", "$SRV.>", "$KV.>",
}

func TestNATS_SharedUser(t *testing.T) {
	t.Parallel()
	b := startBroker(t, shared, nil)
	c := site(t, b, b.sharedUsers)
	works(t, b, c)
	purges(t, b)
	edge := &thief{t: t, nc: b.steal(t, "edge").withInbox("_INBOX_edge")}
	info, err := edge.nc.Request("$JS.API.STREAM.INFO.CCNQ_PURGES", nil, await.Limit)
	require.NoError(t, err)
	require.Contains(t, string(info.Data), `"created"`)
	th := b.steal(t, "edge")
	for _, subject := range forbiddenToEdges {
		th.cannotPublish(subject, `{"target":"192.0.2.99","stream_name":"CCNQ_EVENTS"}`)
	}
	for _, subject := range secretFromEdges {
		th.cannotSubscribe(subject)
	}
	blocked(t, c, eve)
}

func TestNATS_OneUserPerEdge(t *testing.T) {
	t.Parallel()
	b := startBroker(t, perEdge, nil)
	c := site(t, b, b.ownUsers)
	works(t, b, c)
	held := c.Send(t.Context(), visitor.Request{Edge: c.Edges[1].URL, IP: alice, Do: origin.DoHold})
	arrival := c.Origin.Next(t)

	th := b.steal(t, "edge-1")
	for _, subject := range append([]string{
		"ccnq.v1.queue.admit.edge-2.x", "ccnq.v1.queue.release.edge-2.x",
		"ccnq.v1.queue.admit.edge-2", "ccnq.v1.queue.cancel.edge-2", "ccnq.v1.queue.release.edge-2", "ccnq.v1.queue.status.edge-2",
		"ccnq.v1.events.denied.queue-full.edge-2", "ccnq.v1.events.would-deny.queue-full.edge-2",
		"_INBOX_edge-2.x.y", "ccnq.v1.edge.edge-1.promoted", "ccnq.v1.cache.purged.x.edge-2",
	}, forbiddenToEdges...) {
		th.cannotPublish(subject, `{"target":"192.0.2.99"}`)
	}
	for _, subject := range append([]string{
		"ccnq.v1.edge.edge-2.promoted", "ccnq.v1.edge.*.promoted", "_INBOX_edge-2.>", "_INBOX_edge.>",
	}, secretFromEdges...) {
		th.cannotSubscribe(subject)
	}
	// Under its own name it can ask for anything, and frees no place of another.
	c.Active(t, 1)
	items := []wire.Item{c.Held(t, "edge-2")}
	_, err := ask[wire.ReleaseRequest, wire.ReleaseReply](t, b.connect(t, "edge-1"),
		wire.EdgeSubject(wire.SubjectRelease, "edge-1"), wire.ReleaseRequest{Items: items})
	require.NoError(t, err, "what it does not hold is released already")
	c.Active(t, 1)
	arrival.Release()
	require.Equal(t, http.StatusOK, held.Answer(t).Status)
	blocked(t, c, eve)
}

// A request can name any subject for its answer. What the coordinators and NATS
// itself send there must do no harm, also with the one user that edges share.
func TestNATS_AnswersSentElsewhere(t *testing.T) {
	t.Parallel()
	b := startBroker(t, shared, nil)
	c := site(t, b, b.sharedUsers)
	operator := b.connect(t, "operator")
	held := c.Send(t.Context(), visitor.Request{Edge: c.Edges[1].URL, IP: alice, Do: origin.DoHold})
	arrival := c.Origin.Next(t)
	// A block that is over, and newer than that of eve.
	block(t, operator, bob)
	_, err := ask[wire.UnblockRequest, wire.UnblockReply](t, operator, wire.SubjectUnblock, wire.UnblockRequest{Target: bob})
	require.NoError(t, err)
	const eveKey, bobKey = "$KV.CCNQ_BLOCKS.ip.192-0-2-99", "$KV.CCNQ_BLOCKS.ip.203-0-113-200"
	read := func(key string) bus.StreamMessage {
		m, err := bus.DirectGetLast(t.Context(), operator, wire.StreamBlocks, key)
		require.NoError(t, err)
		return m
	}
	await.True(t, "the lift is in the bucket", func() bool {
		value, err := wire.Decode[wire.Block](read(bobKey).Data)
		return err == nil && value.BlockedUntil.Before(time.Now())
	})
	before := read(eveKey)

	nc := b.steal(t, "edge").withInbox("_INBOX_edge")
	bucket := wire.Bucket{Kind: wire.KindGroup, Key: mallory + "/32"}
	admit, err := json.Marshal(wire.AdmitRequest{RequestID: wire.RequestID{15: 1}, Bucket: bucket, BudgetMS: 1000})
	require.NoError(t, err)
	for _, reply := range []string{
		eveKey, "$KV.CCNQ_BLOCKS.mark", "ccnq.v1.queue.release.edge-2", "ccnq.v1.queue.status.edge-2",
		"ccnq.v1.edge.edge-2.promoted", "ccnq.v1.denylist.unblock", "ccnq.v1.events.unblocked.ip", "ccnq.v1.qos.lists.mark",
	} {
		require.NoError(t, nc.PublishRequest("ccnq.v1.queue.admit.edge-1", reply, admit))
		require.NoError(t, nc.PublishRequest("ccnq.v1.events.denied.queue-full.edge-1", reply, []byte(`{"target":"`+eve+`"}`)))
		for _, key := range []string{bobKey, "$KV.CCNQ_BLOCKS.mark"} {
			require.NoError(t, nc.PublishRequest("$JS.API.DIRECT.GET.KV_CCNQ_BLOCKS", reply, []byte(`{"last_by_subj":"`+key+`"}`)))
		}
	}
	// Answers come in order, so these are the last ones.
	for subject, request := range map[string]string{
		"ccnq.v1.queue.admit.edge-1":              string(admit),
		"ccnq.v1.events.denied.queue-full.edge-1": "{}",
		"$JS.API.DIRECT.GET.KV_CCNQ_BLOCKS":       `{"last_by_subj":"$KV.CCNQ_BLOCKS.mark"}`,
	} {
		_, err := nc.Request(subject, []byte(request), await.Limit)
		require.NoError(t, err, subject)
	}
	block(t, operator, mallory) // every edge hears of that after all the rest
	blocked(t, c, mallory)

	require.Equal(t, before, read(eveKey), "the bucket has what the service wrote")
	for _, e := range c.Edges {
		a := c.Get(t, visitor.Request{Edge: e.URL, IP: eve})
		require.Equal(t, http.StatusTooManyRequests, a.Status, "eve is blocked at %s", e.ID)
		require.NotEqual(t, "5", a.Header.Get("Retry-After"))
	}
	release, err := json.Marshal(wire.ReleaseRequest{Items: []wire.Item{{RequestID: wire.RequestID{15: 1}, Bucket: bucket}}})
	require.NoError(t, err)
	require.NoError(t, nc.Publish("ccnq.v1.queue.release.edge-1", release))
	c.Active(t, 1)
	require.Equal(t, 1, c.Origin.Now(visitor.Group(alice)), "alice has her place")
	arrival.Release()
	require.Equal(t, http.StatusOK, held.Answer(t).Status)
}

// block blocks an address as an operator does.
func block(t *testing.T, operator *bus.Conn, ip string) {
	t.Helper()
	reply, err := ask[wire.BlockRequest, wire.BlockReply](t, operator, wire.SubjectBlock,
		wire.BlockRequest{Target: ip, Seconds: int64(hour / time.Second), By: "mira"})
	require.NoError(t, err)
	require.Positive(t, reply.Version)
}

// Everybody but the edges, with what each of them may not do.
func TestNATS_OtherUsers(t *testing.T) {
	t.Parallel()
	b := startBroker(t, shared, nil)
	c := site(t, b, b.sharedUsers)
	for user, forbidden := range map[string][2][]string{
		"coordinator": {
			{"$KV.CCNQ_BLOCKS.ip.192-0-2-99", "ccnq.v1.denylist.unblock", "ccnq.v1.events.denied.queue-full.edge-1", "ccnq.v1.queue.release.edge-1",
				"$JS.API.STREAM.CREATE.MINE", "$JS.API.CONSUMER.CREATE.CCNQ_EVENTS", "$JS.API.DIRECT.GET.CCNQ_EVENTS", "$JS.API.INFO"},
			{">", "*.*.*", "ccnq.v1.events.>", "ccnq.v1.edge.*.promoted", "ccnq.v1.denylist.*", "$KV.>", "_INBOX_denylist.>"},
		},
		"denylist": {
			{"$JS.API.STREAM.DELETE.CCNQ_EVENTS", "$JS.API.STREAM.PURGE.CCNQ_EVENTS", "$JS.API.STREAM.MSG.DELETE.CCNQ_EVENTS",
				"ccnq.v1.events.denied.queue-full.edge-1", "ccnq.v1.queue.release.edge-1", "ccnq.v1.edge.edge-1.promoted", "ccnq.v1.denylist.unblock"},
			{">", "*.*.*", "ccnq.v1.queue.>", "ccnq.v1.edge.*.promoted", "_INBOX_coordinator.>"},
		},
		"alerts": {
			{"$KV.CCNQ_BLOCKS.ip.192-0-2-99", "ccnq.v1.denylist.unblock", "ccnq.v1.denylist.list", "ccnq.v1.events.blocked.ip",
				"ccnq.v1.events.denied.queue-full.edge-1", "ccnq.v1.queue.release.edge-1",
				"$JS.API.CONSUMER.CREATE.CCNQ_EVENTS.mine", "$JS.API.CONSUMER.DELETE.CCNQ_EVENTS.alerts", "$JS.API.STREAM.DELETE.CCNQ_EVENTS",
				"$JS.API.DIRECT.GET.CCNQ_EVENTS", "$JS.API.DIRECT.GET.KV_CCNQ_BLOCKS"},
			{">", "*.*.*", "ccnq.>", "ccnq.v1.queue.>", "ccnq.v1.denylist.*", "$KV.CCNQ_BLOCKS.>", "_INBOX_operator.>"},
		},
		"operator": {
			{"$KV.CCNQ_BLOCKS.ip.192-0-2-99", "ccnq.v1.events.blocked.ip", "ccnq.v1.queue.release.edge-1", "ccnq.v1.edge.edge-1.promoted",
				"$JS.API.DIRECT.GET.CCNQ_PURGES", "$JS.API.STREAM.PURGE.CCNQ_PURGES",
				"$JS.API.STREAM.DELETE.CCNQ_EVENTS", "$JS.API.STREAM.PURGE.CCNQ_EVENTS", "$JS.API.CONSUMER.CREATE.CCNQ_EVENTS"},
			{">", "*.*.*", "ccnq.v1.queue.>", "ccnq.v1.denylist.*", "_INBOX_denylist.>"},
		},
	} {
		th := b.steal(t, user)
		for _, subject := range forbidden[0] {
			th.cannotPublish(subject, `{"target":"192.0.2.99"}`)
		}
		for _, subject := range forbidden[1] {
			th.cannotSubscribe(subject)
		}
	}
	blocked(t, c, eve)
}

func TestNATS_StrangersStayOutside(t *testing.T) {
	t.Parallel()
	b := startBroker(t, shared, nil)
	for _, opts := range [][]nats.Option{
		nil,
		{nats.UserInfo("edge", "wrong")},
		{nats.UserInfo("edge-1", "password of edge-1")},
		{nats.UserInfo("operator", "")},
		{nats.Token("password of operator")},
	} {
		_, err := nats.Connect(b.url, opts...)
		require.ErrorIs(t, err, nats.ErrAuthorization)
	}
}
