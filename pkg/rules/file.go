package rules

import (
	"crypto/sha256"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"
)

// settle is how long a File waits after the first sign of a change before it
// reads, so that an editor's several steps are one change.
const settle = 100 * time.Millisecond

// File is a rules file that is read again when it changes. All methods are
// safe for concurrent use.
//
// It watches the directory of the file, not the file, so that an editor's
// rename and the symbolic-link swap of a Kubernetes ConfigMap are seen; of a
// file that is a symbolic link, the directory it leads to as well. Some changes
// give no notification: those on network file systems, in a directory that was
// itself replaced, and of a file mounted alone into a container. For those
// there is Reload.
type File struct {
	path string
	log  *slog.Logger

	current  atomic.Pointer[Set]
	reloads  atomic.Uint64
	failures atomic.Uint64

	mu   sync.Mutex        // one reader at a time
	seen [sha256.Size]byte // of the last content or error, guarded by mu

	watcher *fsnotify.Watcher // nil if the system has none to give
	done    chan struct{}     // closed when the watching ends
	close   func() error

	attempted func(error) // called after each reading; tests wait for it
}

// OpenFile loads a rules file and watches it until Close. An error of the
// first load is returned (see [Load]). If the system gives no notification of
// changes, a warning is logged and only Reload reads the file again.
//
// Each load is logged, with a warning for each backtracking pattern. The log
// must not be nil.
func OpenFile(path string, log *slog.Logger) (*File, error) {
	return openFile(path, log, func(error) {})
}

func openFile(path string, log *slog.Logger, attempted func(error)) (*File, error) {
	f := &File{
		path:      path,
		log:       log.With("file", path),
		done:      make(chan struct{}),
		attempted: attempted,
	}
	f.startWatcher() // before the first reading, so that no change is missed
	set, seen, err := f.read()
	if err != nil {
		close(f.done)
		_ = f.closeWatcher()
		return nil, err
	}
	f.seen = seen
	f.use(set)
	if f.watcher == nil {
		close(f.done)
	} else {
		go f.watch()
	}
	f.close = sync.OnceValue(func() error {
		err := f.closeWatcher()
		<-f.done
		return err
	})
	return f, nil
}

// Current returns the rules in force, never nil.
func (f *File) Current() *Set { return f.current.Load() }

// Reload reads the file now. On an error the rules before stay in force; it is
// logged, counted and returned.
func (f *File) Reload() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.reload(false)
}

// Reloads returns how often new rules came into force, the first load not
// counted.
func (f *File) Reloads() uint64 { return f.reloads.Load() }

// Failures returns how often the file could not be read or parsed. The same
// broken content counts once however often the system reports a change.
func (f *File) Failures() uint64 { return f.failures.Load() }

// Close ends the watching and waits for its goroutine. The rules stay usable,
// and so does Reload. It may be called several times.
func (f *File) Close() error { return f.close() }

// read returns the rules of the file and a fingerprint of what was read.
func (f *File) read() (*Set, [sha256.Size]byte, error) {
	data, err := readFile(f.path)
	if err != nil {
		return nil, sha256.Sum256([]byte(err.Error())), err
	}
	set, err := Parse(f.path, data)
	return set, sha256.Sum256(data), err
}

// reload reads the file again; with onlyNew it does nothing if that gives what
// the last reading gave. The caller holds mu.
func (f *File) reload(onlyNew bool) error {
	f.followLinks()
	set, seen, err := f.read()
	if onlyNew && seen == f.seen {
		return nil
	}
	f.seen = seen
	if err != nil {
		f.failures.Add(1)
		f.log.Error("rules file is not usable, the rules before stay in force", "error", err)
	} else {
		f.reloads.Add(1)
		f.use(set)
	}
	f.attempted(err)
	return err
}

func (f *File) use(set *Set) {
	f.current.Store(set)
	f.log.Info("rules in force", "groups", len(set.groups))
	for _, b := range set.backtracking {
		f.log.Warn("pattern needs the slower backtracking engine", "pattern", b)
	}
}

func (f *File) startWatcher() {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		f.log.Warn("changes of the rules file are not noticed by themselves", "error", err)
		return
	}
	f.watcher = watcher
	f.followLinks()
}

func (f *File) closeWatcher() error {
	if f.watcher == nil {
		return nil
	}
	return f.watcher.Close()
}

// followLinks watches the directory of the file and, if the file is a symbolic
// link, that of its target, and no other.
func (f *File) followLinks() {
	if f.watcher == nil {
		return
	}
	dirs := []string{filepath.Dir(f.path)}
	if target, err := filepath.EvalSymlinks(f.path); err == nil && filepath.Dir(target) != dirs[0] {
		dirs = append(dirs, filepath.Dir(target))
	}
	watched := f.watcher.WatchList()
	for _, dir := range watched {
		if !slices.Contains(dirs, dir) {
			_ = f.watcher.Remove(dir) // it may be gone already
		}
	}
	for _, dir := range dirs {
		if slices.Contains(watched, dir) {
			continue
		}
		if err := f.watcher.Add(dir); err != nil && !errors.Is(err, fsnotify.ErrClosed) {
			f.log.Warn("changes in a directory are not noticed by themselves", "dir", dir, "error", err)
		}
	}
}

// watch reads the file some time after each change in a watched directory,
// until the watcher is closed. A directory in which something changes all the
// time delays nothing and costs ten readings a second.
func (f *File) watch() {
	defer close(f.done)
	var settled <-chan time.Time
	for {
		select {
		case _, ok := <-f.watcher.Events:
			if !ok {
				return
			}
		case err, ok := <-f.watcher.Errors:
			if !ok {
				return
			}
			f.log.Warn("a change of the rules file may have been missed", "error", err)
		case <-settled:
			settled = nil
			f.mu.Lock()
			_ = f.reload(true) // logged and counted
			f.mu.Unlock()
			continue
		}
		if settled == nil {
			settled = time.After(settle)
		}
	}
}
