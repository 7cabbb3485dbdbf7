//go:build !windows

package outbox

import (
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	patience = 20 * time.Second
	tick     = time.Millisecond
)

// TestADiskThatIsFull lets no file of the process grow any more, which fails a
// write as a full disk does. It owns the process, so it is not parallel.
func TestADiskThatIsFull(t *testing.T) {
	signal.Ignore(syscall.SIGXFSZ)
	s := newStream()
	s.set(true, false)
	o := start(t, t.TempDir(), s.publish)
	o.deny(10)
	require.Eventually(t, func() bool { n, _, _ := o.waiting(); return n > 0 }, patience, tick)
	info, err := os.Stat(o.slot.path)
	require.NoError(t, err)

	var was syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_FSIZE, &was))
	full := was
	full.Cur = uint64(info.Size())
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &full))
	room := func() { require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &was)) }
	defer room()
	written := 10
	for ; written < 10_000; written++ { // more than the file has room for
		addr, group := address(written)
		o.Record(QueueFull, addr, group, "/"+strings.Repeat("x", 200), noon)
	}
	require.Eventually(t, func() bool { return o.Degraded() != "" }, patience, tick)
	room()
	o.deny(10)
	written += 10
	require.Eventually(t, func() bool { return o.Degraded() == "" }, patience, tick, "it heals")
	s.set(false, false)
	s.until(t, written)
	require.Equal(t, 1, strings.Count(o.log.String(), "cannot be written:"), "told once")
	require.Contains(t, o.log.String(), "can be written again")
	require.Len(t, s.applied, 2, "what waited in memory has an outbox of its own")
}
