package store

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
)

// childDir names the folder in which a child of the test writes until it is
// killed.
const childDir = "CCNQ_TEST_STORE_DIR"

// childWrites stores and replaces entries for ever, and tells how many are
// surely on disk.
func childWrites(dir string) {
	ts := &testStore{clock: &clock{t: noon}}
	ts.opts = Options[string]{
		Codec: textCodec, Dir: dir, MaxBytes: 64 << 20, MaxItemBytes: 1 << 20, MemoryBytes: 1 << 20,
		SweepInterval: hour, Now: ts.clock.now, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
	}
	var err error
	if ts.Store, err = Open(ts.opts); err != nil {
		panic(err)
	}
	for n := 0; ; n++ {
		body := make([]byte, n*7919%90_000)
		seed(body, n%500)
		ts.add(n%500, "", body)
		if n%50 != 49 {
			continue
		}
		done := make(chan error, 1)
		ts.queue.add(op[string]{done: done})
		ts.wake(ts.ring)
		ts.wake(ts.hurry)
		if <-done == nil {
			fmt.Fprintln(os.Stdout, n+1)
		}
	}
}

// TestKilled kills a process that writes, several times, and reads all that it
// has left.
func TestKilled(t *testing.T) {
	t.Parallel()
	if bootID() == unknownBoot {
		require.Fail(t, "this system has no boot id: nothing is kept")
	}
	dir := t.TempDir()
	for round := range 4 {
		child := exec.CommandContext(t.Context(), os.Args[0])
		child.Env = append(os.Environ(), childDir+"="+dir)
		child.Stderr = os.Stderr
		out, err := child.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, child.Start())
		told := 0
		for lines := bufio.NewScanner(out); told < 600+137*round && lines.Scan(); {
			_, err := fmt.Sscan(lines.Text(), &told)
			require.NoError(t, err)
		}
		require.NoError(t, child.Process.Kill())
		_, _ = io.Copy(io.Discard, out)
		require.Error(t, child.Wait())

		ts := open(t, dir)
		require.GreaterOrEqual(t, ts.Len(), 450, "what was not being replaced is there: %s", ts.log)
		found := 0
		for n := range 500 {
			if it, ok := ts.Get(keyOf(n)); ok {
				found++
				require.True(t, verify(it), "entry %d", n)
				it.Close()
			}
		}
		require.Equal(t, ts.Len(), found)
		require.Zero(t, ts.metric(t, "ccnq_cache_read_failures_total"))
		ts.stop()
	}
}

func TestLastLife(t *testing.T) {
	t.Parallel()
	boot, realm := bootID(), digestRealm("here")
	clean := func(path string) string {
		crc, err := checksumFile(path)
		require.NoError(t, err)
		return lastLife{realm, phaseClean, "another-boot", crc}.line()
	}
	for _, c := range []struct {
		name  string
		state func(path string) string
		kept  bool
		next  phase
	}{
		{"Clean", clean, true, phaseOpen},
		{"CleanButOther", func(string) string { return lastLife{realm, phaseClean, boot, 42}.line() }, false, phaseOpen},
		{"Killed", func(string) string { return lastLife{realm, phaseOpen, boot, 0}.line() }, true, phaseKept},
		{"KilledSoonAgain", func(string) string { return lastLife{realm, phaseKept, boot, 0}.line() }, false, phaseOpen},
		{"PowerCut", func(string) string { return lastLife{realm, phaseOpen, "another-boot", 0}.line() }, false, phaseOpen},
		{"DiedWhileOpening", func(string) string { return lastLife{realm, phaseOpening, boot, 0}.line() }, false, phaseOpen},
		{"Unknown", func(string) string { return lastLife{realm, "asleep", boot, 0}.line() }, false, phaseOpen},
		{"OfAnotherRealm", func(p string) string { return strings.Replace(clean(p), realm, digestRealm("there"), 1) }, false, phaseOpen},
		{"KilledInAnotherRealm", func(string) string { return lastLife{digestRealm("there"), phaseOpen, boot, 0}.line() }, false, phaseOpen},
		{"NotReadable", func(string) string { return "\x00\x00" }, false, phaseOpen},
		{"TornLine", func(string) string { return lastLife{realm, phaseOpen, boot, 0}.line()[:30] }, false, phaseOpen},
		{"Longer", func(p string) string { return clean(p) + "x" }, false, phaseOpen},
		{"Empty", func(string) string { return "" }, false, phaseOpen},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ts := open(t, t.TempDir(), func(o *Options[string]) { o.Realm = "here" })
			require.True(t, ts.add(1, "head", []byte("body")))
			ts.stop()
			path := filepath.Join(ts.opts.Dir, stateName)
			require.NoError(t, os.WriteFile(path, []byte(c.state(ts.disk.path())), 0o600))
			ts.start(t)
			_, _, ok := ts.read(t, 1)
			require.Equal(t, c.kept, ok)
			require.True(t, ts.add(2, "head", []byte("body")))
			require.Equal(t, c.next, ts.disk.state.read().phase)
			ts.restart(t)
			ts.requireHas(t, 2, "head", []byte("body"))
		})
	}
}

// TestKeptForLong is that a file which was kept after a kill counts as sound
// again after an interval.
func TestKeptForLong(t *testing.T) {
	t.Parallel()
	ts := open(t, t.TempDir())
	require.True(t, ts.add(1, "head", []byte("body")))
	ts.stop()
	line := lastLife{digestRealm(""), phaseOpen, bootID(), 0}.line()
	require.NoError(t, os.WriteFile(filepath.Join(ts.opts.Dir, stateName), []byte(line), 0o600))
	ts.opts.SweepInterval = 10 * time.Millisecond
	ts.start(t)
	require.Eventually(t, func() bool {
		b, err := os.ReadFile(filepath.Join(ts.opts.Dir, stateName))
		return err == nil && string(b) == line
	}, patience, tick)
}

// TestASmallerBudget is that a file which is too large for it is not kept,
// which gives the space back.
func TestASmallerBudget(t *testing.T) {
	t.Parallel()
	ts := open(t, t.TempDir())
	for n := range 40 {
		require.True(t, ts.add(n, "", bodyOf(n, 0, 100_000)))
	}
	ts.stop()
	ts.opts.MaxBytes = 2 << 20
	ts.start(t)
	require.Zero(t, ts.Len())
	require.Less(t, ts.metric(t, "ccnq_cache_file_bytes"), 1e6)
}

// TestStopInAHurry is that what cannot be written in time is not kept, and
// nothing worse.
func TestStopInAHurry(t *testing.T) {
	t.Parallel()
	ts := open(t, t.TempDir())
	require.True(t, ts.add(1, "head", []byte("body")))
	ts.flush(t)
	require.True(t, ts.add(2, "head", []byte("body")))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	ts.Stop(ended)
	ts.start(t)
	ts.requireHas(t, 1, "head", []byte("body"))
}

// kinds of pages.
const (
	branchPage   = 0x01
	leafPage     = 0x02
	metaPage     = 0x04
	freelistPage = 0x10
)

// TestACorruptFile flips bytes in pages of every kind. Whatever is read then is
// what was stored, and the store works on.
func TestACorruptFile(t *testing.T) {
	t.Parallel()
	const entries = 400
	size := func(n int) int { return n * 7919 % 60_000 }
	whole := open(t, t.TempDir(), func(o *Options[string]) { o.MemoryBytes = 0 })
	for n := range entries {
		body := make([]byte, size(n))
		seed(body, n)
		require.True(t, whole.add(n, "head", body))
		if n%50 == 0 {
			whole.Delete(keyOf(n / 2)) // so that pages are free
			whole.flush(t)
		}
	}
	kept := whole.Len()
	whole.stop()
	file, err := os.ReadFile(whole.disk.path())
	require.NoError(t, err)
	state, err := os.ReadFile(filepath.Join(whole.opts.Dir, stateName))
	require.NoError(t, err)

	pages := make(map[uint16][]int) // by kind, those that are in use
	for at := 0; at < len(file); {
		kind := binary.NativeEndian.Uint16(file[at+8:])
		run := 1 + int(binary.NativeEndian.Uint32(file[at+12:]))
		if binary.NativeEndian.Uint64(file[at:]) != uint64(at/filePage) || run > len(file)/filePage {
			run = 1 // free
		} else {
			pages[kind] = append(pages[kind], at)
		}
		at += run * filePage
	}
	for kind, name := range map[uint16]string{branchPage: "Branch", leafPage: "Leaf", metaPage: "Meta", freelistPage: "Freelist"} {
		require.NotEmpty(t, pages[kind], name)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for i, offset := range []int{0, 8, 10, 12, 16, 20, 24, 28, 32, 33, 40, 48, 56, 72, 200, 2000} {
				at := pages[kind][i*31%len(pages[kind])] + offset
				ts := open(t, t.TempDir(), func(o *Options[string]) { o.MemoryBytes = 0 })
				ts.stop()
				flipped := append([]byte(nil), file...)
				flipped[at] ^= byte(1 << (i % 8))
				require.NoError(t, os.WriteFile(ts.disk.path(), flipped, 0o600))
				require.NoError(t, os.WriteFile(filepath.Join(ts.opts.Dir, stateName), state, 0o600))
				ts.start(t)
				found := 0
				for n := range entries {
					if it, ok := ts.Get(keyOf(n)); ok {
						found++
						require.Equal(t, "head", it.Head())
						require.Equal(t, nameOf(n), it.name)
						if _, err := it.WriteTo(io.Discard); err == nil {
							require.True(t, verify(it))
						}
						it.Close()
					}
				}
				require.LessOrEqual(t, found, kept)
				for n := range entries { // replace and remove everything
					body := make([]byte, size(n))
					seed(body, n)
					if n%3 == 0 {
						ts.Delete(keyOf(n))
					} else {
						ts.add(n, "head", body)
					}
				}
				ts.flush(t)
				heals(t, ts)
				ts.restart(t)
				heals(t, ts) // the restart may find what was not met before
				ts.stop()
			}
		})
	}
}

// heals waits until entries are stored and found on disk.
func heals(t *testing.T, ts *testStore) {
	t.Helper()
	require.Eventually(t, func() bool {
		ts.add(1, "healed", nil)
		ts.flush(t)
		head, _, ok := ts.read(t, 1)
		return ok && head == "healed" && ts.Degraded() == ""
	}, patience, tick)
}
