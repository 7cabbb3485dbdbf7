package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var sizes = []int{0, 1, 500, 4000, 20_000, chunkBytes, chunkBytes + 1, 100_000, wholeBytes, wholeBytes + 1, 1_000_003, 5_000_000}

func TestPutAndGet(t *testing.T) {
	t.Parallel()
	ts := open(t, t.TempDir())
	check := func() {
		t.Helper()
		for n, size := range sizes {
			ts.requireHas(t, n, fmt.Sprint("head of ", n), bodyOf(n, 0, size))
		}
		require.Equal(t, len(sizes), ts.Len())
	}
	for n, size := range sizes {
		require.True(t, ts.add(n, fmt.Sprint("head of ", n), bodyOf(n, 0, size)))
	}
	check() // at once
	ts.flush(t)
	check() // from the tier, as far as it goes
	ts.cold(t)
	check() // from disk
	ts.restart(t)
	check() // from the file of the last life
	_, ok := ts.Get(keyOf(1000))
	require.False(t, ok)
	require.Empty(t, ts.Degraded())
	require.Zero(t, ts.metric(t, "ccnq_cache_read_failures_total"))
}

func TestRanges(t *testing.T) {
	t.Parallel()
	ts := open(t, t.TempDir())
	for n, size := range sizes {
		require.True(t, ts.add(n, "", bodyOf(n, 0, size)))
	}
	check := func() {
		t.Helper()
		for n, size := range sizes {
			want := bodyOf(n, 0, size)
			it, ok := ts.Get(keyOf(n))
			require.True(t, ok)
			for _, from := range []int{0, 1, size / 3, size - chunkBytes, size - 1, size} {
				for _, length := range []int{0, 1, 40_000, size / 2, size - from} {
					var b bytes.Buffer
					m, err := it.WriteRange(&b, int64(from), int64(length))
					if from < 0 || length < 0 || from+length > size {
						require.ErrorIs(t, err, errRange)
						continue
					}
					require.NoError(t, err, "%d bytes from %d of %d", length, from, size)
					require.Equal(t, int64(length), m)
					require.True(t, bytes.Equal(want[from:from+length], b.Bytes()), "%d bytes from %d of %d", length, from, size)
				}
			}
			it.Close()
		}
	}
	check()
	ts.cold(t)
	check()
}

func TestReplaceUpdateDelete(t *testing.T) {
	t.Parallel()
	for _, size := range sizes {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			t.Parallel()
			ts := open(t, t.TempDir())
			for _, settle := range []func(){func() {}, func() { ts.flush(t) }, func() { ts.cold(t) }, func() { ts.restart(t) }} {
				old, fresh := bodyOf(1, 1, size), bodyOf(1, 2, size/2)
				require.True(t, ts.add(1, "first", old))
				settle()
				reader, ok := ts.Get(keyOf(1))
				require.True(t, ok)
				require.True(t, ts.Update(reader, "second", noon.Add(hour)))
				ts.requireHas(t, 1, "second", old)
				settle()
				if _, ok := ts.Get(keyOf(1)); !ok {
					require.Fail(t, "gone")
				}
				ts.requireHas(t, 1, "second", old)
				require.False(t, ts.Update(reader, "third", noon.Add(hour)), "it is another version by now")
				reader.Close()
				require.True(t, ts.add(1, "fourth", fresh))
				ts.requireHas(t, 1, "fourth", fresh)
				settle()
				ts.requireHas(t, 1, "fourth", fresh)
				ts.Delete(keyOf(1))
				_, _, ok = ts.read(t, 1)
				require.False(t, ok)
				settle()
				_, _, ok = ts.read(t, 1)
				require.False(t, ok)
				require.Zero(t, ts.Len())
			}
		})
	}
}

// TestASlowReader reads a body whose entry is gone, while others take its place.
func TestASlowReader(t *testing.T) {
	t.Parallel()
	ts := open(t, t.TempDir(), func(o *Options[string]) { o.MaxBytes = 96 << 20 })
	body := bodyOf(1, 0, 10<<20)
	require.True(t, ts.add(1, "slow", body))
	ts.cold(t)
	it, ok := ts.Get(keyOf(1))
	require.True(t, ok)
	require.Nil(t, it.Body())
	var got bytes.Buffer
	const step = 1 << 20
	for at := int64(0); at < it.Size(); at += step {
		_, err := it.WriteRange(&got, at, step)
		require.NoError(t, err)
		ts.Delete(keyOf(1))
		for n := range 20 { // twice the budget in all
			ts.add(100+int(at/step)*20+n, "", bodyOf(n, 0, 1<<20))
		}
		ts.flush(t)
	}
	require.True(t, bytes.Equal(body, got.Bytes()))
	v := ts.volume.Load()
	held := v.used.Load()
	it.Close()
	it.Close()
	ts.flush(t)
	require.Less(t, v.used.Load(), held-9<<20, "its place is free now")
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	ts := open(t, t.TempDir(), func(o *Options[string]) { o.MaxBytes = MinBytes; o.MaxItemBytes = 1 << 20 })
	require.False(t, ts.add(1, "", make([]byte, MinBytes/8+1)), "more than an eighth")
	require.True(t, ts.add(2, "", make([]byte, MinBytes/8)))
	require.False(t, ts.add(3, strings.Repeat("x", maxHeadBytes+1), nil))
	require.False(t, ts.Put(Entry[string]{Key: keyOf(4), Name: strings.Repeat("x", MaxName+1)}))
	ts.queue.max = 1
	require.False(t, ts.add(5, "", nil), "too much waits")
	ts.queue.max = maxQueued
	require.Equal(t, 1, ts.Len())
	require.InDelta(t, 4, ts.metric(t, "ccnq_cache_dropped_writes_total"), 0)
	ts.stop()
	require.False(t, ts.add(6, "", nil))
	_, ok := ts.Get(keyOf(2))
	require.False(t, ok)
	require.Error(t, ts.Purge(context.Background(), Purge{Name: "x"}))

	for _, o := range []Options[string]{
		{MaxBytes: MinBytes - 1, SweepInterval: hour},
		{MaxBytes: MinBytes, MaxItemBytes: MaxItemBytes + 1, SweepInterval: hour},
		{MaxBytes: MinBytes, MemoryBytes: -1, SweepInterval: hour},
		{MaxBytes: MinBytes},
	} {
		_, err := Open(o)
		require.Error(t, err)
	}
}

// TestAHeadThatDoesNotDecode is an entry that an older version has written.
func TestAHeadThatDoesNotDecode(t *testing.T) {
	t.Parallel()
	ts := open(t, t.TempDir())
	require.True(t, ts.add(1, "bad head", []byte("body")))
	require.True(t, ts.add(2, "good head", []byte("body")))
	ts.cold(t)
	_, _, ok := ts.read(t, 1)
	require.False(t, ok)
	require.Equal(t, 1, ts.Len())
	ts.requireHas(t, 2, "good head", []byte("body"))
	require.InDelta(t, 1, ts.metric(t, "ccnq_cache_read_failures_total"), 0)
}

func TestExpiry(t *testing.T) {
	t.Parallel()
	ts := open(t, t.TempDir())
	for n := range 10_000 {
		until := noon.Add(hour)
		if n%2 == 1 {
			until = until.Add(hour)
		}
		require.True(t, ts.Put(Entry[string]{Key: keyOf(n), Name: nameOf(n), Head: "h", Body: [][]byte{bodyOf(n, 0, 100)}, Until: until}))
	}
	ts.flush(t)
	ts.sweepExpired()
	require.Equal(t, 10_000, ts.Len())
	ts.clock.advance(hour + 2e9)
	ts.sweepExpired()
	require.Equal(t, 5_000, ts.Len())
	ts.restart(t)
	require.Equal(t, 5_000, ts.Len())
	ts.clock.advance(hour)
	ts.sweepExpired()
	require.Zero(t, ts.Len())
	ts.flush(t)
	v := ts.volume.Load()
	require.Less(t, v.used.Load(), int64(64<<10), "the file is empty")
}

// failing is a client that goes away.
type failing struct{ left int }

func (f *failing) Write(p []byte) (int, error) {
	if f.left -= len(p); f.left < 0 {
		return 0, errors.New("the client is gone")
	}
	return len(p), nil
}

func TestAWriterThatFails(t *testing.T) {
	t.Parallel()
	ts := open(t, t.TempDir())
	for n, size := range sizes[1:] {
		require.True(t, ts.add(n, "", bodyOf(n, 0, size)))
	}
	ts.cold(t)
	for n, size := range sizes[1:] {
		it, ok := ts.Get(keyOf(n))
		require.True(t, ok)
		written, err := it.WriteTo(&failing{left: size / 2})
		require.EqualError(t, err, "the client is gone")
		require.NotErrorIs(t, err, ErrCorrupt)
		require.LessOrEqual(t, written, int64(size/2))
		it.Close()
	}
	require.Equal(t, len(sizes)-1, ts.Len())
}
