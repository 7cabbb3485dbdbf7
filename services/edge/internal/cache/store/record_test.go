package store

import (
	"bytes"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestRecordRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		id := rapid.Uint64().Draw(t, "id")
		head := rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "head")
		body := rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "body")
		r := record{
			key: Key(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "key")), size: uint32(len(body)),
			until: rapid.Uint32().Draw(t, "until"), gen: rapid.Uint32().Draw(t, "gen"),
			name: []byte(rapid.StringN(0, 100, 400).Draw(t, "name")),
		}
		if rapid.Bool().Draw(t, "chunked") {
			r.base, r.size, body = rapid.Uint64Range(1, math.MaxUint64).Draw(t, "base"), rapid.Uint32Max(MaxItemBytes).Draw(t, "size"), nil
		}
		b, err := appendRecord([]byte("before"), id, &r, func(b []byte) []byte { return append(b, head...) }, [][]byte{body})
		require.NoError(t, err)
		b = bytes.TrimPrefix(b, []byte("before"))
		got, err := decodeRecord(id, b)
		require.NoError(t, err)
		r.head, r.body = head, body
		require.Equal(t, len(b), cap(b[:len(b):len(b)]))
		require.Equal(t, r.key, got.key)
		require.Equal(t, []any{r.base, r.size, r.until, r.gen}, []any{got.base, got.size, got.until, got.gen})
		require.Equal(t, []string{string(r.name), string(head), string(body)}, []string{string(got.name), string(got.head), string(got.body)})
		_, err = decodeRecord(id+1, b)
		require.Error(t, err, "it is another's")
		at := rapid.IntRange(0, len(b)-1).Draw(t, "at")
		b[at] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		_, err = decodeRecord(id, b)
		require.Error(t, err, "a bit has changed")
	})
}

func TestChunkRoundTrip(t *testing.T) {
	t.Parallel()
	b := appendChunk(nil, 7, []byte("one"), nil, []byte("two"))
	got, err := decodeChunk(7, b, 6)
	require.NoError(t, err)
	require.Equal(t, "onetwo", string(got))
	for _, wrong := range []func() error{
		func() error { _, err := decodeChunk(8, b, 6); return err },
		func() error { _, err := decodeChunk(7, b, 5); return err },
		func() error { _, err := decodeChunk(7, b[1:], 5); return err },
		func() error { _, err := decodeChunk(7, nil, 6); return err },
		func() error { _, err := decodeChunk(7, append([]byte{'O'}, b[1:]...), 6); return err },
	} {
		require.Error(t, wrong())
	}
}

func TestHeadsThatAreTooLarge(t *testing.T) {
	t.Parallel()
	r := record{name: []byte("n")}
	_, err := appendRecord(nil, 1, &r, func(b []byte) []byte { return append(b, make([]byte, maxHeadBytes+1)...) }, nil)
	require.ErrorIs(t, err, errTooLarge)
	r.name = make([]byte, MaxName+1)
	_, err = appendRecord(nil, 1, &r, func(b []byte) []byte { return b }, nil)
	require.ErrorIs(t, err, errTooLarge)
}

func TestSeconds(t *testing.T) {
	t.Parallel()
	require.Zero(t, seconds(time.Time{}))
	require.Equal(t, uint32(math.MaxUint32), seconds(time.Unix(1<<40, 0)))
	require.Equal(t, uint32(noon.Unix()), seconds(noon.Add(time.Second-1)))
}

// FuzzDecodeRecord gives bytes that no record is: nothing may panic, and what
// decodes is within its bounds.
func FuzzDecodeRecord(f *testing.F) {
	head := func(b []byte) []byte { return append(b, "head"...) }
	small, _ := appendRecord(nil, 1, &record{name: []byte("host/path"), size: 4}, head, [][]byte{[]byte("body")})
	large, _ := appendRecord(nil, 1, &record{name: []byte("host/path"), size: 1 << 20, base: 9}, head, nil)
	f.Add(uint64(1), small, 0, byte(0))
	f.Add(uint64(1), large, 20, byte(1))
	f.Add(uint64(1), small[:50], 3, byte(7))
	f.Add(uint64(2), []byte{}, 0, byte(0))
	f.Fuzz(func(t *testing.T, id uint64, b []byte, at int, flip byte) {
		b = bytes.Clone(b) // the input is not to be changed
		if len(b) > 0 {
			b[uint(at)%uint(len(b))] ^= flip
		}
		if r, err := decodeRecord(id, b); err == nil {
			require.LessOrEqual(t, len(r.name)+len(r.head)+len(r.body), len(b))
			require.LessOrEqual(t, r.size, uint32(MaxItemBytes))
		}
		_, _ = decodeChunk(id, b, int(uint(at)%100))
		if l := parseState(string(b)); l.phase != "" {
			require.Equal(t, string(b), l.line())
		}
	})
}

func TestDiskBytes(t *testing.T) {
	t.Parallel()
	require.Equal(t, uint32(2048), diskBytes(100, 1500, false), "two in a page")
	require.Equal(t, uint32(8*filePage), diskBytes(0, chunkBytes+crcBytes, false))
	require.Equal(t, diskBytes(100, 0, false)+8*filePage+diskBytes(0, crcBytes, false), diskBytes(100, chunkBytes, true))
}
