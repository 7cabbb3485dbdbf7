package store

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestALockedFile is a folder that another process uses.
func TestALockedFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := open(t, dir)
	require.True(t, first.add(1, "head", []byte("body")))
	second := open(t, dir)
	require.NotEmpty(t, second.Degraded())
	require.False(t, second.add(2, "head", nil))
	_, ok := second.Get(keyOf(1))
	require.False(t, ok)
	require.Equal(t, 1, strings.Count(second.log.String(), "level=ERROR"), "told once")
	require.Contains(t, second.log.String(), errLocked.Error())
	first.requireHas(t, 1, "head", []byte("body"))
	first.stop()
	require.Eventually(t, func() bool { return second.Degraded() == "" }, patience, tick, "it heals")
	second.requireHas(t, 1, "head", []byte("body"))
	require.Equal(t, 1, strings.Count(second.log.String(), "level=ERROR"))
}

// TestPurgedWhileLocked is that a purge holds for what the store could not see.
func TestPurgedWhileLocked(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := open(t, dir)
	require.True(t, first.add(1, "head", []byte("body")))
	second := open(t, dir)
	require.ErrorIs(t, second.Purge(t.Context(), Purge{Name: nameOf(1)}), errNotKept)
	first.stop()
	require.Eventually(t, func() bool { return second.Degraded() == "" }, patience, tick)
	_, ok := second.Get(keyOf(1))
	require.False(t, ok)
}

// TestAMissingFolder is one that cannot be made at first.
func TestAMissingFolder(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a", "b")
	require.NoError(t, os.WriteFile(filepath.Dir(dir), nil, 0o600))
	ts := open(t, dir)
	require.NotEmpty(t, ts.Degraded())
	require.False(t, ts.add(1, "head", nil))
	require.NoError(t, os.Remove(filepath.Dir(dir)))
	require.Eventually(t, func() bool { return ts.Degraded() == "" }, patience, tick)
	require.True(t, ts.add(1, "head", nil))
	ts.restart(t)
	ts.requireHas(t, 1, "head", nil)
}

// TestARemovedFile is one that somebody has deleted to free the disk.
func TestARemovedFile(t *testing.T) {
	t.Parallel()
	ts := open(t, t.TempDir(), func(o *Options[string]) { o.SweepInterval = 10 * time.Millisecond })
	require.True(t, ts.add(1, "head", []byte("body")))
	ts.cold(t)
	require.NoError(t, os.Remove(ts.disk.path()))
	require.Eventually(t, func() bool { return ts.Len() == 0 && ts.Degraded() == "" }, patience, tick)
	require.True(t, ts.add(2, "head", []byte("body")))
	ts.restart(t)
	ts.requireHas(t, 2, "head", []byte("body"))
}

// TestACutFile is one that somebody has cut to free the disk: the system
// answers reads of it by a signal.
func TestACutFile(t *testing.T) {
	t.Parallel()
	ts := open(t, t.TempDir(), func(o *Options[string]) { o.MemoryBytes = 0 })
	body := bodyOf(1, 0, 2_000_000)
	require.True(t, ts.add(1, "head", body))
	ts.flush(t)
	it, ok := ts.Get(keyOf(1))
	require.True(t, ok)
	require.NoError(t, os.Truncate(ts.disk.path(), 0))
	var b bytes.Buffer
	_, err := it.WriteTo(&b)
	require.ErrorIs(t, err, ErrCorrupt)
	require.True(t, bytes.HasPrefix(body, b.Bytes()))
	it.Close()
	heals(t, ts)
	ts.restart(t)
	ts.requireHas(t, 1, "healed", nil)
	require.Contains(t, ts.log.String(), "made anew")
}

// TestACorruptChunk is a body of which one byte has changed on disk.
func TestACorruptChunk(t *testing.T) {
	t.Parallel()
	for _, size := range []int{10_000, 100_000, 2_000_000} {
		ts := open(t, t.TempDir(), func(o *Options[string]) { o.MemoryBytes = 0 })
		body := bodyOf(1, 0, size)
		require.True(t, ts.add(1, "head", body))
		require.True(t, ts.add(2, "head", []byte("another")))
		ts.flush(t)
		file, err := os.ReadFile(ts.disk.path())
		require.NoError(t, err)
		at := bytes.Index(file, body[size-100:])
		require.Positive(t, at)
		f, err := os.OpenFile(ts.disk.path(), os.O_RDWR, 0)
		require.NoError(t, err)
		_, err = f.WriteAt([]byte{file[at] ^ 1}, int64(at))
		require.NoError(t, err)
		require.NoError(t, f.Close())
		if it, ok := ts.Get(keyOf(1)); ok {
			var b bytes.Buffer
			_, err := it.WriteTo(&b)
			require.ErrorIs(t, err, ErrCorrupt)
			require.True(t, bytes.HasPrefix(body, b.Bytes()), "what was written is right")
			it.Close()
		} else {
			require.LessOrEqual(t, size, wholeBytes)
		}
		_, ok := ts.Get(keyOf(1))
		require.False(t, ok, "it is dropped")
		ts.requireHas(t, 2, "head", []byte("another"))
		require.InDelta(t, 1, ts.metric(t, "ccnq_cache_read_failures_total"), 0)
		require.Equal(t, 1, strings.Count(ts.log.String(), "level=ERROR"))
		require.True(t, ts.add(1, "head", body))
		ts.flush(t)
		ts.requireHas(t, 1, "head", body)
		ts.stop()
	}
}
