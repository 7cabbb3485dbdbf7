package outbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// maxSlots bounds the outboxes of one folder.
const maxSlots = 256

// slot is the right to use one numbered file. It ends with the process, however
// that ends.
type slot struct {
	lock *os.File
	path string // of the outbox's file
}

// takeSlot takes the slot of that number, and returns nil if another holds it.
// It does not wait.
func takeSlot(dir string, number int) (*slot, error) {
	base := filepath.Join(dir, fmt.Sprintf("outbox-%d", number))
	// The lock is a file of its own: a corrupt outbox can be moved aside, and an
	// empty one removed, without anybody losing the lock.
	f, err := os.OpenFile(base+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	taken, err := lock(f)
	if taken {
		return &slot{lock: f, path: base + ".db"}, nil
	}
	_ = f.Close()
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", base+".lock", err)
	}
	return nil, nil
}

// firstSlot takes the first slot that is free.
func firstSlot(dir string) (*slot, error) {
	for n := range maxSlots {
		if s, err := takeSlot(dir, n); s != nil || err != nil {
			return s, err
		}
	}
	return nil, fmt.Errorf("all %d outboxes in %s are in use", maxSlots, dir)
}

// orphans takes the slots that nobody holds and that have a file.
func orphans(dir string) ([]*slot, error) {
	var out []*slot
	for n := range maxSlots {
		if _, err := os.Stat(filepath.Join(dir, fmt.Sprintf("outbox-%d.db", n))); errors.Is(err, os.ErrNotExist) {
			continue
		}
		s, err := takeSlot(dir, n)
		if err != nil {
			return out, err
		}
		if s != nil {
			out = append(out, s)
		}
	}
	return out, nil
}

// release gives the slot back.
func (s *slot) release() { _ = s.lock.Close() }

// moveAside renames the file of the slot; an older one in its place is lost.
func (s *slot) moveAside() error {
	err := os.Rename(s.path, s.path+".corrupt")
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}
