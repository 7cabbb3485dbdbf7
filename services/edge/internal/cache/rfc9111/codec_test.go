package rfc9111

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func samples(t testing.TB) []*Response {
	t.Helper()
	return []*Response{
		store(t, &Policy{}, "Cache-Control: max-age=60"),
		store(t, &Policy{StripSetCookie: true}, "Cache-Control: max-age=99999999999, s-maxage=5, stale-if-error=7, stale-while-revalidate=8, must-revalidate",
			"Vary: Foo, Bar", "Age: 3", "Last-Modified: "+date(-time.Hour), `ETag: W/"x"`, "Link: a", "Link: b", "Empty:"),
		store(t, &Policy{}, "Cache-Control: max-age=60", "Last-Modified: Thu, 01 Jan 1970 00:00:00 GMT"),
		store(t, &Policy{}, "Cache-Control: max-age=60", "Last-Modified: Mon, 01 Jan 0001 00:00:01 GMT"),
		NewIndex("http://one.example/", []string{"Bar", "Foo"}, 1<<63),
		NewIndex("", nil, 0),
	}
}

func TestCodec_RoundTrip(t *testing.T) {
	t.Parallel()
	for _, res := range samples(t) {
		encoded := res.Append([]byte("x"))
		require.Equal(t, byte('x'), encoded[0])
		decoded, err := Decode(encoded[1:])
		require.NoError(t, err)
		require.Equal(t, encoded[1:], decoded.Append(nil))
		require.Equal(t, res.Header, decoded.Header)
		require.Equal(t, res.URL, decoded.URL)
		require.Equal(t, res.Vary(), decoded.Vary())
		require.Equal(t, res.Status, decoded.Status)
		if res.IsIndex() {
			require.Equal(t, res.Variant(Key{}, fields("Foo: 1")), decoded.Variant(Key{}, fields("Foo: 1")))
			continue
		}
		require.Equal(t, res.hasValidator(), decoded.hasValidator())
		require.True(t, res.modified.Equal(decoded.modified))
		require.True(t, res.Received().Equal(decoded.Received()))
		require.True(t, res.UselessAfter().Equal(decoded.UselessAfter()))
		for s := range 100 {
			now := start.Add(time.Duration(s) * time.Second)
			for _, d := range []Directives{{}, {hasMaxStale: true, maxStale: forever}} {
				require.Equal(t, res.Decide(d, now), decoded.Decide(d, now))
			}
			require.Equal(t, res.UsableOnError(now), decoded.UsableOnError(now))
		}
	}
}

func TestCodec_RefusesEveryTruncationAndExtension(t *testing.T) {
	t.Parallel()
	for _, res := range samples(t) {
		encoded := res.Append(nil)
		for n := range encoded {
			_, err := Decode(encoded[:n])
			require.Error(t, err, n)
		}
		_, err := Decode(append(encoded, 0))
		require.Error(t, err)
	}
	_, err := Decode([]byte{codecVersion + 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	require.Error(t, err)
}

func TestCodec_LargestHead(t *testing.T) {
	t.Parallel()
	lines := []string{"Cache-Control: max-age=1"}
	for range maxFields - 1 {
		lines = append(lines, "A:")
	}
	res := store(t, &Policy{}, lines...)
	decoded, err := Decode(res.Append(nil))
	require.NoError(t, err)
	require.Equal(t, res.Header, decoded.Header)
	require.Greater(t, res.Size(), 16*maxFields)

	res = store(t, &Policy{}, "Cache-Control: max-age=1", "A: "+strings.Repeat("x", maxHeadBytes-100))
	_, err = Decode(res.Append(nil))
	require.NoError(t, err)
	require.Greater(t, res.Size(), maxHeadBytes-100)
}

// FuzzDecode checks that whatever is accepted is exactly what would be written, and that deciding on it is harmless.
func FuzzDecode(f *testing.F) {
	for _, res := range samples(f) {
		f.Add(res.Append(nil))
	}
	f.Add([]byte{codecVersion, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01})
	f.Fuzz(func(t *testing.T, b []byte) {
		before := bytes.Clone(b)
		res, err := Decode(b)
		require.Equal(t, before, b)
		if err != nil {
			require.Nil(t, res)
			return
		}
		require.Equal(t, b, res.Append(nil))
		require.LessOrEqual(t, len(b), 20*res.Size())
		require.NotZero(t, res.Decide(Directives{}, start))
		require.GreaterOrEqual(t, res.Age(start), time.Duration(0))
		res.UselessAfter()
		res.AddValidators(fields())
		res.Precondition(fields(`If-None-Match: "a"`, "If-Modified-Since: "+date(0)))
	})
}
