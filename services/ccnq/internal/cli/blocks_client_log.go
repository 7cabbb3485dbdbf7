package cli

import (
	"context"
	"log/slog"
	"sync"
)

// lastError is a log that keeps the last error in it, to tell why a connection
// could not be made.
type lastError struct {
	mu  sync.Mutex
	err string
}

// Enabled takes warnings.
func (l *lastError) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }

// Handle keeps the error of a line.
func (l *lastError) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "error" {
			l.mu.Lock()
			l.err = a.Value.String()
			l.mu.Unlock()
		}
		return true
	})
	return nil
}

// WithAttrs ignores what is the same in each line.
func (l *lastError) WithAttrs([]slog.Attr) slog.Handler { return l }

// WithGroup likewise.
func (l *lastError) WithGroup(string) slog.Handler { return l }

// text is the end of a sentence.
func (l *lastError) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == "" {
		return ""
	}
	return ": " + l.err
}
