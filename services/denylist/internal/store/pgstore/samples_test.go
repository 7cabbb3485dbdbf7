package pgstore

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/pkg/wire"
)

// FuzzSampleLines compares with encoding/json.
func FuzzSampleLines(f *testing.F) {
	f.Add(int64(1_900_000_000), int64(123_456_000), "queue-full", "/download/file.iso", "edge-1")
	f.Add(int64(1_900_000_000), int64(0), "queue-timeout", "", "")
	f.Add(int64(0), int64(1), "qos-counted", "/\x00\"\n\\<é>&\u2028\x7f", "e")
	f.Add(int64(253_402_300_800), int64(0), "queue-full", "/", "edge-1") // year 10000
	f.Add(int64(-62_135_596_801), int64(0), "queue-full", "\xff", "edge-1")
	f.Fuzz(func(t *testing.T, seconds, nanos int64, reason, path, edge string) {
		sample := wire.DenialSample{
			At: time.Unix(seconds, nanos).UTC(), Reason: wire.DenialReason(reason), Path: path, Edge: edge,
		}
		got := sampleLines([]wire.DenialSample{sample})
		sample.Reason, sample.Path, sample.Edge = wire.DenialReason(text(reason)), text(path), text(edge)
		want, err := json.Marshal(sample)
		if err != nil {
			require.Equal(t, []string{}, got)
			return
		}
		require.Equal(t, []string{string(want)}, got)
		if reason != "" {
			require.Len(t, parseSamples(got), 1)
		}
	})
}

func BenchmarkSampleLines(b *testing.B) {
	samples := []wire.DenialSample{{
		At: time.Date(2030, 3, 10, 12, 0, 0, 123_456_000, time.UTC), Reason: wire.DeniedQueueFull, Path: "/download/file.iso", Edge: "edge-1",
	}}
	b.ReportAllocs()
	for b.Loop() {
		sampleLines(samples)
	}
}
