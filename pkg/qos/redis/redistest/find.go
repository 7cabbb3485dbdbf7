package redistest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// installVariable lets [find] install a server.
const installVariable = "CCNQ_TEST_INSTALL"

// find returns the path of a server.
func find(ctx context.Context) (string, error) {
	if path, ok := search(); ok {
		return path, nil
	}
	if os.Getenv(installVariable) != "1" {
		return "", fmt.Errorf("no Redis server found: install one (apt-get install redis-server, dnf install redis, "+
			"apk add redis, brew install redis), or set %s=1 to have that done", installVariable)
	}
	// Test processes run side by side; the first installs, the others wait.
	lock, err := os.OpenFile(filepath.Join(os.TempDir(), "ccnq-test-install.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", fmt.Errorf("no Redis server found: %w", err)
	}
	defer lock.Close() // which unlocks
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", fmt.Errorf("no Redis server found: lock the installation: %w", err)
	}
	if path, ok := search(); ok {
		return path, nil
	}
	if err := install(ctx); err != nil {
		return "", fmt.Errorf("no Redis server found: %w", err)
	}
	if path, ok := search(); ok {
		return path, nil
	}
	return "", errors.New("no Redis server found, though one was installed")
}

func search() (string, bool) {
	for _, name := range []string{"redis-server", "valkey-server"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, true
		}
	}
	return "", false
}

// install uses the first package manager that the machine has.
func install(ctx context.Context) error {
	managers := []struct {
		name     string
		commands [][]string
	}{
		{"apt-get", [][]string{{"update", "-q"}, {"install", "-qy", "--no-install-recommends", "redis-server"}}},
		{"dnf", [][]string{{"install", "-qy", "redis"}}},
		{"apk", [][]string{{"add", "--quiet", "redis"}}},
		{"brew", [][]string{{"install", "--quiet", "redis"}}},
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
				return fmt.Errorf("%s %s: %w: %s", manager.name, args[0], err, out)
			}
		}
		return nil
	}
	return errors.New("none of apt-get, dnf, apk and brew is on this machine")
}
