package qoscluster

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/pkg/bus"
	"github.com/ccnq/ccnq/pkg/qos"
	"github.com/ccnq/ccnq/pkg/wire"
)

// logBuffer is a log that may be read while it is written.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) count(what string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), what)
}

// TestReadingThatFailsIsSaid: while the stream is not there the log has one line about
// it, and the lists are heard as soon as it is.
func TestReadingThatFailsIsSaid(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	var log logBuffer
	s := New(Options{EdgeID: "edge-1", Conn: b.conn, Logger: slog.New(slog.NewJSONHandler(&log, nil))})
	t.Cleanup(s.Stop)
	s.lists.firstPause, s.lists.longestPause = time.Millisecond, 4*time.Millisecond
	var h heard
	require.NoError(t, s.Start(h.apply))
	said := func() bool { return log.count("cannot be read") > 0 }
	require.Eventually(t, said, patience, look)
	require.Equal(t, 1, log.count("cannot be read"))

	b.streams()
	b.write(1, 1, "203.0.113.1")
	require.Eventually(t, func() bool { return h.len() == 1 }, patience, look)
	require.Equal(t, 1, log.count("cannot be read"))
}

// TestNobodyWaitsForTables: health is told, and pieces are heard, while lists are made
// into tables; newer lists follow, older ones do not.
func TestNobodyWaitsForTables(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	s := b.store()
	entered, goOn := make(chan struct{}), make(chan struct{})
	var first sync.Once
	var h heard
	s.lists.pieces = map[string]piece{}
	s.lists.apply = func(l *qos.Blocklists) {
		first.Do(func() {
			close(entered)
			<-goOn
		})
		h.apply(l)
	}
	hear := func(subject string, m wire.Message) {
		s.hear(bus.StreamMessage{Subject: subject, Data: encoded(t, m)}, true)
	}
	lists := func(version int64, ip string) {
		hear(wire.QoSPieceSubject(0), wire.QoSLists{Term: 1, Version: version, IPs: []string{ip}})
	}
	mark := func(version int64) {
		hear(wire.SubjectQoSMark, wire.QoSMark{Term: 1, Version: version, Pieces: 1, Written: time.Now().UTC()})
	}
	var work sync.WaitGroup
	lists(1, "203.0.113.1")
	work.Go(func() { mark(1) })
	<-entered
	heard := make(chan error)
	go func() {
		lists(3, "203.0.113.3")
		heard <- s.Err()
	}()
	select {
	case err := <-heard:
		require.NoError(t, err)
	case <-time.After(patience):
		require.Fail(t, "the store waits for the tables")
	}
	work.Go(func() { mark(3) })
	close(goOn)
	work.Wait()
	require.Equal(t, []string{"203.0.113.3"}, h.last().IPs)
	require.Equal(t, 2, h.len())

	// As if another goroutine had been faster with newer ones.
	s.lists.applied.Version = 9
	lists(4, "203.0.113.4")
	mark(4)
	require.Equal(t, 2, h.len())
}
