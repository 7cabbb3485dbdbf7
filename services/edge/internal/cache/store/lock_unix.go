//go:build !windows

package store

import (
	"errors"
	"os"
	"syscall"
)

// lock takes the exclusive lock of an open file, or reports that another has
// it. The system gives it back when the file is closed.
func lock(f *os.File) (taken bool, err error) {
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) // a descriptor is small
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}
