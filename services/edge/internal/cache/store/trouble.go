package store

import (
	"log/slog"
	"sync"
)

// trouble is the fault that the store is in, if any. It is logged once.
type trouble struct {
	mu     sync.Mutex
	why    string
	warned bool // of an entry that does not read
}

// begin notes a fault.
func (t *trouble) begin(logger *slog.Logger, why string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.why != why {
		t.why = why
		logger.Error(why, "error", err) //nolint:sloglint // a constant of the caller
	}
}

// over notes that all is well.
func (t *trouble) over(logger *slog.Logger) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.why != "" {
		t.why = ""
		logger.Info("the cache stores again")
	}
}

// once logs a fault that concerns one entry, the first time.
func (t *trouble) once(logger *slog.Logger, msg string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.warned {
		t.warned = true
		logger.Error(msg, "error", err) //nolint:sloglint // a constant of the caller
	}
}

func (t *trouble) reason() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.why
}
