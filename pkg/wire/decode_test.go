package wire

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	const (
		bucket = `"bucket":{"kind":"group","key":"203.0.113.0/24"}`
		id     = `"request_id":"01936f2a-7c00-7000-8000-00000000000a"`
	)
	ids := func(n int) string {
		return "[" + strings.Repeat(`"01936f2a-7c00-7000-8000-00000000000a",`, n-1) + `"01936f2a-7c00-7000-8000-00000000000a"]`
	}
	for _, test := range []struct {
		name string
		into Message
		data string
		want string
	}{
		{"Empty", Promoted{}, ``, "unexpected end of JSON input"},
		{"NotAnObject", Promoted{}, `[]`, "cannot unmarshal array"},
		{"Trailing", Promoted{}, `{} {}`, "after top-level value"},
		{"TooLong", Promoted{}, strings.Repeat(" ", MaxMessage+1), "1048577 bytes are more than 1048576"},

		{"AdmitNoID", AdmitRequest{}, `{` + bucket + `,"budget_ms":1}`, "request_id is missing"},
		{"AdmitZeroID", AdmitRequest{}, `{"request_id":"00000000-0000-0000-0000-000000000000",` + bucket + `,"budget_ms":1}`, "the zero UUID"},
		{"AdmitBadID", AdmitRequest{}, `{"request_id":"x",` + bucket + `,"budget_ms":1}`, `request id "x" is not a UUID`},
		{"AdmitNoBucket", AdmitRequest{}, `{` + id + `,"budget_ms":1}`, `bucket kind "" is not known`},
		{"AdmitKind", AdmitRequest{}, `{` + id + `,"bucket":{"kind":"class","key":"x"},"budget_ms":1}`, `bucket kind "class" is not known`},
		{"AdmitNoKey", AdmitRequest{}, `{` + id + `,"bucket":{"kind":"group"},"budget_ms":1}`, `bucket key "" is not 1 to 128 bytes`},
		{"AdmitLongKey", AdmitRequest{}, `{` + id + `,"bucket":{"kind":"group","key":"` + strings.Repeat("k", 129) + `"},"budget_ms":1}`, `is not 1 to 128 bytes`},
		{"AdmitControl", AdmitRequest{}, `{` + id + `,"bucket":{"kind":"group","key":"a\nb"},"budget_ms":1}`, `bucket key "a\nb" has a control character`},
		{"AdmitDelete", AdmitRequest{}, `{` + id + `,"bucket":{"kind":"group","key":"a\u007f"},"budget_ms":1}`, `has a control character`},
		{"AdmitMode", AdmitRequest{}, `{` + id + `,` + bucket + `,"mode":"force","budget_ms":1}`, `mode "force" is not known`},
		{"AdmitNoBudget", AdmitRequest{}, `{` + id + `,` + bucket + `}`, "budget_ms 0 is not in 1..3600000"},
		{"AdmitBudget", AdmitRequest{}, `{` + id + `,` + bucket + `,"budget_ms":3600001}`, "budget_ms 3600001 is not in 1..3600000"},
		{"AdmitBudgetType", AdmitRequest{}, `{` + id + `,` + bucket + `,"budget_ms":1.5}`, "budget_ms"},

		{"AdmitReplyDecision", AdmitReply{}, `{}`, `decision "" is not known`},
		{"AdmitReplyLongDecision", AdmitReply{}, `{"decision":"` + strings.Repeat("d", 100) + `"}`, `decision "` + strings.Repeat("d", 64) + `…" is not known`},
		{"AdmitReplyFull", AdmitReply{}, `{"decision":"rejected","full_for_ms":-1}`, "full_for_ms -1"},
		{"AdmitReplyRetry", AdmitReply{}, `{"decision":"rejected","retry_after_ms":3600001}`, "retry_after_ms 3600001"},

		{"AdmitReplyLimits", AdmitReply{}, `{"decision":"rejected","limits":{"max_served":1,"max_pending":-1}}`, "limits 1 and -1"},

		{"CancelNoID", CancelRequest{}, `{` + bucket + `}`, "request_id is missing"},
		{"CancelReplyWas", CancelReply{}, `{"was":"x"}`, `was "x" is not known`},

		{"PromotedAge", Promoted{}, `{"request_ids":[],"age_us":-5}`, "age_us -5 is not in 0..3600000000"},
		{"PromotedNull", Promoted{}, `{"request_ids":[null]}`, "a request id is missing"},
		{"PromotedIDs", Promoted{}, `{"request_ids":` + ids(MaxIDs+1) + `}`, "20001 ids are more than 20000"},

		{"ReleaseNone", ReleaseRequest{}, `{"items":[]}`, "items has 0 entries, not 1..2000"},
		{"ReleaseMany", ReleaseRequest{}, `{"items":[` + strings.Repeat("{},", MaxItems) + `{}]}`, "items has 2001 entries"},
		{"ReleaseItem", ReleaseRequest{}, `{"items":[{` + id + `,` + bucket + `},{}]}`, "items[1]: request_id is missing"},

		{"StatusEpoch", StatusRequest{}, `{}`, "epoch 0 is not positive"},
		{"StatusLease", StatusRequest{}, `{"epoch":1,"lease_ms":-1}`, "lease_ms -1"},
		{"StatusStale", StatusRequest{}, `{"epoch":1,"stale_ms":7200001}`, "stale_ms 7200001"},
		{"StatusPart", StatusRequest{}, `{"epoch":1,"part":2,"parts":2}`, "part 2 of parts 2 is not possible"},
		{"StatusPartAlone", StatusRequest{}, `{"epoch":1,"part":1}`, "part 1 of parts 0 is not possible"},
		{"StatusParts", StatusRequest{}, `{"epoch":1,"parts":65}`, "part 0 of parts 65 is not possible"},
		{"StatusIDs", StatusRequest{}, `{"epoch":1,"waiting":` + ids(MaxIDs) + `,"active":` + ids(1) + `}`, "20001 ids are more than 20000"},
		{"StatusNull", StatusRequest{}, `{"epoch":1,"waiting":[],"active":[null]}`, "a request id is missing"},
		{"StatusReplyIDs", StatusReply{}, `{"promoted":` + ids(MaxIDs) + `,"unknown":` + ids(1) + `}`, "20001 ids are more than 20000"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			_, err := decodeAs(test.into, []byte(test.data))
			require.ErrorIs(t, err, ErrInvalid)
			require.ErrorContains(t, err, test.want)
			require.Less(t, len(err.Error()), 300, "an error repeats only a part of a hostile value")
		})
	}
}

// The greatest messages that the bounds allow fit into one NATS message.
func TestBoundsFitIntoOneMessage(t *testing.T) {
	t.Parallel()
	ids := make([]RequestID, MaxIDs)
	items := make([]Item, MaxItems)
	for i := range ids {
		ids[i] = id2
	}
	for i := range items {
		items[i] = Item{id2, Bucket{KindGroup, strings.Repeat(`"`, MaxKey)}} // each becomes two bytes
	}
	for _, message := range []Message{
		Promoted{RequestIDs: ids, AgeUS: MaxBudgetMS * 1000},
		ReleaseRequest{Items: items},
		StatusReply{Promoted: ids},
		StatusRequest{Epoch: 1 << 62, Waiting: ids},
	} {
		require.NoError(t, message.Validate())
		data, err := json.Marshal(message)
		require.NoError(t, err)
		require.LessOrEqual(t, len(data), MaxMessage)
	}
}

// fuzzDecode checks that whatever is accepted keeps its bounds and is the same
// after another trip.
func fuzzDecode[M Message](f *testing.F) {
	f.Helper()
	files, err := filepath.Glob(filepath.Join(goldenDir, "*.json"))
	if err != nil || len(files) == 0 {
		f.Fatalf("no goldens: %v", err)
	}
	for _, file := range files {
		golden, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(golden)
	}
	for _, seed := range []string{``, `null`, `{}`, `[]`, `{"items":[null]}`, `{"EPOCH":1,"epoch":-1}`, `{"mode":"\ud800"}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		message, err := Decode[M](data)
		if err != nil {
			require.ErrorIs(t, err, ErrInvalid)
			return
		}
		require.NoError(t, message.Validate())
		again, err := json.Marshal(message)
		require.NoError(t, err)
		second, err := Decode[M](again)
		require.NoError(t, err)
		require.Equal(t, message, second)
	})
}

func FuzzDecodeAdmitReply(f *testing.F)     { fuzzDecode[AdmitReply](f) }
func FuzzDecodeAdmitRequest(f *testing.F)   { fuzzDecode[AdmitRequest](f) }
func FuzzDecodeCancelReply(f *testing.F)    { fuzzDecode[CancelReply](f) }
func FuzzDecodeCancelRequest(f *testing.F)  { fuzzDecode[CancelRequest](f) }
func FuzzDecodePromoted(f *testing.F)       { fuzzDecode[Promoted](f) }
func FuzzDecodeReleaseReply(f *testing.F)   { fuzzDecode[ReleaseReply](f) }
func FuzzDecodeReleaseRequest(f *testing.F) { fuzzDecode[ReleaseRequest](f) }
func FuzzDecodeStatusReply(f *testing.F)    { fuzzDecode[StatusReply](f) }
func FuzzDecodeStatusRequest(f *testing.F)  { fuzzDecode[StatusRequest](f) }

func BenchmarkDecodeAdmitRequest(b *testing.B) {
	data, err := json.Marshal(goldens["admit_request"])
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Decode[AdmitRequest](data); err != nil {
			b.Fatal(err)
		}
	}
}
