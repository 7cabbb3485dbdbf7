package cluster

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/pkg/admin"
)

// Log keeps what a service logs.
type Log struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write takes one line.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// Logger writes to the log.
func (l *Log) Logger() *slog.Logger { return admin.NewLogger(l, slog.LevelInfo) }

// Text returns everything so far.
func (l *Log) Text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// Lines returns the lines with the given message.
func (l *Log) Lines(t testing.TB, message string) []map[string]any {
	t.Helper()
	var found []map[string]any
	for line := range bytes.Lines([]byte(l.Text())) {
		var fields map[string]any
		require.NoError(t, json.Unmarshal(line, &fields), "a log line is not JSON: %s", line)
		if fields["msg"] == message {
			found = append(found, fields)
		}
	}
	return found
}

// shown is how much of a log a failed test shows.
const shown = 8 << 10

func (l *Log) showIfFailed(t testing.TB, who string) {
	t.Helper()
	if t.Failed() {
		text := l.Text()
		t.Logf("log of the %s, its end:\n%s", who, text[max(0, len(text)-shown):])
	}
}

// loopback is the address of a listener, by way of the loopback interface.
func loopback(addr net.Addr) string {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok {
		return addr.String()
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(tcp.Port))
}
