package wire

import (
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

func TestParseRequestID(t *testing.T) {
	t.Parallel()
	const text = "01936f2a-7c01-7abc-bdef-0123456789ab"
	for _, s := range []string{text, strings.ToUpper(text)} {
		id, err := ParseRequestID(s)
		require.NoError(t, err)
		require.Equal(t, uuid.MustParse(text), uuid.UUID(id))
		require.Equal(t, text, id.String())
	}
	for _, s := range []string{
		"", "x", text[:35], text + "0", "{" + text + "}", "urn:uuid:" + text,
		strings.ReplaceAll(text, "-", ""), strings.ReplaceAll(text, "-", "_"),
		"0193-6f2a7c01-7abc-bdef-0123456789ab", "g1936f2a-7c01-7abc-bdef-0123456789ab",
		"00000000-0000-0000-0000-000000000000", " " + text[1:], text[:34] + "é",
	} {
		_, err := ParseRequestID(s)
		require.Error(t, err, "%q", s)
	}
	_, err := ParseRequestID(strings.Repeat("x", 1000))
	require.Less(t, len(err.Error()), 200)
}

func TestRequestIDPart(t *testing.T) {
	t.Parallel()
	seen := map[int]int{}
	for i := range 256 {
		id := RequestID{15: byte(i)}
		require.Equal(t, 0, id.Part(1))
		seen[id.Part(4)]++
	}
	require.Equal(t, map[int]int{0: 64, 1: 64, 2: 64, 3: 64}, seen)
}

func TestRequestIDAppendTextDoesNotAllocate(t *testing.T) {
	buf := make([]byte, 0, 64)
	allocs := testing.AllocsPerRun(100, func() {
		var err error
		buf, err = id2.AppendText(append(buf[:0], "id "...))
		if err != nil {
			t.Error(err)
		}
	})
	require.Equal(t, "id 01936f2a-7c01-7abc-bdef-0123456789ab", string(buf))
	require.Zero(t, allocs)
}

func BenchmarkRequestIDAppendText(b *testing.B) {
	buf := make([]byte, 0, 36)
	b.ReportAllocs()
	for b.Loop() {
		buf, _ = id2.AppendText(buf[:0])
	}
}

// FuzzParseRequestID compares with the library that makes the ids.
func FuzzParseRequestID(f *testing.F) {
	for _, seed := range []string{"", id1.String(), strings.ToUpper(id2.String()), "01936f2a7c017abcbdef0123456789ab", "urn:uuid:" + id1.String()} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		id, err := ParseRequestID(s)
		oracle, oracleErr := uuid.Parse(s)
		want := oracleErr == nil && len(s) == 36 && oracle != uuid.Nil
		require.Equal(t, want, err == nil, "%q", s)
		if err == nil {
			require.Equal(t, oracle, uuid.UUID(id))
			require.Equal(t, oracle.String(), id.String())
		}
	})
}
