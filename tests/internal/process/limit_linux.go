package process

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// LimitFiles lets no file of the process grow beyond a size, as on a disk that is
// full. Without a size it may again.
func (p *Process) LimitFiles(t testing.TB, size ...uint64) {
	t.Helper()
	limit := unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}
	if len(size) > 0 {
		limit.Cur = size[0]
	}
	require.NoError(t, unix.Prlimit(p.cmd.Process.Pid, unix.RLIMIT_FSIZE, &limit, nil))
}
