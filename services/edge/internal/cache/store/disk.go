package store

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"
)

const (
	fileName  = "cache.db"
	stateName = "cache.state"
)

// disk is what the writer knows of the folder.
type disk struct {
	dir   string
	state *state // nil while the folder is not ours
	last  uint64 // the greatest id that was ever used
	pause time.Duration
	timer *time.Timer // nil unless a fault is waited out

	refusing atomic.Bool // while a fault is waited out; for everybody
}

func (d *disk) path() string { return filepath.Join(d.dir, fileName) }

// failed begins a pause.
func (d *disk) failed() {
	d.refusing.Store(true)
	d.pause = min(max(2*d.pause, firstPause), lastPause)
	if d.timer == nil {
		d.timer = time.NewTimer(d.pause)
	} else {
		d.timer.Reset(d.pause)
	}
}

// resume ends a pause. The next one is longer.
func (d *disk) resume() {
	d.refusing.Store(false)
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
}

// wrote ends the fault.
func (d *disk) wrote() {
	d.resume()
	d.pause = 0
}

// pausing says whether a fault is being waited out.
func (d *disk) pausing() bool { return d.timer != nil }

// retry fires when the pause is over.
func (d *disk) retry() <-chan time.Time {
	if d.timer == nil {
		return nil
	}
	return d.timer.C
}

// openDisk opens the file or makes one.
func (s *Store[H]) openDisk() {
	v, err := s.openFile()
	if err != nil {
		s.metrics.writeFailures.Inc()
		s.trouble.begin(s.opts.Logger, "the cache has no file and stores nothing", err)
		s.disk.failed()
		return
	}
	s.purges.restore(v.gen)
	s.volume.Store(v)
	s.disk.wrote()
	s.trouble.over(s.opts.Logger)
	s.wake(s.ring) // what load found to be removed
}

func (s *Store[H]) openFile() (*volume, error) {
	d := &s.disk
	if err := os.MkdirAll(d.dir, 0o700); err != nil {
		return nil, err
	}
	if d.state == nil {
		var err error
		if d.state, err = openState(filepath.Join(d.dir, stateName), s.opts.Realm); err != nil {
			return nil, err
		}
	}
	path := d.path()
	last := d.state.read()
	sound, next := d.state.sound(last, path)
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		next = phaseOpen
	case err != nil:
		return nil, err
	case last.phase != "" && last.realm != d.state.realm:
		s.opts.Logger.Info("the cache on disk is not kept: it was stored with other settings, or of another origin", "file", path)
		if err := s.removeFile(); err != nil {
			return nil, err
		}
		next = phaseOpen
	case !sound, info.Size() > int64(hardLimit(s.opts.MaxBytes)), s.purges.gen.Load() > 0:
		// It ended badly, or the budget was made smaller, or a purge came while it
		// was not at hand.
		s.opts.Logger.Info("the cache on disk is not kept", "file", path, "sound", sound)
		if err := s.removeFile(); err != nil {
			return nil, err
		}
		next = phaseOpen
	}
	if err := d.state.write(phaseOpening, 0); err != nil {
		return nil, err
	}
	v, err := s.openVolume()
	if errors.Is(err, errBroken) {
		s.metrics.rebuilt.Inc()
		s.opts.Logger.Error("the cache on disk is corrupt and not kept", "file", path, "error", err)
		if err := s.removeFile(); err != nil {
			return nil, err
		}
		next = phaseOpen
		v, err = s.openVolume()
	}
	if err != nil {
		return nil, err
	}
	if err := d.state.write(next, 0); err != nil {
		v.abandon(s.disk.path())
		return nil, err
	}
	return v, nil
}

func (s *Store[H]) openVolume() (*volume, error) {
	return openVolume(s.disk.path(), s.opts.MaxBytes, min(s.opts.MaxItemBytes, s.opts.MaxBytes/8), s.disk.last, func() { s.wake(s.ring); s.wake(s.hurry) })
}

func (s *Store[H]) removeFile() error {
	if err := os.Remove(s.disk.path()); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// failed deals with a batch that was not written.
func (s *Store[H]) failed(v *volume, err error) {
	s.metrics.writeFailures.Inc()
	if errors.Is(err, errBroken) || v.broken.Load() {
		s.discard(v, err)
		return
	}
	s.trouble.begin(s.opts.Logger, "the cache's file cannot be written: nothing new is stored", err)
	s.disk.failed()
}

// discard replaces a file that is not sound by a new one. All entries are lost.
func (s *Store[H]) discard(v *volume, cause error) {
	s.metrics.rebuilt.Inc()
	s.trouble.begin(s.opts.Logger, "the cache's file is corrupt and made anew", cause)
	s.close(v)
	v.abandon(s.disk.path())
	if err := s.removeFile(); err != nil {
		s.trouble.begin(s.opts.Logger, "the cache has no file and stores nothing", err)
		s.disk.failed()
		return
	}
	s.openDisk()
}

// close takes a volume out of use.
func (s *Store[H]) close(v *volume) {
	s.volume.Store(nil)
	v.index.mu.Lock()
	s.disk.last = max(s.disk.last, v.nextID)
	v.index.mu.Unlock()
	if s.tier != nil {
		s.tier.InvalidateAll()
	}
}

// recover tries again after a pause.
func (s *Store[H]) recover() {
	v := s.volume.Load()
	if v == nil {
		s.openDisk()
		return
	}
	s.disk.resume()
	s.writeBatch(v, nil)
}

// inspect looks whether the file is still in its place, and what is said of it.
func (s *Store[H]) inspect() {
	v := s.volume.Load()
	if v == nil {
		return
	}
	if v.broken.Load() || v.replaced(s.disk.path()) {
		s.discard(v, errors.New("somebody has removed or replaced it"))
		return
	}
	if s.disk.state.read().phase == phaseKept {
		_ = s.disk.state.write(phaseOpen, 0) // what goes wrong is met at the next start
	}
}

// closeDisk closes the file so that the next start can use it.
func (s *Store[H]) closeDisk() {
	s.settle(s.queue.takeAll(), errNotKept)
	if v := s.volume.Load(); v != nil {
		s.close(v)
		if s.finish.Err() == nil && !v.broken.Load() {
			crc, err := v.seal(s.disk.path(), s.opts.MaxBytes)
			if err == nil {
				err = s.disk.state.write(phaseClean, crc)
			}
			if err != nil {
				s.opts.Logger.Warn("the cache was not closed well and may not be kept", "error", err)
			}
		}
		v.abandon(s.disk.path())
	}
	s.disk.wrote()
	s.disk.state.close()
}
