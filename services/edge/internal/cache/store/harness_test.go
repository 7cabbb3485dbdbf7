package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
)

const (
	patience = 20 * time.Second
	tick     = time.Millisecond
	hour     = time.Hour
)

// textCodec has strings for heads.
var textCodec = Codec[string]{
	Append: func(b []byte, head string) []byte { return append(b, head...) },
	Decode: func(b []byte) (string, error) {
		if bytes.HasPrefix(b, []byte("bad")) {
			return "", errors.New("a bad head")
		}
		return string(b), nil
	},
	Size: func(head string) int { return len(head) },
}

// logBook is a log that may be read.
type logBook struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// clock is set by hand.
type clock struct {
	mu sync.Mutex
	t  time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}

var noon = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

// testStore is a store and what it works with.
type testStore struct {
	*Store[string]
	log   *logBook
	clock *clock
	opts  Options[string]
}

// open opens a store in dir. The test stops it.
func open(t testing.TB, dir string, change ...func(*Options[string])) *testStore {
	t.Helper()
	ts := &testStore{log: new(logBook), clock: &clock{t: noon}}
	ts.opts = Options[string]{
		Codec: textCodec, Dir: dir, MaxBytes: 64 << 20, MaxItemBytes: 10 << 20, MemoryBytes: 8 << 20,
		SweepInterval: hour, Now: ts.clock.now, Logger: slog.New(slog.NewTextHandler(ts.log, nil)),
	}
	for _, f := range change {
		f(&ts.opts)
	}
	ts.start(t)
	return ts
}

func (ts *testStore) start(t testing.TB) {
	t.Helper()
	ts.opts.Registerer = prometheus.NewRegistry()
	var err error
	ts.Store, err = Open(ts.opts)
	require.NoError(t, err)
	t.Cleanup(func() { ts.stop() })
}

func (ts *testStore) stop() { ts.Stop(context.Background()) }

// restart closes the store and opens it again.
func (ts *testStore) restart(t testing.TB) {
	t.Helper()
	ts.stop()
	ts.start(t)
}

// flush waits until all is on disk.
func (ts *testStore) flush(t testing.TB) {
	t.Helper()
	for {
		done := make(chan error, 1)
		if !ts.queue.add(op[string]{done: done}) {
			return // stopped
		}
		ts.wake(ts.ring)
		ts.wake(ts.hurry)
		select {
		case <-done: //nolint:errcheck // whether it was written does not matter
		case <-time.After(patience):
			require.Fail(t, "the writer does not answer")
		}
		if v := ts.volume.Load(); v == nil || !v.index.hasDead() {
			return
		}
	}
}

// cold forgets what is in memory.
func (ts *testStore) cold(t testing.TB) {
	t.Helper()
	ts.flush(t)
	if ts.tier != nil {
		ts.tier.InvalidateAll()
	}
}

func keyOf(n int) Key {
	h := sha256.Sum256(binary.BigEndian.AppendUint64(nil, uint64(n)))
	return Key(h[:16])
}

func nameOf(n int) string { return fmt.Sprintf("host%d.example/page/%d", n%3, n) }

// numberOf is the n of nameOf.
func numberOf(name string) int {
	var host, n int
	if _, err := fmt.Sscanf(name, "host%d.example/page/%d", &host, &n); err != nil {
		return -1
	}
	return n
}

// bodyOf is a body that no other key or version has.
func bodyOf(n, version, size int) []byte {
	b := make([]byte, size)
	r := rand.NewChaCha8([32]byte{byte(n), byte(n >> 8), byte(n >> 16), byte(version), byte(version >> 8)})
	_, _ = r.Read(b)
	return b
}

// add stores an entry with a body in pieces.
func (ts *testStore) add(n int, head string, body []byte) bool {
	var pieces [][]byte
	for rest := body; len(rest) > 0; {
		m := min(len(rest), 40_000)
		pieces, rest = append(pieces, rest[:m:m]), rest[m:]
	}
	return ts.Put(Entry[string]{
		Key: keyOf(n), Name: nameOf(n), Since: ts.Generation(), Head: head, Body: pieces, Until: ts.clock.now().Add(hour),
	})
}

// read returns what is stored, or false.
func (ts *testStore) read(t testing.TB, n int) (head string, body []byte, ok bool) {
	t.Helper()
	it, ok := ts.Get(keyOf(n))
	if !ok {
		return "", nil, false
	}
	defer it.Close()
	require.Equal(t, nameOf(n), it.name)
	return it.Head(), content(t, it), true
}

// content reads a body in every way.
func content(t testing.TB, it *Item[string]) []byte {
	t.Helper()
	var b bytes.Buffer
	n, err := it.WriteTo(&b)
	require.NoError(t, err)
	require.Equal(t, it.Size(), n)
	require.Equal(t, it.Size(), int64(b.Len()))
	if it.Body() != nil {
		require.True(t, bytes.Equal(b.Bytes(), it.Body()))
	}
	return b.Bytes()
}

// requireHas checks one entry.
func (ts *testStore) requireHas(t testing.TB, n int, head string, body []byte) {
	t.Helper()
	h, b, ok := ts.read(t, n)
	require.True(t, ok, "entry %d", n)
	require.Equal(t, head, h)
	require.True(t, bytes.Equal(body, b), "body of entry %d", n)
}

// metric is the sum of a metric over its labels.
func (ts *testStore) metric(t testing.TB, name string) float64 {
	t.Helper()
	families, err := ts.opts.Registerer.(*prometheus.Registry).Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() == name {
			sum := 0.0
			for _, m := range f.GetMetric() {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
			return sum
		}
	}
	require.Fail(t, "no such metric", name)
	return 0
}
