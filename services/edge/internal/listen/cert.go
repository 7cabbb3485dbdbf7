package listen

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// certificate is a key pair in two files, read again when one of them changes.
type certificate struct {
	certFile, keyFile string
	logger            *slog.Logger

	mu      sync.Mutex
	current *tls.Certificate
	seen    [2]fileState // of the last attempt to read, successful or not
}

// fileState tells two contents of a file apart.
type fileState struct {
	modified time.Time
	size     int64
}

// get is called at every TLS handshake. It looks at both files, which costs two stat calls, little beside a
// handshake. A pair that cannot be read is reported once; the next change of a file is the next attempt.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if state, err := c.stat(); err == nil && state != c.seen {
		if err := c.load(state); err != nil {
			c.logger.Warn("the new TLS certificate cannot be used, the old one stays", "error", err)
		}
	}
	return c.current, nil
}

// reload reads the files in any case.
func (c *certificate) reload() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	state, err := c.stat()
	if err != nil {
		return fmt.Errorf("listen: TLS certificate: %w", err)
	}
	return c.load(state)
}

func (c *certificate) load(state [2]fileState) error {
	c.seen = state
	pair, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		return fmt.Errorf("listen: TLS certificate %s with key %s: %w", c.certFile, c.keyFile, err)
	}
	c.current = &pair
	return nil
}

func (c *certificate) stat() (state [2]fileState, err error) {
	for i, name := range [...]string{c.certFile, c.keyFile} {
		info, err := os.Stat(name)
		if err != nil {
			return state, err
		}
		state[i] = fileState{modified: info.ModTime(), size: info.Size()}
	}
	return state, nil
}
