package pgserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"syscall"
)

// InstallVariable is the variable that, set to 1, lets [Find] install Postgres.
const InstallVariable = "CCNQ_TEST_INSTALL"

// ErrNotFound is wrapped by the error of [Find] when the machine has no
// Postgres server.
var ErrNotFound = errors.New("no Postgres server found")

// places are the folders in which distributions keep the server, besides PATH.
var places = []string{
	"/usr/lib/postgresql/*/bin",   // Debian, Ubuntu
	"/usr/libexec/postgresql*",    // Alpine
	"/usr/pgsql-*/bin",            // PGDG on Fedora, RHEL
	"/usr/local/pgsql/bin",        // built from source
	"/opt/homebrew/opt/*sql*/bin", // Homebrew on Apple silicon
	"/usr/local/opt/*sql*/bin",    // Homebrew on Intel
	"/Library/PostgreSQL/*/bin",   // EDB installer
	"/Applications/Postgres.app/Contents/Versions/*/bin",
}

// Binaries is the folder of one installed server.
type Binaries struct {
	// Dir has at least postgres and initdb in it.
	Dir string
	// Major is the major version, such as 17.
	Major int
}

// Find returns the newest server on the machine: from PATH or from the folders
// that distributions use. If there is none and [InstallVariable] is 1, it
// installs one with the system's package manager. Otherwise the error wraps
// [ErrNotFound] and says in one line what to install.
func Find(ctx context.Context) (Binaries, error) {
	found, ok := search(ctx)
	if ok {
		return found, nil
	}
	if os.Getenv(InstallVariable) != "1" {
		return Binaries{}, fmt.Errorf("%w: install one (apt-get install postgresql, dnf install postgresql-server, "+
			"apk add postgresql, brew install postgresql), or set %s=1 to have that done, "+
			"or set %s to one that runs", ErrNotFound, InstallVariable, URLVariable)
	}
	// Test processes run side by side; the first installs, the others wait.
	unlock, err := lockFile(filepath.Join(os.TempDir(), "ccnq-test-install.lock"))
	if err != nil {
		return Binaries{}, fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	defer unlock()
	if found, ok = search(ctx); ok {
		return found, nil
	}
	if err := install(ctx); err != nil {
		return Binaries{}, fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	if found, ok = search(ctx); ok {
		return found, nil
	}
	return Binaries{}, fmt.Errorf("%w, though one was installed", ErrNotFound)
}

func search(ctx context.Context) (Binaries, bool) {
	dirs := filepath.SplitList(os.Getenv("PATH"))
	for _, place := range places {
		matches, err := filepath.Glob(place)
		if err != nil {
			continue
		}
		dirs = append(dirs, matches...)
	}
	var all []Binaries
	for _, dir := range dirs {
		if major, ok := version(ctx, dir); ok {
			all = append(all, Binaries{dir, major})
		}
	}
	if len(all) == 0 {
		return Binaries{}, false
	}
	return slices.MaxFunc(all, func(a, b Binaries) int { return cmp.Compare(a.Major, b.Major) }), true
}

var versionLine = regexp.MustCompile(`^postgres \(PostgreSQL\) (\d+)`)

// version returns the major version of the server in dir.
func version(ctx context.Context, dir string) (int, bool) {
	if _, err := os.Stat(filepath.Join(dir, "initdb")); err != nil {
		return 0, false
	}
	out, err := exec.CommandContext(ctx, filepath.Join(dir, "postgres"), "--version").Output()
	if err != nil {
		return 0, false
	}
	match := versionLine.FindSubmatch(out)
	if match == nil {
		return 0, false
	}
	major, err := strconv.Atoi(string(match[1]))
	return major, err == nil
}

// install uses the first package manager that the machine has.
func install(ctx context.Context) error {
	managers := []struct {
		name     string
		commands [][]string
	}{
		{"apt-get", [][]string{{"update", "-q"}, {"install", "-qy", "--no-install-recommends", "postgresql"}}},
		{"dnf", [][]string{{"install", "-qy", "postgresql-server"}}},
		{"apk", [][]string{{"add", "--quiet", "postgresql"}}},
		{"brew", [][]string{{"install", "--quiet", "postgresql"}}},
	}
	for _, manager := range managers {
		path, err := exec.LookPath(manager.name)
		if err != nil {
			continue
		}
		for _, args := range manager.commands {
			cmd := exec.CommandContext(ctx, path, args...)
			cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
			if out, err := cmd.CombinedOutput(); err != nil {
				return fmt.Errorf("%s %s: %w: %s", manager.name, args[0], err, tail(out))
			}
		}
		return nil
	}
	return errors.New("none of apt-get, dnf, apk and brew is on this machine")
}

// lockFile takes an exclusive lock between processes; the kernel drops it when
// the process ends.
func lockFile(path string) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lock: %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), file.Close())
	}
	return func() { _ = file.Close() }, nil
}

// tail returns the end of a log, for an error message.
func tail(out []byte) string {
	const most = 2000
	if len(out) > most {
		return "…" + string(out[len(out)-most:])
	}
	return string(out)
}
