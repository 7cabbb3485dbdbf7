package denylist

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/pkg/bus"
	"github.com/ccnq/ccnq/pkg/bus/embed"
	"github.com/ccnq/ccnq/pkg/config"
	"github.com/ccnq/ccnq/pkg/testdb"
	"github.com/ccnq/ccnq/pkg/testport"
	"github.com/ccnq/ccnq/pkg/wire"
)

// patience bounds every wait for something that must happen.
const patience = 60 * time.Second

// tick is how often tests look whether it has.
const tick = 20 * time.Millisecond

// site is a NATS server, on an address that stays the same, and who uses it.
type site struct {
	t    testing.TB
	nats *embed.Server
	dir  string
	port int
	conn *bus.Conn // of the test itself
	log  lockedBuffer
}

func newSite(t testing.TB) *site {
	t.Helper()
	s := &site{t: t, port: testport.Reserve(t), dir: t.TempDir()}
	s.startNATS()
	var err error
	s.conn, err = bus.Connect(bus.Options{URL: s.url(), Name: "test", Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(s.conn.Close)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(s.log.String())
		}
	})
	return s
}

func (s *site) url() string { return "nats://127.0.0.1:" + strconv.Itoa(s.port) }

// startNATS starts the server, also again after a stop.
func (s *site) startNATS() {
	require.NoError(s.t, s.restartNATS())
}

// restartNATS is startNATS for goroutines other than the test's.
func (s *site) restartNATS() error {
	server, err := embed.Start(embed.Options{Host: "127.0.0.1", Port: s.port, StoreDir: s.dir})
	if err != nil {
		return err
	}
	s.t.Cleanup(server.Stop)
	s.nats = server
	return nil
}

// loseDisk starts the server again with an empty disk.
func (s *site) loseDisk() {
	s.nats.Stop()
	require.NoError(s.t, os.RemoveAll(s.dir))
	s.startNATS()
}

func (s *site) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	s.t.Cleanup(cancel)
	return ctx
}

// config is a configuration in which an address is blocked at its third denial
// of one day, and a range at its fourth address.
func (s *site) config(environ ...string) Config {
	var c Config
	require.NoError(s.t, config.Load(append([]string{
		"CCNQ_ADMIN_ADDR=127.0.0.1:0", "CCNQ_NATS_URL=" + s.url(), "CCNQ_QUEUE_ENABLED=true",
		"CCNQ_QUEUE_DENYLIST_DAILY_THRESHOLD=3", "CCNQ_QUEUE_DENYLIST_EXCEED_THRESHOLD=1",
		"CCNQ_QUEUE_DENYLIST_RANGE_IP_THRESHOLD=3",
	}, environ...), &c))
	return c
}

// database returns the variables that name a private schema.
func (s *site) database() (environ []string, db testdb.DB) {
	db = testdb.New(s.t)
	at, err := pgx.ParseConfig(db.URL)
	require.NoError(s.t, err)
	return []string{
		"CCNQ_PG_HOST=" + at.Host, "CCNQ_PG_PORT=" + strconv.Itoa(int(at.Port)), "CCNQ_PG_USER=" + at.User,
		"CCNQ_PG_PASSWORD=" + at.Password, "CCNQ_PG_DATABASE=" + at.Database, "CCNQ_PG_SCHEMA=" + db.Schema,
		"CCNQ_PG_SSLMODE=disable",
	}, db
}

// start runs a service until the test ends.
func (s *site) start(cfg Config, deps Deps) *Service {
	deps.Logger = slog.New(slog.NewJSONHandler(&s.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	d := New(cfg, deps)
	require.NoError(s.t, d.Start(s.ctx()))
	s.t.Cleanup(func() { require.NoError(s.t, d.Stop(s.ctx())) })
	return d
}

// ready reports whether a service is ready and leads, or stands by.
func ready(t testing.TB, d *Service) (ok bool, body string) {
	t.Helper()
	response, err := http.Get("http://" + d.Addr().String() + "/readyz")
	require.NoError(t, err)
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	http.DefaultClient.CloseIdleConnections()
	return response.StatusCode == http.StatusOK, string(content)
}

func (s *site) until(what string, is func() bool) {
	s.t.Helper()
	require.Eventually(s.t, is, patience, tick, what)
}

func (s *site) untilReady(d *Service) {
	s.t.Helper()
	s.until("ready", func() bool { ok, _ := ready(s.t, d); return ok })
}

// denial is what an edge reports of one address.
type denial struct {
	ip    string
	count int
	at    time.Time
}

// outbox sends events as an edge does: numbered, each until acknowledged.
type outbox struct {
	*site
	id  string
	seq uint64
}

func (s *site) outbox(id string) *outbox { return &outbox{site: s, id: id} }

// event is the next event.
func (o *outbox) event(denials ...denial) wire.Event[wire.Denied] {
	o.seq++
	data := wire.Denied{OutboxID: o.id, Seq: o.seq, Reason: wire.DeniedQueueFull}
	for _, d := range denials {
		ip := netip.MustParseAddr(d.ip)
		bits := 24
		if ip.Is6() {
			bits = 64
		}
		data.Addresses = append(data.Addresses, wire.DeniedAddress{
			IP: ip, Group: netip.PrefixFrom(ip, bits).Masked(), Count: d.count, First: d.at, Last: d.at, Path: "/p",
		})
	}
	return wire.NewEvent(fmt.Sprintf("%s-%d", o.id, o.seq), wire.EdgeSource("edge-1"), wire.TypeDenied,
		string(data.Reason), time.Now(), data)
}

// send publishes events until each is acknowledged.
func (o *outbox) send(events ...wire.Event[wire.Denied]) {
	for _, event := range events {
		payload, err := json.Marshal(event)
		require.NoError(o.t, err)
		o.until("event acknowledged", func() bool {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			return bus.PublishAcked(ctx, o.conn, denySubject, payload, event.ID) == nil
		})
	}
}

func (o *outbox) deny(denials ...denial) { o.send(o.event(denials...)) }

var denySubject = fmt.Sprintf(wire.SubjectDenied, wire.DeniedQueueFull, "edge-1")

// key returns the value of a block's key, or none.
func (s *site) key(scope wire.Scope, target string) (wire.Block, bool) {
	m, err := bus.DirectGetLast(s.ctx(), s.conn, wire.StreamBlocks, wire.KVSubject(wire.BlockKey(scope, target)))
	if errors.Is(err, bus.ErrNotFound) || errors.Is(err, bus.ErrNoResponders) || errors.Is(err, bus.ErrDisconnected) {
		return wire.Block{}, false
	}
	require.NoError(s.t, err)
	block, err := wire.Decode[wire.Block](m.Data)
	require.NoError(s.t, err)
	return block, true
}

// inForce reports whether the bucket says that a target is blocked.
func (s *site) inForce(scope wire.Scope, target string) bool {
	block, ok := s.key(scope, target)
	return ok && block.BlockedUntil.After(time.Now())
}

// mark returns the mark of the bucket, or none.
func (s *site) mark() (wire.Mark, bool) {
	m, err := bus.DirectGetLast(s.ctx(), s.conn, wire.StreamBlocks, wire.KVSubject(wire.KeyMark))
	if err != nil {
		return wire.Mark{}, false
	}
	mark, err := wire.Decode[wire.Mark](m.Data)
	require.NoError(s.t, err)
	return mark, true
}

// stream returns all messages of the event stream.
func (s *site) stream() []bus.StreamMessage {
	s.until("connected", s.conn.Connected)
	reader, err := bus.OpenReader(s.ctx(), s.conn, wire.StreamEvents, 1)
	require.NoError(s.t, err)
	defer reader.Close(s.ctx())
	var all []bus.StreamMessage
	for reader.Pending() > 0 {
		messages, err := reader.Next(s.ctx(), patience)
		require.NoError(s.t, err)
		all = append(all, messages...)
	}
	return all
}

// changes returns the events about blocks of one type, in order.
func (s *site) changes(typ string) (out []wire.BlockChange) {
	for _, m := range s.stream() {
		var head struct {
			Type string `json:"type"`
		}
		if json.Unmarshal(m.Data, &head) == nil && head.Type == typ {
			event, err := wire.Decode[wire.Event[wire.BlockChange]](m.Data)
			require.NoError(s.t, err)
			out = append(out, event.Data)
		}
	}
	return out
}

func ask[Req, Resp wire.Message](s *site, subject string, req Req) (Resp, error) {
	return bus.Request[Req, Resp](s.ctx(), s.conn, subject, req)
}

func (s *site) block(req wire.BlockRequest) (wire.BlockReply, error) {
	return ask[wire.BlockRequest, wire.BlockReply](s, wire.SubjectBlock, req)
}

func (s *site) unblock(req wire.UnblockRequest) (wire.UnblockReply, error) {
	return ask[wire.UnblockRequest, wire.UnblockReply](s, wire.SubjectUnblock, req)
}

func (s *site) explain(ip string) wire.ExplainReply {
	reply, err := ask[wire.ExplainRequest, wire.ExplainReply](s, wire.SubjectExplain, wire.ExplainRequest{IP: netip.MustParseAddr(ip)})
	require.NoError(s.t, err)
	return reply
}

// lockedBuffer is a log that may be read while it is written.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
