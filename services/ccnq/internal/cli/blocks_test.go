package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/pkg/bus"
	"github.com/ccnq/ccnq/pkg/bus/embed"
	"github.com/ccnq/ccnq/pkg/wire"
)

const token = "0123456789abcdef0123456789abcdef"

// patience bounds every wait for something that must happen.
const patience = 90 * time.Second

// natsServer runs NATS as the standalone program does, and points the
// environment to it. So tests that use it do not run in parallel.
func natsServer(t *testing.T) *bus.Conn {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, standaloneToken), []byte(token), 0o600))
	server, err := embed.Start(embed.Options{Host: "127.0.0.1", Port: -1, Token: token, StoreDir: filepath.Join(dir, "nats")})
	require.NoError(t, err)
	t.Cleanup(server.Stop)
	t.Setenv("CCNQ_NATS_URL", server.ClientURL())
	t.Setenv("CCNQ_DATA_DIR", dir)
	conn, err := bus.Connect(bus.Options{
		URL: server.ClientURL(), TokenFile: filepath.Join(dir, standaloneToken), Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	require.Eventually(t, conn.Connected, patience, 10*time.Millisecond)
	return conn
}

// denylist answers like the service, from what the test has put into it.
type denylist struct {
	t        *testing.T
	mu       sync.Mutex
	requests []any
	block    wire.BlockReply
	unblock  wire.UnblockReply
	pages    map[string]wire.ListReply // by After
	explain  wire.ExplainReply
	refuse   *bus.RemoteError
}

func startDenylist(t *testing.T, conn *bus.Conn) *denylist {
	t.Helper()
	d := &denylist{t: t, pages: map[string]wire.ListReply{}}
	s, err := bus.NewService(conn, "ccnq-denylist", "1.0.0", func(string, error) {})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Stop()) })
	answer(d, s, wire.SubjectBlock, func(wire.BlockRequest) wire.BlockReply { return d.block })
	answer(d, s, wire.SubjectUnblock, func(wire.UnblockRequest) wire.UnblockReply { return d.unblock })
	answer(d, s, wire.SubjectList, func(r wire.ListRequest) wire.ListReply { return d.pages[r.After] })
	answer(d, s, wire.SubjectExplain, func(wire.ExplainRequest) wire.ExplainReply { return d.explain })
	answer(d, s, wire.SubjectRebuild, func(wire.RebuildRequest) wire.RebuildReply { return wire.RebuildReply{Events: 7} })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, conn.Ping(ctx))
	return d
}

func answer[Req, Resp wire.Message](d *denylist, s *bus.Service, subject string, reply func(Req) Resp) {
	name := subject[strings.LastIndexByte(subject, '.')+1:]
	require.NoError(d.t, bus.Handle(s, name, subject, func(call *bus.Call[Req, Resp]) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.requests = append(d.requests, call.Request)
		if d.refuse != nil {
			call.Fail(d.refuse.Code, d.refuse.Message)
			return
		}
		call.Reply(reply(call.Request))
	}))
}

// last returns the last request.
func (d *denylist) last() any {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.requests[len(d.requests)-1]
}

// command runs one command line.
func command(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = Run(t.Context(), "test", args, &out, &errs)
	return code, out.String(), errs.String()
}

func TestBlocksAdd(t *testing.T) {
	d := startDenylist(t, natsServer(t))
	d.block = wire.BlockReply{
		Scope: wire.ScopeIP, Target: "203.0.113.7", BlockedUntil: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC), Version: 1,
		Warning: "the queue is off",
	}
	code, stdout, stderr := command(t, "blocks", "add", "203.0.113.7", "--for", "1d12h", "--reason", "r", "--by", "me")
	require.Equal(t, exitOK, code, stderr)
	require.Equal(t, "203.0.113.7 is blocked until 2030-01-02T03:04:05Z\n", stdout)
	require.Equal(t, "warning: the queue is off\n", stderr)
	require.Equal(t, wire.BlockRequest{Target: "203.0.113.7", Seconds: 36 * 3600, Reason: "r", By: "me"}, d.last())

	d.refuse = &bus.RemoteError{Code: bus.CodeInvalid, Message: "force it"}
	code, _, stderr = command(t, "blocks", "add", "10.0.0.0/8", "--for", "1s", "--force")
	require.Equal(t, exitConfig, code)
	require.Equal(t, "force it\n", stderr)
	require.True(t, d.last().(wire.BlockRequest).Force)

	for _, bad := range []string{"", "0s", "-1h", "3651d", "d", "1d-1h", "99999999999999999999d", "1", "1e308h", "876000h1ns"} {
		code, _, stderr = command(t, "blocks", "add", "203.0.113.7", "--for", bad)
		require.Equal(t, exitConfig, code, bad)
		require.Contains(t, stderr, "is not a duration such as", bad)
	}
	code, _, stderr = command(t, "blocks", "add", "203.0.113.7")
	require.Equal(t, exitConfig, code)
	require.Contains(t, stderr, `required flag(s) "for" not set`)
}

func TestBlocksRemove(t *testing.T) {
	d := startDenylist(t, natsServer(t))
	d.unblock = wire.UnblockReply{Lifted: true, Forgiven: 2, StillBlockedBy: []string{"203.0.113.0/24"}}
	code, stdout, _ := command(t, "blocks", "remove", "203.0.113.7", "--keep-counts", "--by", "me")
	require.Equal(t, exitOK, code)
	require.Equal(t, "203.0.113.7 is not blocked any more\ncounts forgiven: 2\nstill blocked by: 203.0.113.0/24\n", stdout)
	require.Equal(t, wire.UnblockRequest{Target: "203.0.113.7", By: "me", KeepCounts: true}, d.last())
	d.unblock = wire.UnblockReply{Warning: "not told"}
	_, stdout, stderr := command(t, "blocks", "remove", "203.0.113.7")
	require.Equal(t, "203.0.113.7 was not blocked\n", stdout)
	require.Equal(t, "warning: not told\n", stderr)
}

func TestBlocksList(t *testing.T) {
	d := startDenylist(t, natsServer(t))
	until := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	d.pages[""] = wire.ListReply{Next: "ip.1", Blocks: []wire.BlockChange{
		{Scope: wire.ScopeIP, Target: "192.0.2.1", BlockedUntil: until, Version: 1, Reason: "a\x1b[31m", By: "me"},
	}}
	d.pages["ip.1"] = wire.ListReply{Blocks: []wire.BlockChange{{Scope: wire.ScopeRange, Target: "192.0.2.0/24", BlockedUntil: until, Version: 2}}}
	code, stdout, stderr := command(t, "blocks", "list")
	require.Equal(t, exitOK, code, stderr)
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	require.Len(t, lines, 3)
	require.Contains(t, lines[1], "192.0.2.1")
	require.NotContains(t, stdout, "\x1b", "no control characters reach the terminal")
	require.Contains(t, lines[2], "192.0.2.0/24  2030-01-01T00:00:00Z  -")

	code, stdout, _ = command(t, "blocks", "list", "--json", "--scope", "ip", "--expired")
	require.Equal(t, exitOK, code)
	decoder := json.NewDecoder(strings.NewReader(stdout))
	for _, want := range []string{"192.0.2.1", "192.0.2.0/24"} {
		var b wire.BlockChange
		require.NoError(t, decoder.Decode(&b))
		require.Equal(t, want, b.Target)
	}
	require.Equal(t, wire.ListRequest{Scope: wire.ScopeIP, After: "ip.1", Limit: wire.MaxList, Expired: true}, d.last())
}

func TestBlocksExplain(t *testing.T) {
	d := startDenylist(t, natsServer(t))
	code, stdout, _ := command(t, "blocks", "explain", "192.0.2.1")
	require.Equal(t, exitFailed, code)
	require.Equal(t, "192.0.2.1 is not blocked\n", stdout)
	until := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	d.explain = wire.ExplainReply{
		Blocked: true, BlockedUntil: until,
		Blocks: []wire.BlockChange{{Scope: wire.ScopeRange, Target: "192.0.2.0/24", BlockedUntil: until, Version: 1, Reason: "denials", By: "denylist"}},
		Days: []wire.DenialDay{{
			IP: netip.MustParseAddr("192.0.2.1"), Group: "192.0.2.0/24", Day: "2029-12-31", Count: 30, FirstSeq: 3, LastSeq: 9,
			Samples: []wire.DenialSample{{At: until, Reason: wire.DeniedQueueFull, Path: "/a b", Edge: "e1"}},
		}},
	}
	code, stdout, _ = command(t, "blocks", "explain", "::ffff:192.0.2.1")
	require.Equal(t, exitOK, code)
	require.Equal(t, netip.MustParseAddr("192.0.2.1"), d.last().(wire.ExplainRequest).IP)
	for _, want := range []string{"192.0.2.1 is blocked until 2030-01-01T12:00:00Z", "192.0.2.0/24", "2029-12-31", "30", "3-9", `queue-full "/a b" at e1`} {
		require.Contains(t, stdout, want)
	}
	code, stdout, _ = command(t, "blocks", "explain", "192.0.2.1", "--json")
	require.Equal(t, exitOK, code)
	var reply wire.ExplainReply
	require.NoError(t, json.Unmarshal([]byte(stdout), &reply))
	require.Equal(t, d.explain, reply)
	d.explain.Warning = "not enforced"
	code, _, stderr := command(t, "blocks", "explain", "192.0.2.1")
	require.Equal(t, exitOK, code)
	require.Equal(t, "warning: not enforced\n", stderr)
	code, _, stderr = command(t, "blocks", "explain", "nobody")
	require.Equal(t, exitConfig, code)
	require.Contains(t, stderr, `"nobody" is not an address`)
	for _, args := range [][]string{{}, {"192.0.2.1", "--nonsense"}, {"192.0.2.1", "192.0.2.2"}} {
		code, _, _ = command(t, append([]string{"blocks", "explain"}, args...)...)
		require.Equal(t, exitConfig, code, args)
	}
	d.refuse = &bus.RemoteError{Code: bus.CodeUnavailable, Message: "ask again soon"}
	code, stdout, stderr = command(t, "blocks", "explain", "192.0.2.1")
	require.Equal(t, exitUnknown, code)
	require.Empty(t, stdout)
	require.Contains(t, stderr, "ask again soon")
}

func TestBlocksRebuild(t *testing.T) {
	startDenylist(t, natsServer(t))
	code, stdout, _ := command(t, "blocks", "rebuild")
	require.Equal(t, exitOK, code)
	require.Contains(t, stdout, "from 7 events")
}

// TestTheStandaloneProgramIsFound by the variable that says where it listens.
func TestTheStandaloneProgramIsFound(t *testing.T) {
	startDenylist(t, natsServer(t))
	address := strings.TrimPrefix(os.Getenv("CCNQ_NATS_URL"), "nats://")
	t.Setenv("CCNQ_NATS_LISTEN", "off")
	code, _, stderr := command(t, "blocks", "list")
	require.Equal(t, exitOK, code, "CCNQ_NATS_URL comes first: %s", stderr)
	require.NoError(t, os.Unsetenv("CCNQ_NATS_URL")) // put back by the Setenv before it
	code, _, stderr = command(t, "blocks", "list")
	require.Equal(t, exitConfig, code)
	require.Contains(t, stderr, "CCNQ_NATS_LISTEN is off")
	_, port, err := net.SplitHostPort(address)
	require.NoError(t, err)
	for _, listen := range []string{address, ":" + port, "0.0.0.0:" + port} {
		t.Setenv("CCNQ_NATS_LISTEN", listen)
		code, _, stderr = command(t, "blocks", "list")
		require.Equal(t, exitOK, code, "%s: %s", listen, stderr)
	}
	t.Setenv("CCNQ_NATS_LISTEN", "127.0.0.1:0")
	code, _, stderr = command(t, "blocks", "list")
	require.Equal(t, exitConfig, code)
	require.Contains(t, stderr, "names no port")
}

func TestBlocksNobodyAnswers(t *testing.T) {
	natsServer(t)
	code, _, stderr := command(t, "blocks", "list")
	require.Equal(t, exitFailed, code)
	require.Contains(t, stderr, "no denylist service answers")
	code, _, stderr = command(t, "blocks", "list", "--token-file", "/no/such/file")
	require.Equal(t, exitFailed, code)
	require.Contains(t, stderr, "/no/such/file")
	code, _, stderr = command(t, "blocks", "list", "--nats", "http://x")
	require.Equal(t, exitConfig, code)
	require.Contains(t, stderr, `"http://x" does not begin with`)
}

func TestEventsTail(t *testing.T) {
	conn := natsServer(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, spec := range []bus.StreamSpec{
		{Name: wire.StreamEvents, Subjects: []string{"ccnq.v1.events.blocked.*"}, Direct: true},
		{Name: wire.StreamRefusals, Subjects: []string{"ccnq.v1.events.denied.denylist.*"}, Direct: true},
	} {
		_, err := bus.EnsureStream(ctx, conn, spec)
		require.NoError(t, err)
	}
	blocked := func(n int) {
		target := fmt.Sprintf("192.0.2.%d", n)
		event := wire.NewEvent(fmt.Sprintf("change-%d", n), wire.DenylistSource, wire.TypeBlocked, target, time.Now(), wire.BlockChange{
			Scope: wire.ScopeIP, Target: target, BlockedUntil: time.Now(), Version: int64(n), By: "denylist", Reason: "denials",
		})
		data, err := json.Marshal(event)
		require.NoError(t, err)
		require.NoError(t, bus.PublishAcked(ctx, conn, fmt.Sprintf(wire.SubjectBlocked, wire.ScopeIP), data, event.ID))
	}
	for n := range 5 {
		blocked(n + 1)
	}
	for round, format := range [][]string{nil, {"--json"}} {
		reader, writer := io.Pipe()
		running, stop := context.WithCancel(ctx)
		done := make(chan int)
		go func() {
			done <- Run(running, "test", append([]string{"events", "tail", "--since", "1h"}, format...), writer, io.Discard)
			writer.Close()
		}()
		lines := json.NewDecoder(reader)
		next := func() string {
			if format == nil {
				var line []byte
				one := make([]byte, 1)
				for {
					_, err := reader.Read(one)
					require.NoError(t, err)
					if one[0] == '\n' {
						return string(line)
					}
					line = append(line, one[0])
				}
			}
			var event wire.Event[wire.BlockChange]
			require.NoError(t, lines.Decode(&event))
			return event.Data.Target + " "
		}
		for n := range 5 + round {
			require.Contains(t, next(), fmt.Sprintf("192.0.2.%d ", n+1))
		}
		blocked(6 + round)
		require.Contains(t, next(), fmt.Sprintf("192.0.2.%d ", 6+round), "a live one, once")
		stop()
		require.Equal(t, exitOK, <-done, "interrupted")
	}
}

func TestFirstSince(t *testing.T) {
	conn := natsServer(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, err := bus.EnsureStream(ctx, conn, bus.StreamSpec{Name: "S", Subjects: []string{"s"}, Direct: true})
	require.NoError(t, err)
	place, err := firstSince(ctx, conn, "S", time.Now())
	require.NoError(t, err)
	require.EqualValues(t, 1, place, "an empty stream")
	for range 20 {
		require.NoError(t, bus.PublishAcked(ctx, conn, "s", nil, ""))
	}
	page, err := bus.DirectGetPage(ctx, conn, "S", 1, 100, "s")
	require.NoError(t, err)
	for _, m := range page.Messages {
		place, err := firstSince(ctx, conn, "S", m.Time)
		require.NoError(t, err)
		require.Equal(t, m.Sequence, place)
	}
	place, err = firstSince(ctx, conn, "S", time.Now().Add(time.Hour))
	require.NoError(t, err)
	require.EqualValues(t, 21, place)
}

func FuzzParseDuration(f *testing.F) {
	for _, seed := range []string{"1s", "30d", "1d12h", "-1h", "", "d", "1e3h", "876000h"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d, err := parseDuration(text)
		require.Equal(t, err == nil, d > 0)
		require.LessOrEqual(t, d, wire.MaxBlock)
	})
}

func FuzzDescribe(f *testing.F) {
	f.Add([]byte(`{"type":"ccnq.v1.blocked","data":{"scope":"ip","target":"192.0.2.1","version":1}}`))
	f.Add([]byte(`{"type":"ccnq.v1.denied","data":{"outbox_id":"o","seq":1,"reason":"qos","addresses":[]}}`))
	f.Add([]byte(`{"type":"ccnq.v1.stream-reset","data":{"why":"\u001b[2J"}}`))
	f.Add([]byte("null"))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, asJSON := range []bool{false, true} {
			var out bytes.Buffer
			require.NoError(t, printer{w: &out, json: asJSON}.write(bus.StreamMessage{Subject: "s", Data: data}))
			require.LessOrEqual(t, strings.Count(out.String(), "\n"), 1, "one line")
			require.NotContains(t, out.String(), "\x1b")
		}
	})
}
