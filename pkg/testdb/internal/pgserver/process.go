package pgserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
)

// family returns the processes whose parent is pid, those that have exited
// left out.
func family(ctx context.Context, pid int) ([]int, error) {
	all, err := processes(ctx)
	if err != nil {
		return nil, err
	}
	var out []int
	for _, p := range all {
		if p.parent == pid && !p.exited {
			out = append(out, p.pid)
		}
	}
	return out, nil
}

type process struct {
	pid, parent int
	// exited is true of a zombie: only its entry is left.
	exited bool
}

// processes lists what runs on the machine: from /proc on Linux, where ps may
// be missing, and from ps elsewhere.
func processes(ctx context.Context) ([]process, error) {
	if runtime.GOOS == "linux" {
		return procProcesses()
	}
	out, err := exec.CommandContext(ctx, "ps", "-A", "-o", "pid=,ppid=,stat=").Output()
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var all []process
	for line := range bytes.Lines(out) {
		fields := bytes.Fields(line)
		if len(fields) < 3 {
			continue
		}
		all = appendProcess(all, string(fields[0]), string(fields[1]), fields[2][0])
	}
	return all, nil
}

func procProcesses() ([]process, error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var all []process
	for _, path := range stats {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // it ended in the meantime
		}
		// proc(5): pid (name) state ppid …; the name may hold anything.
		fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		if len(fields) < 2 {
			continue
		}
		all = appendProcess(all, filepath.Base(filepath.Dir(path)), string(fields[1]), fields[0][0])
	}
	return all, nil
}

func appendProcess(all []process, pid, parent string, state byte) []process {
	p, errPID := strconv.Atoi(pid)
	pp, errParent := strconv.Atoi(parent)
	if errPID != nil || errParent != nil {
		return all
	}
	return append(all, process{p, pp, state == 'Z' || state == 'X'})
}

// signal sends sig to each of the processes; those that have ended are fine.
func signal(sig syscall.Signal, pids ...int) error {
	var problems error
	for _, pid := range pids {
		if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
			problems = errors.Join(problems, fmt.Errorf("%s to process %d: %w", sig, pid, err))
		}
	}
	return problems
}
