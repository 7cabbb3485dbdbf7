package wire

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var someBlock = Block{
	BlockedUntil: time.Date(2026, 12, 1, 10, 49, 22, 123456789, time.UTC), Version: 123456, Reason: "denials",
	Since: time.Date(2026, 11, 30, 10, 49, 22, 0, time.UTC),
}

// What this package writes is read without a general decoder.
func TestReadBlock(t *testing.T) {
	t.Parallel()
	for _, reason := range []string{"", "denials", "too fast, ~ since noon!", "it's <b>bold</b>", `"quoted" \ ünïcode`} {
		for _, version := range []int64{1, 10, 999_999_999_999_999_999, 1<<63 - 1} {
			b := someBlock
			b.Reason, b.Version = reason, version
			data, err := json.Marshal(b)
			require.NoError(t, err)
			got, err := DecodeBlock(data)
			require.NoError(t, err)
			require.Equal(t, b, got)
			_, ok := readBlock(data)
			require.Equal(t, version < 1e18 && reason != `"quoted" \ ünïcode` && reason != "it's <b>bold</b>", ok, "%s", data)
		}
	}
}

// FuzzReadBlock compares the two ways of reading a block.
func FuzzReadBlock(f *testing.F) {
	data, err := json.Marshal(someBlock)
	require.NoError(f, err)
	f.Add(data)
	const until, since = `{"blocked_until":"2026-12-01T10:49:22Z"`, `,"since":"2026-11-30T10:49:22Z"}`
	for _, middle := range []string{
		``, `,"version":7`, `,"version":07`, `,"version":-7`, `,"version":0`, `,"version":7.0`, `,"version":99999999999999999999`,
		`,"version":7,"reason":""`, `,"version":7,"reason":"a\u0041"`, `,"version":7,"reason":"é"`, `,"version":7,"Reason":"x"`,
	} {
		f.Add([]byte(until + middle + since))
		f.Add([]byte(until + middle + since + " "))
	}
	f.Add([]byte(`{"blocked_until":"2026-12-01T10:49:22,5Z","version":7,"since":"2026-11-30T1:49:22Z"}`))
	f.Add([]byte(`{"blocked_until":"2026-12-01T10:49:22+24:00","version":7,"since":"2026-11-30T10:49:22Z"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		want, wantErr := Decode[Block](data)
		got, err := DecodeBlock(data)
		require.Equal(t, wantErr, err)
		require.True(t, want.BlockedUntil.Equal(got.BlockedUntil) && want.Since.Equal(got.Since), "%v %v", want, got)
		want.BlockedUntil, want.Since, got.BlockedUntil, got.Since = time.Time{}, time.Time{}, time.Time{}, time.Time{}
		require.Equal(t, want, got)
	})
}

func BenchmarkDecodeBlock(b *testing.B) {
	data, err := json.Marshal(someBlock)
	require.NoError(b, err)
	b.Run("Own", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := DecodeBlock(data); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("General", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := Decode[Block](data); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkParseBlockKey(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := ParseBlockKey("ip.203-0-113-7"); err != nil {
			b.Fatal(err)
		}
	}
}
