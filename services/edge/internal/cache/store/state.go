package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"strings"

	"go.etcd.io/bbolt"
)

// phase says how far the last life of the file came.
type phase string

const (
	// phaseOpening: the library reads the file. Who dies here would die again.
	phaseOpening phase = "opening"
	// phaseKept: the file was kept after an unclean end, and has not been in
	// use for long.
	phaseKept phase = "kept"
	// phaseOpen: in use.
	phaseOpen phase = "open"
	// phaseClean: closed well, and synced.
	phaseClean phase = "clean"
)

// state is the file beside the store's that is locked by its user, and says
// how the last one ended. It is one line: format, phase, boot id, checksum.
type state struct {
	f    *os.File
	boot string
}

const (
	stateFormat   = "ccnq-cache-1"
	maxStateBytes = 256
)

// openState opens and locks the state at path; the error wraps [errLocked]
// when another process has it.
func openState(path string) (*state, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	taken, err := lock(f)
	if err == nil && !taken {
		err = fmt.Errorf("%s: %w", path, errLocked)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return &state{f: f, boot: bootID()}, nil
}

// read returns the phase of the last life, the boot it was in, and the checksum
// of a clean one. What does not read has no phase.
func (s *state) read() (p phase, boot string, crc uint32) {
	b, err := io.ReadAll(io.NewSectionReader(s.f, 0, maxStateBytes))
	if err != nil {
		return "", "", 0
	}
	return parseState(string(b))
}

func parseState(line string) (p phase, boot string, crc uint32) {
	fields := strings.Split(line, " ")
	if len(fields) != 4 || fields[0] != stateFormat {
		return "", "", 0
	}
	p, boot = phase(fields[1]), fields[2]
	if _, err := fmt.Sscanf(fields[3], "%08x\n", &crc); err != nil || line != stateLine(p, boot, crc) {
		return "", "", 0
	}
	return p, boot, crc
}

func stateLine(p phase, boot string, crc uint32) string {
	return fmt.Sprintf("%s %s %s %08x\n", stateFormat, p, boot, crc)
}

// write makes p the phase, safe against a power cut.
func (s *state) write(p phase, crc uint32) error {
	line := stateLine(p, s.boot, crc)
	if _, err := s.f.WriteAt([]byte(line), 0); err != nil {
		return err
	}
	return errors.Join(s.f.Truncate(int64(len(line))), s.f.Sync())
}

// sound says whether the file at path can be used: it was closed well and its
// list of free pages is what it was then; or the process was killed while it
// was in use, but the machine was not, so that the system has all that was
// written.
func (s *state) sound(path string) (ok bool, next phase) {
	p, boot, crc := s.read()
	switch p {
	case phaseClean:
		now, err := checksumFile(path)
		return err == nil && now == crc, phaseOpen
	case phaseOpen:
		return boot == s.boot && boot != unknownBoot, phaseKept
	default:
		return false, phaseOpen
	}
}

func (s *state) close() {
	if s != nil {
		_ = s.f.Close()
	}
}

// unknownBoot stands for the boot id of a system that has none.
const unknownBoot = "unknown"

// bootID is another one each time the machine starts.
func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	id := strings.TrimSpace(string(b))
	if err != nil || id == "" || len(id) > 64 || strings.ContainsAny(id, " \n") {
		return unknownBoot
	}
	return id
}

// checksumFile is a checksum of what the library believes without looking: the
// meta pages and the list of free pages.
func checksumFile(path string) (uint32, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	metas := make([]byte, 2*filePage)
	if _, err := f.ReadAt(metas, 0); err != nil {
		return 0, err
	}
	const (
		freelistAt = pageHeader + 32 // in the page
		txidAt     = pageHeader + 48
		overflowAt = 12
	)
	last := metas[:filePage]
	if other := metas[filePage:]; binary.NativeEndian.Uint64(other[txidAt:]) > binary.NativeEndian.Uint64(last[txidAt:]) {
		last = other
	}
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	pages := uint64(info.Size()) / filePage
	free := binary.NativeEndian.Uint64(last[freelistAt:])
	head := make([]byte, pageHeader)
	if free >= pages {
		return 0, errBroken
	}
	if _, err := f.ReadAt(head, int64(free*filePage)); err != nil {
		return 0, err
	}
	run := uint64(binary.NativeEndian.Uint32(head[overflowAt:])) + 1
	if run > pages-free {
		return 0, errBroken
	}
	crc := crc32.New(castagnoli)
	_, _ = crc.Write(metas) // never fails
	if _, err := io.Copy(crc, io.NewSectionReader(f, int64(free*filePage), int64(run*filePage))); err != nil {
		return 0, err
	}
	return crc.Sum32(), nil
}

// seal closes the file so that it can be opened again without a walk through
// all of it, and returns its checksum.
func (v *volume) seal(path string, maxBytes int64) (uint32, error) {
	v.db.NoFreelistSync = false
	v.db.MaxSize = hardLimit(maxBytes)
	if err := v.update(func(*bbolt.Tx) error { return nil }); err != nil {
		return 0, err
	}
	if err := errors.Join(v.db.Sync(), v.db.Close()); err != nil {
		return 0, err
	}
	return checksumFile(path)
}
