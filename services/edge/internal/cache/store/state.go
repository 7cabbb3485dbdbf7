package store

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
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
// the last one ended. It is one line: format, realm, phase, boot id, checksum.
type state struct {
	f     *os.File
	boot  string
	realm string // a digest of Options.Realm
}

const (
	stateFormat   = "ccnq-cache-2"
	maxStateBytes = 256
)

// openState opens and locks the state at path; the error wraps [errLocked]
// when another process has it.
func openState(path, realm string) (*state, error) {
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
	return &state{f: f, boot: bootID(), realm: digestRealm(realm)}, nil
}

// lastLife is what the line says.
type lastLife struct {
	realm string
	phase phase // empty if the line does not read
	boot  string
	crc   uint32 // of a clean one
}

// read returns what is known of the last life.
func (s *state) read() lastLife {
	b, err := io.ReadAll(io.NewSectionReader(s.f, 0, maxStateBytes))
	if err != nil {
		return lastLife{}
	}
	return parseState(string(b))
}

func parseState(line string) lastLife {
	fields := strings.Split(line, " ")
	if len(fields) != 5 || fields[0] != stateFormat {
		return lastLife{}
	}
	l := lastLife{realm: fields[1], phase: phase(fields[2]), boot: fields[3]}
	if _, err := fmt.Sscanf(fields[4], "%08x\n", &l.crc); err != nil || line != l.line() {
		return lastLife{}
	}
	return l
}

func (l lastLife) line() string {
	return fmt.Sprintf("%s %s %s %s %08x\n", stateFormat, l.realm, l.phase, l.boot, l.crc)
}

// digestRealm makes one word of a realm, which may be long and have blanks.
func digestRealm(realm string) string {
	sum := sha256.Sum256([]byte(realm))
	return hex.EncodeToString(sum[:8])
}

// write makes p the phase, safe against a power cut.
func (s *state) write(p phase, crc uint32) error {
	line := lastLife{realm: s.realm, phase: p, boot: s.boot, crc: crc}.line()
	if _, err := s.f.WriteAt([]byte(line), 0); err != nil {
		return err
	}
	return errors.Join(s.f.Truncate(int64(len(line))), s.f.Sync())
}

// sound says whether the file at path can be used: it was closed well and its
// list of free pages is what it was then; or the process was killed while it
// was in use, but the machine was not, so that the system has all that was
// written.
func (s *state) sound(l lastLife, path string) (ok bool, next phase) {
	switch l.phase {
	case phaseClean:
		now, err := checksumFile(path)
		return err == nil && now == l.crc, phaseOpen
	case phaseOpen:
		return l.boot == s.boot && l.boot != unknownBoot, phaseKept
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
