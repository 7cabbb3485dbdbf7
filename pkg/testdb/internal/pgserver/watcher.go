package pgserver

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
)

// watchScript runs until its standard input ends, then stops the server whose
// process id stands in the file pid, and removes the folder. The server
// itself kills what does not follow within 5 seconds, also processes that are
// frozen.
const watchScript = `
trap '' HUP INT TERM
cat >/dev/null
if pid=$(cat "$1/pid" 2>/dev/null); then
	kill -CONT "$pid" 2>/dev/null
	kill -QUIT "$pid" 2>/dev/null
	tries=0
	while kill -0 "$pid" 2>/dev/null && [ $tries -lt 100 ]; do
		tries=$((tries + 1))
		sleep 0.1
	done
fi
cd / && rm -rf "$1"
`

// watcher cleans up after this process. It runs as the account of the server,
// so it can harm nothing else.
type watcher struct {
	cmd  *exec.Cmd
	pipe *os.File
}

func startWatcher(dir string, as account) (*watcher, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start the watcher: %w", err)
	}
	defer read.Close()
	cmd := exec.Command("/bin/sh", "-c", watchScript, "ccnq-pg-watcher", dir)
	cmd.Dir = "/"
	cmd.Stdin = read
	cmd.SysProcAttr = as.attributes()
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start the watcher: %w", err), write.Close())
	}
	return &watcher{cmd, write}, nil
}

// close lets the watcher do its work and waits for it.
func (w *watcher) close() error {
	err := w.pipe.Close()
	if waitErr := w.cmd.Wait(); waitErr != nil {
		err = errors.Join(err, fmt.Errorf("watcher: %w", waitErr))
	}
	return err
}
