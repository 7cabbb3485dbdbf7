package listen

import (
	"bytes"
	"context"
	"log"
	"log/slog"
	"sync"
	"time"
)

// errorLines is how many lines of net/http are passed on within one second.
const errorLines = 10

// errorLog passes on to slog what net/http writes to its ErrorLog. Clients cause these lines, so their rate is
// bounded.
type errorLog struct {
	logger *slog.Logger
	now    func() time.Time

	mu      sync.Mutex
	dropped int
	lines   int
	second  time.Time
}

func newErrorLog(logger *slog.Logger) *log.Logger {
	return log.New(&errorLog{logger: logger, now: time.Now}, "", 0)
}

// Write takes one line. It never fails.
func (e *errorLog) Write(line []byte) (int, error) {
	level := slog.LevelDebug
	if bytes.HasPrefix(line, []byte("http: panic serving")) || bytes.HasPrefix(line, []byte("http2: panic serving")) {
		level = slog.LevelError
	}
	if !e.logger.Enabled(context.Background(), level) {
		return len(line), nil
	}
	dropped, ok := e.admit()
	if dropped > 0 {
		e.logger.Warn("messages of the HTTP server were dropped", "count", dropped)
	}
	if ok {
		e.logger.Log(context.Background(), level, "net/http", "message", string(bytes.TrimRight(line, "\n")))
	}
	return len(line), nil
}

// admit says whether this line is within the rate, and how many were dropped in the second that has just ended.
func (e *errorLog) admit() (dropped int, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if now := e.now(); now.Sub(e.second) >= time.Second {
		dropped, e.dropped, e.lines, e.second = e.dropped, 0, 0, now
	}
	if e.lines == errorLines {
		e.dropped++
		return dropped, false
	}
	e.lines++
	return dropped, true
}
