//go:build !windows

package store

import (
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestADiskThatIsFull lets no file of the process grow any more, which fails a
// write as a full disk does. It owns the process, so it is not parallel.
func TestADiskThatIsFull(t *testing.T) {
	signal.Ignore(syscall.SIGXFSZ)
	ts := open(t, t.TempDir(), func(o *Options[string]) { o.MemoryBytes = 0 })
	for n := range 100 {
		require.True(t, ts.add(n, "head", bodyOf(n, 0, 50_000)))
	}
	ts.flush(t)
	info, err := os.Stat(ts.disk.path())
	require.NoError(t, err)

	var was syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_FSIZE, &was))
	full := was
	full.Cur = uint64(info.Size())
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &full))
	room := func() { require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &was)) }
	defer room()
	for n := 100; ts.Degraded() == ""; n++ { // more than the file has room for
		ts.add(n, "head", bodyOf(n, 0, 500_000))
		ts.flush(t)
	}
	for n := range 100 {
		ts.requireHas(t, n, "head", bodyOf(n, 0, 50_000))
	}
	room()
	require.Eventually(t, func() bool {
		ts.add(1, "healed", nil)
		ts.flush(t)
		return ts.Degraded() == ""
	}, patience, tick, "it heals")
	ts.requireHas(t, 1, "healed", nil)
	require.Positive(t, ts.metric(t, "ccnq_cache_write_failures_total"))
	require.Equal(t, 1, strings.Count(ts.log.String(), "cannot be written"), "told once")
	ts.restart(t)
	ts.requireHas(t, 1, "healed", nil)
	for n := 2; n < 100; n++ {
		ts.requireHas(t, n, "head", bodyOf(n, 0, 50_000))
	}
}
