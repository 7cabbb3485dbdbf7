package store

import (
	"errors"
	"fmt"
	"io/fs"
	"runtime/debug"
	"syscall"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

var (
	// errBroken means that the file is not sound and must be made anew.
	errBroken = errors.New("the cache's file is corrupt")
	// errPanic marks what was a panic: bbolt panics on pages that make no sense.
	errPanic = errors.New("panic")
	// errGone means that a record or chunk is not there: it was removed.
	errGone = errors.New("it is gone")
	// errNoRoom means that a batch does not fit into the file just now.
	errNoRoom = errors.New("the cache's file has no room")
	// errLocked means that another process uses the folder.
	errLocked = errors.New("another process uses it")
)

// guard turns a panic of the library, and a read beyond the end of a file that
// somebody has cut, into an error.
func guard(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %w: %v", errBroken, errPanic, r)
		}
	}()
	return f()
}

// update runs f in a write transaction under guard. Unlike the library's
// Update, it does not walk the whole file after a panic or an error of f: the
// walk would panic over a corrupt page in a goroutine of its own.
func (v *volume) update(f func(*bbolt.Tx) error) error {
	var tx *bbolt.Tx
	err := v.lasting(func() (err error) {
		tx, err = v.db.Begin(true)
		return err
	})
	if err == nil {
		err = guard(func() error {
			if err := f(tx); err != nil {
				return err
			}
			return tx.Commit()
		})
		if err != nil { // a failed commit may have ended it already
			_ = v.lasting(func() error { _ = tx.Rollback(); return nil })
		}
	}
	return classify(err)
}

// lasting is guard for what takes or gives back locks of the library, which
// keeps them when it panics.
func (v *volume) lasting(f func() error) error {
	err := guard(f)
	if errors.Is(err, errPanic) {
		v.stuck.Store(true)
	}
	return err
}

// classify tells faults of the disk, which pass, from those of the file's
// content.
func classify(err error) error {
	if err == nil || errors.Is(err, errBroken) {
		return err
	}
	if _, ok := errors.AsType[*fs.PathError](err); ok {
		return err
	}
	if _, ok := errors.AsType[syscall.Errno](err); ok {
		return err
	}
	if errors.Is(err, berrors.ErrMaxSizeReached) || errors.Is(err, berrors.ErrDatabaseNotOpen) || errors.Is(err, errGone) {
		return err
	}
	return fmt.Errorf("%w: %w", errBroken, err)
}
