package outbox

import (
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/pkg/wire"
)

var noon = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

// address returns the n-th address of a block, and its group.
func address(n int) (netip.Addr, netip.Prefix) {
	addr := netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)})
	return addr, netip.PrefixFrom(addr, 24).Masked()
}

func note(c *collector, kind Kind, n int, path string, at time.Time) {
	addr, group := address(n)
	c.record(kind, addr, group, path, at)
}

// decode reads drafts as their reader will.
func decode(t *testing.T, all []draft) []wire.Event[wire.Denied] {
	t.Helper()
	var out []wire.Event[wire.Denied]
	for i := range all {
		payload, err := all[i].encode(wire.EdgeSource("e"), "box", uint64(i+1))
		require.NoError(t, err)
		require.LessOrEqual(t, len(payload), wire.MaxDeniedBytes)
		require.LessOrEqual(t, len(payload), all[i].bytes, "the estimate is no less than the truth")
		event, err := wire.Decode[wire.Event[wire.Denied]](payload)
		require.NoError(t, err)
		out = append(out, event)
	}
	return out
}

func TestAnIntervalBecomesOneMessage(t *testing.T) {
	t.Parallel()
	c := newCollector(10)
	note(c, QueueFull, 1, "/b", noon.Add(2*time.Second))
	note(c, QueueFull, 1, "/a", noon)
	note(c, QueueFull, 1, "/c", noon.Add(time.Second))
	events := decode(t, drafts(c))
	require.Len(t, events, 1)
	e := events[0]
	require.Equal(t, "box-1", e.ID)
	require.Equal(t, "/ccnq/edge/e", e.Source)
	require.Equal(t, wire.TypeDenied, e.Type)
	require.Equal(t, "queue-full", e.Subject)
	require.Equal(t, noon.Add(2*time.Second), e.Time)
	addr, group := address(1)
	require.Equal(t, wire.Denied{OutboxID: "box", Seq: 1, Reason: wire.DeniedQueueFull, Addresses: []wire.DeniedAddress{
		{IP: addr, Group: group, Count: 3, First: noon, Last: noon.Add(2 * time.Second), Path: "/b"},
	}}, e.Data)
	require.Empty(t, drafts(c), "it is told once")
}

func TestKindsHaveTheirOwnMessages(t *testing.T) {
	t.Parallel()
	subjects := map[Kind]string{
		QueueFull: "ccnq.v1.events.denied.queue-full.e", QueueTimeout: "ccnq.v1.events.denied.queue-timeout.e",
		Denylist: "ccnq.v1.events.denied.denylist.e", QoS: "ccnq.v1.events.denied.qos.e",
		QoSCounted:     "ccnq.v1.events.denied.qos-counted.e",
		WouldQueueFull: "ccnq.v1.events.would-deny.queue-full.e", WouldQueueTimeout: "ccnq.v1.events.would-deny.queue-timeout.e",
		WouldDenylist: "ccnq.v1.events.would-deny.denylist.e", WouldQoS: "ccnq.v1.events.would-deny.qos.e",
	}
	require.Len(t, subjects, int(kinds))
	c := newCollector(100)
	for k := range kinds {
		note(c, k, 1, "/", noon)
		require.Equal(t, subjects[k], k.subject("e"))
		require.Equal(t, reasons[k].Counts() && !k.would(), k.durable(), "what counts is kept on disk")
	}
	all := drafts(c)
	require.Len(t, all, int(kinds))
	for i, e := range decode(t, all) {
		require.Equal(t, reasons[all[i].kind], e.Data.Reason)
	}
}

func TestMidnightCutsAnInterval(t *testing.T) {
	t.Parallel()
	midnight := time.Date(2026, 3, 5, 0, 0, 0, 0, time.UTC)
	c := newCollector(10)
	for _, at := range []time.Time{midnight.Add(-1), midnight, midnight.Add(-time.Second), midnight.Add(time.Second)} {
		note(c, QueueFull, 1, "/", at.In(time.FixedZone("east", 5*60*60)))
	}
	events := decode(t, drafts(c))
	require.Len(t, events, 2)
	days := map[string]int{}
	for _, e := range events {
		days[e.Data.Addresses[0].First.Format(time.DateOnly)] += e.Data.Addresses[0].Count
		require.Equal(t, time.UTC, e.Data.Addresses[0].First.Location())
	}
	require.Equal(t, map[string]int{"2026-03-04": 2, "2026-03-05": 2}, days)
}

func TestMessagesAreSplit(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		path        string
		least, most int
	}{
		"short paths":  {"/", 3, 3},
		"paths":        {"/" + strings.Repeat("x", 300), 5, 7},
		"costly paths": {strings.Repeat("<", 300), 16, 19},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCollector(maxDenials)
			for i := range 2_400 {
				note(c, QueueTimeout, i, tc.path, noon)
			}
			events := decode(t, drafts(c))
			require.GreaterOrEqual(t, len(events), tc.least)
			require.LessOrEqual(t, len(events), tc.most)
			seen := map[netip.Addr]bool{}
			for _, e := range events {
				require.LessOrEqual(t, len(e.Data.Addresses), wire.MaxAddresses)
				for _, a := range e.Data.Addresses {
					require.False(t, seen[a.IP])
					seen[a.IP] = true
				}
			}
			require.Len(t, seen, 2_400)
		})
	}
}

func TestPathsAreCut(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"":                                "",
		"/plain":                          "/plain",
		"/a?token=secret":                 "/a",
		"/" + strings.Repeat("a", 300):    "/" + strings.Repeat("a", 255),
		"/" + strings.Repeat("ä", 200):    "/" + strings.Repeat("ä", 127),
		"//" + strings.Repeat("日", 200):   "//" + strings.Repeat("日", 84),
		"/\xff\xfe/x":                     "/?/x",
		"/end\xe6\x97":                    "/end",
		strings.Repeat("\x80", 300) + "x": "?",
	} {
		c := newCollector(1)
		note(c, QueueFull, 1, in, noon)
		events := decode(t, drafts(c))
		require.Equal(t, want, events[0].Data.Addresses[0].Path, "%q", in)
	}
}

func TestBoundsAreCounted(t *testing.T) {
	t.Parallel()
	c := newCollector(100)
	for i := range 150 {
		note(c, QueueFull, i, "/", noon)
		note(c, QueueFull, i, "/", noon)
	}
	require.EqualValues(t, 100, c.overflow.Load())
	require.Len(t, decode(t, drafts(c))[0].Data.Addresses, 100)
	note(c, QueueFull, 1_000, "/", noon)
	require.Len(t, decode(t, drafts(c)), 1, "there is room again")

	group := netip.MustParsePrefix("10.0.0.0/24")
	for _, bad := range []netip.Addr{
		{}, netip.MustParseAddr("::ffff:10.0.0.1"), netip.MustParseAddr("fe80::1%eth0"), netip.MustParseAddr("10.0.1.1"),
	} {
		c.record(QueueFull, bad, group, "/", noon)
	}
	require.EqualValues(t, 4, c.invalid.Load())
	require.Empty(t, drafts(c))
}

func TestNothingIsLostBetweenIntervals(t *testing.T) {
	t.Parallel()
	c := newCollector(maxDenials)
	const writers, each = 4, 5_000
	var recording sync.WaitGroup
	for w := range writers {
		recording.Go(func() {
			for i := range each {
				note(c, QueueFull, (i*7+w)%500, "/path", noon.Add(time.Duration(i)))
			}
		})
	}
	done := make(chan struct{})
	go func() { recording.Wait(); close(done) }()
	total := 0
	count := func() {
		for _, d := range drafts(c) {
			total += d.requests
		}
	}
	for open := true; open; count() {
		select {
		case <-done:
			open = false
		default:
		}
	}
	require.Equal(t, writers*each, total)
	require.Zero(t, c.held.Load())
}

func FuzzDraft(f *testing.F) {
	f.Add("/path", uint16(1), int64(0))
	f.Add("/\xff\xfe<&>\u2028\"\\", uint16(199), int64(1<<40))
	f.Add(strings.Repeat("\x00", 300), uint16(3), int64(-5))
	f.Fuzz(func(t *testing.T, path string, n uint16, at int64) {
		c := newCollector(maxDenials)
		for i := range int(n%200) + 1 {
			note(c, QueueFull, i, path, noon.Add(time.Duration(at%int64(1_000*time.Hour))))
		}
		total := 0
		for _, e := range decode(t, drafts(c)) {
			total += len(e.Data.Addresses)
		}
		if total != int(n%200)+1 {
			t.Fatal(fmt.Sprint(total, " addresses"))
		}
	})
}
