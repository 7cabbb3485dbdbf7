package process

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// CPU returns the CPU time, user and system together, that the threads of a
// process have used so far. It has the scheduler's precision, where
// /proc/PID/stat counts in hundredths of a second. Threads that have ended are
// not in it: neither Go nor Postgres ends any while it works.
func CPU(pid int) (time.Duration, error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(files) == 0 {
		return 0, fmt.Errorf("process %d cannot be observed in /proc", pid)
	}
	var sum time.Duration
	for _, file := range files {
		line, err := os.ReadFile(file)
		if err != nil {
			return 0, fmt.Errorf("CPU time of process %d: %w", pid, err)
		}
		ran, _, _ := bytes.Cut(line, []byte(" "))
		ns, err := strconv.ParseInt(string(ran), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", file, err)
		}
		sum += time.Duration(ns)
	}
	return sum, nil
}

// memory returns VmRSS of a process in bytes.
func memory(pid int) (int64, error) {
	file := fmt.Sprintf("/proc/%d/status", pid)
	status, err := os.ReadFile(file)
	if err != nil {
		return 0, fmt.Errorf("memory of process %d: %w", pid, err)
	}
	for line := range bytes.Lines(status) {
		fields := bytes.Fields(line)
		if len(fields) != 3 || string(fields[0]) != "VmRSS:" {
			continue
		}
		kib, err := strconv.ParseInt(string(fields[1]), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", file, err)
		}
		return kib << 10, nil
	}
	return 0, fmt.Errorf("%s does not tell VmRSS", file)
}
