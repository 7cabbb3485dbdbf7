package pgserver

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// account is the user that the server runs as. The zero value is the user of
// this process.
type account struct {
	credential *syscall.Credential
}

// unprivileged picks the account: Postgres refuses to run as root, so root
// uses the account postgres, or else nobody.
func unprivileged() (account, error) {
	if os.Geteuid() != 0 {
		return account{}, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		found, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, errUID := strconv.ParseUint(found.Uid, 10, 32)
		gid, errGID := strconv.ParseUint(found.Gid, 10, 32)
		if err := errors.Join(errUID, errGID); err != nil {
			return account{}, fmt.Errorf("account %s: %w", name, err)
		}
		return account{&syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, nil
	}
	return account{}, errors.New("root cannot run Postgres, and there is no account postgres or nobody")
}

// attributes puts a child into a session of its own, so that a Ctrl-C at the
// terminal reaches only this process.
func (a account) attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: a.credential, Setsid: true}
}

// tempDir makes a folder that belongs to the account and that it can reach.
func (a account) tempDir() (string, error) {
	var problems error
	for _, base := range []string{os.TempDir(), "/tmp", "/var/tmp"} {
		if err := a.reaches(base); err != nil {
			problems = errors.Join(problems, err)
			continue
		}
		dir, err := os.MkdirTemp(base, "ccnq-pg-")
		if err != nil {
			problems = errors.Join(problems, err)
			continue
		}
		if a.credential != nil {
			err = os.Chown(dir, int(a.credential.Uid), int(a.credential.Gid))
		}
		if err != nil {
			return "", errors.Join(err, os.Remove(dir))
		}
		return dir, nil
	}
	return "", fmt.Errorf("no folder for temporary files: %w", problems)
}

// writeFile makes a file that only the account can read.
func (a account) writeFile(path, content string) error {
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		return err
	}
	if a.credential == nil {
		return nil
	}
	return os.Chown(path, int(a.credential.Uid), int(a.credential.Gid))
}

// reaches reports whether another user may enter every folder down to path.
func (a account) reaches(path string) error {
	if a.credential == nil {
		return nil
	}
	for dir := filepath.Clean(path); ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil {
			return err
		}
		if info.Mode()&fs.FileMode(0o001) == 0 {
			return fmt.Errorf("%s cannot be entered by an unprivileged user", dir)
		}
		if dir == filepath.Dir(dir) {
			return nil
		}
	}
}
