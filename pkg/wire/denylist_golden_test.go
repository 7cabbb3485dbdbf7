package wire

import (
	"encoding/json"
	"maps"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	noon    = time.Date(2026, 5, 17, 12, 0, 0, 0, time.UTC)
	address = netip.MustParseAddr("203.0.113.7")
	network = netip.MustParsePrefix("203.0.113.0/24")
	change  = BlockChange{
		Scope: ScopeIP, Target: "203.0.113.7", BlockedUntil: noon.AddDate(0, 0, 30), Since: noon,
		Version: 42, Reason: "denials", By: "denylist",
	}
	denied = Denied{
		OutboxID: "0f8e2c1a9b7d4e63", Seq: 17, Reason: DeniedQueueFull,
		Addresses: []DeniedAddress{{
			IP: address, Group: network, Count: 3,
			First: noon, Last: noon.Add(80 * time.Millisecond), Path: "/papers/1.pdf",
		}, {
			IP: netip.MustParseAddr("2001:db8::1"), Group: netip.MustParsePrefix("2001:db8::/64"), Count: 1,
			First: noon, Last: noon,
		}},
	}
	lifted = BlockChange{
		Scope: ScopeRange, Target: "2001:db8::/64", BlockedUntil: noon, Since: noon.Add(-time.Hour),
		Version: 43, Reason: "a reader", By: "operator", KeepCounts: true,
	}
)

// The goldens of events, blocks and the denylist's requests.
func init() {
	maps.Copy(goldens, map[string]Message{
		"block":              Block{BlockedUntil: noon.AddDate(0, 0, 30), Version: 42, Reason: "denials", Since: noon},
		"block_min":          Block{BlockedUntil: noon, Version: 1, Since: noon},
		"block_request":      BlockRequest{Target: "203.0.113.0/24", Seconds: 86_400, Reason: "scraper", By: "operator", Force: true},
		"block_reply":        BlockReply{Scope: ScopeRange, Target: "203.0.113.0/24", BlockedUntil: noon, Version: 44, Warning: "the queue is off"},
		"event_blocked":      NewEvent("block-42", DenylistSource, TypeBlocked, change.Target, noon, change),
		"event_denied":       NewEvent("0f8e2c1a9b7d4e63-17", EdgeSource("edge-1"), TypeDenied, string(DeniedQueueFull), noon, denied),
		"event_stream_reset": NewEvent("reset-1", DenylistSource, TypeStreamReset, "", noon, StreamReset{Created: noon, Why: "the stream was made anew"}),
		"event_unblocked":    NewEvent("block-43", DenylistSource, TypeUnblocked, lifted.Target, noon, lifted),
		"explain_reply": ExplainReply{Blocked: true, BlockedUntil: change.BlockedUntil, Blocks: []BlockChange{change}, Days: []DenialDay{{
			IP: address, Group: network.String(), Day: "2026-05-17", Count: 31, FirstSeq: 5, LastSeq: 90,
			Samples: []DenialSample{{At: noon, Reason: DeniedQueueTimeout, Path: "/papers/1.pdf", Edge: "edge-1"}},
		}}},
		"explain_reply_warned": ExplainReply{
			Blocked: true, BlockedUntil: change.BlockedUntil, Blocks: []BlockChange{change}, Days: []DenialDay{}, Warning: "not enforced",
		},
		"explain_request":      ExplainRequest{IP: address},
		"list_reply":           ListReply{Blocks: []BlockChange{change}, Next: "203.0.113.7"},
		"list_request":         ListRequest{Scope: ScopeIP, After: "203.0.113.1", Limit: 50, Expired: true},
		"mark":                 Mark{Generation: "2026-05-01T00:00:00Z", Version: 42, IPs: 10, Ranges: 2, Monitor: true, Written: noon},
		"mark_settled":         Mark{Generation: "2026-05-01T00:00:00Z", Version: 42, IPs: 10, Ranges: 2, Written: noon, Stream: noon, Applied: 4711},
		"rebuild_reply":        RebuildReply{Events: 1000},
		"rebuild_request":      RebuildRequest{By: "operator"},
		"unblock_reply":        UnblockReply{Lifted: true, Forgiven: 3, StillBlockedBy: []string{"203.0.113.0/24"}},
		"unblock_reply_warned": UnblockReply{Lifted: true, Warning: "not told"},
		"unblock_request":      UnblockRequest{Target: "203.0.113.7", Reason: "a reader", By: "operator", KeepCounts: true},
	})
}

// decodeDenylistAs decodes into the type of like, if it is one of these.
func decodeDenylistAs(like Message, data []byte) (m Message, ok bool, err error) {
	switch like.(type) {
	case Block:
		m, err = decode[Block](data)
	case BlockReply:
		m, err = decode[BlockReply](data)
	case BlockRequest:
		m, err = decode[BlockRequest](data)
	case Event[BlockChange]:
		m, err = decode[Event[BlockChange]](data)
	case Event[Denied]:
		m, err = decode[Event[Denied]](data)
	case Event[StreamReset]:
		m, err = decode[Event[StreamReset]](data)
	case ExplainReply:
		m, err = decode[ExplainReply](data)
	case ExplainRequest:
		m, err = decode[ExplainRequest](data)
	case ListReply:
		m, err = decode[ListReply](data)
	case ListRequest:
		m, err = decode[ListRequest](data)
	case Mark:
		m, err = decode[Mark](data)
	case RebuildReply:
		m, err = decode[RebuildReply](data)
	case RebuildRequest:
		m, err = decode[RebuildRequest](data)
	case UnblockReply:
		m, err = decode[UnblockReply](data)
	case UnblockRequest:
		m, err = decode[UnblockRequest](data)
	default:
		return nil, false, nil
	}
	return m, true, err
}

func TestDenylistBounds(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		spoil func(*Denied)
		want  string
	}{
		"Reason":    {func(d *Denied) { d.Reason = "mood" }, `reason "mood" is not known`},
		"Seq":       {func(d *Denied) { d.Seq = 0 }, "seq 0 is not valid"},
		"OutboxID":  {func(d *Denied) { d.OutboxID = "" }, "outbox_id"},
		"None":      {func(d *Denied) { d.Addresses = nil }, "addresses has 0 entries"},
		"Many":      {func(d *Denied) { d.Addresses = make([]DeniedAddress, MaxAddresses+1) }, "addresses has 1001 entries"},
		"Mapped":    {func(d *Denied) { d.Addresses[0].IP = netip.MustParseAddr("::ffff:203.0.113.7") }, "not a plain address"},
		"Group":     {func(d *Denied) { d.Addresses[0].Group = netip.MustParsePrefix("198.51.100.0/24") }, "does not hold"},
		"Unmasked":  {func(d *Denied) { d.Addresses[0].Group = netip.MustParsePrefix("203.0.113.7/24") }, "does not hold"},
		"Count":     {func(d *Denied) { d.Addresses[0].Count = -1 }, "count -1"},
		"Backwards": {func(d *Denied) { d.Addresses[0].Last = noon.Add(-1) }, "last is before first"},
		"TwoDays":   {func(d *Denied) { d.Addresses[0].Last = noon.Add(12 * time.Hour) }, "not on one day"},
		"Path":      {func(d *Denied) { d.Addresses[0].Path = strings.Repeat("x", MaxPath+1) }, "path is not up to 256 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := denied
			d.Addresses = append([]DeniedAddress(nil), denied.Addresses...)
			test.spoil(&d)
			require.ErrorContains(t, d.Validate(), test.want)
		})
	}
	require.ErrorContains(t, BlockRequest{Target: "203.0.113.7", Seconds: 0}.Validate(), "seconds 0")
	require.ErrorContains(t, BlockRequest{Target: "203.0.113.7", Seconds: 1 << 62}.Validate(), "seconds 4611686018427387904")
	require.ErrorContains(t, BlockRequest{Target: "everybody", Seconds: 1}.Validate(), `target "everybody"`)
	require.ErrorContains(t, ListRequest{Limit: -1}.Validate(), "limit -1")
	require.ErrorContains(t, ExplainRequest{}.Validate(), "ip is missing")
}

func TestTargets(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"203.0.113.7":            "ip 203.0.113.7",
		"::ffff:203.0.113.7":     "ip 203.0.113.7",
		"2001:DB8:0::1":          "ip 2001:db8::1",
		"203.0.113.7/24":         "range 203.0.113.0/24",
		"203.0.113.7/32":         "ip 203.0.113.7",
		"::ffff:203.0.113.0/120": "range 203.0.113.0/24",
	} {
		scope, prefix, err := ParseTargetText(text)
		require.NoError(t, err, text)
		require.Equal(t, want, string(scope)+" "+TargetText(scope, prefix))
	}
	for _, text := range []string{"", "x", "203.0.113.0/33", "::ffff:10.0.0.0/64", "fe80::1%eth0"} {
		_, _, err := ParseTargetText(text)
		require.Error(t, err, text)
	}
}

func TestBlockKeys(t *testing.T) {
	t.Parallel()
	for key, target := range map[string]string{
		"ip.203-0-113-7":         "203.0.113.7",
		"ip.2001_db8__1":         "2001:db8::1",
		"ip.__":                  "::",
		"range.203-0-113-0/24":   "203.0.113.0/24",
		"range.2001_db8_5__/64":  "2001:db8:5::/64",
		"range.64_ff9b__102_0/1": "",
	} {
		scope, prefix, err := ParseBlockKey(key)
		if target == "" {
			require.Error(t, err, key)
			continue
		}
		require.NoError(t, err, key)
		require.Equal(t, target, TargetText(scope, prefix))
		require.Equal(t, key, BlockKey(scope, target))
		require.Equal(t, key, KVKey(KVSubject(key)))
	}
	require.Empty(t, KVKey("$KV.OTHER.key"))
}

func FuzzParseBlockKey(f *testing.F) {
	for _, key := range []string{"ip.203-0-113-7", "range.2001_db8__/64", "mark", "ip.", ".x", "ip.1-2-3-4/8", "range.0-0-0-0/0"} {
		f.Add(key)
	}
	f.Fuzz(func(t *testing.T, key string) {
		scope, prefix, err := ParseBlockKey(key)
		if err == nil {
			require.Equal(t, key, BlockKey(scope, TargetText(scope, prefix)))
		}
	})
}

// fuzzText is fuzzDecode for messages with times, whose zones have no unique
// form in memory.
func fuzzText[M Message](f *testing.F) {
	f.Helper()
	for _, message := range goldens {
		data, err := json.Marshal(message)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		message, err := Decode[M](data)
		if err != nil {
			require.ErrorIs(t, err, ErrInvalid)
			return
		}
		again, err := json.Marshal(message)
		require.NoError(t, err)
		second, err := Decode[M](again)
		require.NoError(t, err)
		third, err := json.Marshal(second)
		require.NoError(t, err)
		require.JSONEq(t, string(again), string(third))
	})
}

func FuzzDecodeBlock(f *testing.F)          { fuzzText[Block](f) }
func FuzzDecodeBlockRequest(f *testing.F)   { fuzzText[BlockRequest](f) }
func FuzzDecodeBlocked(f *testing.F)        { fuzzText[Event[BlockChange]](f) }
func FuzzDecodeDenied(f *testing.F)         { fuzzText[Event[Denied]](f) }
func FuzzDecodeExplainReply(f *testing.F)   { fuzzText[ExplainReply](f) }
func FuzzDecodeExplainRequest(f *testing.F) { fuzzText[ExplainRequest](f) }
func FuzzDecodeListReply(f *testing.F)      { fuzzText[ListReply](f) }
func FuzzDecodeListRequest(f *testing.F)    { fuzzText[ListRequest](f) }
func FuzzDecodeMark(f *testing.F)           { fuzzText[Mark](f) }
func FuzzDecodeUnblockRequest(f *testing.F) { fuzzText[UnblockRequest](f) }
