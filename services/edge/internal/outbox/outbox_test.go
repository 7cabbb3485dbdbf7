package outbox

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/ccnq/ccnq/pkg/wire"
)

// stream is what a stream and its reader do: it stores what it acknowledges,
// and applies each record once.
type stream struct {
	mu       sync.Mutex
	away     bool // nothing arrives
	loseAcks bool // everything arrives, and the sender does not hear of it
	ids      []string
	events   []wire.Event[wire.Denied]
	applied  map[string]uint64 // last number, by outbox
	requests int
	arrived  chan struct{}
}

func newStream() *stream {
	return &stream{applied: map[string]uint64{}, arrived: make(chan struct{}, 10_000)}
}

var errAway = errors.New("not connected to NATS")

func (s *stream) publish(_ context.Context, subject string, payload []byte, msgID string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away {
		return errAway
	}
	e, err := wire.Decode[wire.Event[wire.Denied]](payload)
	if err != nil {
		return err
	}
	if e.ID != msgID || len(subject) == 0 {
		return errors.New("the message id is not the event's")
	}
	s.ids = append(s.ids, msgID)
	s.apply(e)
	if s.loseAcks {
		return errAway
	}
	select {
	case s.arrived <- struct{}{}:
	default:
	}
	return nil
}

// apply counts an event that is not known yet.
func (s *stream) apply(e wire.Event[wire.Denied]) {
	if e.Data.Seq <= s.applied[e.Data.OutboxID] {
		return
	}
	s.applied[e.Data.OutboxID] = e.Data.Seq
	s.events = append(s.events, e)
	for _, a := range e.Data.Addresses {
		s.requests += a.Count
	}
}

func (s *stream) set(away, loseAcks bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away, s.loseAcks = away, loseAcks
}

func (s *stream) counted() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests
}

// until waits for the reader to have counted n requests.
func (s *stream) until(t testing.TB, n int) {
	t.Helper()
	for s.counted() < n {
		select {
		case <-s.arrived:
		case <-time.After(20 * time.Second):
			require.Fail(t, "denials did not arrive", "%d of %d", s.counted(), n)
		}
	}
	require.Equal(t, n, s.counted())
}

type bundle struct {
	*Outbox
	log *lockedBuffer
}

func start(t testing.TB, dir string, publish Publish) *bundle {
	t.Helper()
	b := &bundle{log: new(lockedBuffer)}
	b.Outbox = New(Options{
		EdgeID: "edge-1", Dir: dir, Publish: publish, Registerer: prometheus.NewRegistry(),
		Logger: slog.New(slog.NewTextHandler(b.log, nil)),
	})
	b.Start()
	t.Cleanup(func() { b.stop(0) })
	return b
}

func (b *bundle) stop(within time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	b.Stop(ctx)
}

func (b *bundle) deny(n int) {
	for i := range n {
		addr, group := address(i % 50)
		b.Record(QueueFull, addr, group, "/p", noon)
	}
}

type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func TestDenialsArriveOnce(t *testing.T) {
	t.Parallel()
	for _, dir := range []string{t.TempDir(), ""} {
		s := newStream()
		o := start(t, dir, s.publish)
		o.deny(120)
		s.until(t, 120)
		s.set(false, true) // acknowledgements are lost
		o.deny(50)
		require.Eventually(t, func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			n := len(s.ids)
			return n > 3 && s.ids[n-1] == s.ids[n-2] // it is sent again, under the same id
		}, 20*time.Second, time.Millisecond)
		s.set(true, false) // then nothing arrives
		o.deny(30)
		s.set(false, false)
		s.until(t, 200)
		require.Empty(t, o.Degraded())
		o.stop(time.Minute)
		o.Stop(context.Background()) // twice
		require.Equal(t, 200, s.counted())
	}
}

func TestRefusalsDelayNoDenial(t *testing.T) {
	t.Parallel()
	s := newStream()
	release := make(chan struct{})
	o := start(t, t.TempDir(), func(ctx context.Context, subject string, payload []byte, id string) error {
		if subject == Denylist.subject("edge-1") {
			<-release // nobody takes refusals
		}
		return s.publish(ctx, subject, payload, id)
	})
	addr, group := address(1)
	o.Record(Denylist, addr, group, "/", noon)
	o.flush(true) // the writer's next interval would do the same
	o.deny(10)
	s.until(t, 10)
	close(release)
	s.until(t, 11)
}

func TestStopKeepsWhatWasNotSent(t *testing.T) {
	t.Parallel()
	dir, s := t.TempDir(), newStream()
	s.set(true, false)
	o := start(t, dir, s.publish)
	o.deny(70)
	o.stop(0)
	require.Zero(t, s.counted())
	s.set(false, false)
	o = start(t, dir, s.publish)
	s.until(t, 70)
	o.deny(5)
	o.stop(time.Minute) // and sends the last interval
	require.Equal(t, 75, s.counted())
	require.Len(t, s.applied, 1, "one file, one id")
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 2, "the file and its lock")
}

func TestStopWithoutStart(t *testing.T) {
	t.Parallel()
	dir, s := t.TempDir(), newStream()
	o := New(Options{EdgeID: "e", Dir: dir, Publish: s.publish, Registerer: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler)})
	addr, group := address(1)
	o.Record(QueueTimeout, addr, group, "/", noon)
	o.Stop(context.Background())
	o.Start()
	start(t, dir, s.publish)
	s.until(t, 1)
}

func TestSlots(t *testing.T) {
	t.Parallel()
	dir, s := t.TempDir(), newStream()
	s.set(true, false)
	first, second := start(t, dir, s.publish), start(t, dir, s.publish)
	require.NotEqual(t, first.file.name(), second.file.name(), "each has a file of its own")
	gone := second.file.name()
	first.deny(10)
	second.deny(20)
	second.stop(0)
	// An edge that is gone: another sends what it left, under its id.
	s.set(false, false)
	first.adoptAll(context.Background())
	s.until(t, 30)
	require.Contains(t, s.applied, gone)
	require.NoFileExists(t, filepath.Join(dir, "outbox-1.db"))
	require.FileExists(t, filepath.Join(dir, "outbox-0.db"))
	third := start(t, dir, s.publish)
	require.Equal(t, filepath.Join(dir, "outbox-1.db"), third.slot.path, "the first free slot")
	require.NotEqual(t, gone, third.file.name(), "a new file has a new id")
}

func TestAdoptionAtStart(t *testing.T) {
	t.Parallel()
	dir, s := t.TempDir(), newStream()
	s.set(true, false)
	var all []*bundle
	for range 3 {
		all = append(all, start(t, dir, s.publish))
	}
	for _, o := range all {
		o.deny(7)
		o.stop(0)
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "outbox-9.db"), []byte("nonsense"), 0o600))
	s.set(false, false)
	o := start(t, dir, s.publish)
	s.until(t, 21)
	require.Len(t, s.applied, 3)
	require.Eventually(t, func() bool {
		_, err := os.Stat(filepath.Join(dir, "outbox-9.db.corrupt"))
		return err == nil
	}, 20*time.Second, time.Millisecond)
	o.stop(time.Minute)
	require.Contains(t, o.log.String(), "outbox-9.db.corrupt")
}

func TestStoppingEndsAdoption(t *testing.T) {
	t.Parallel()
	dir, s := t.TempDir(), newStream()
	s.set(true, false)
	first, second := start(t, dir, s.publish), start(t, dir, s.publish)
	second.deny(3)
	second.stop(0)
	first.stop(0)
	third := start(t, dir, s.publish) // takes slot 0, adopts slot 1, NATS is away
	third.stop(0)
	s.set(false, false)
	start(t, dir, s.publish)
	s.until(t, 3)
}

func TestACorruptFileIsMovedAside(t *testing.T) {
	t.Parallel()
	dir, s := t.TempDir(), newStream()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "outbox-0.db"), []byte("nonsense"), 0o600))
	o := start(t, dir, s.publish)
	o.deny(4)
	s.until(t, 4)
	require.Empty(t, o.Degraded())
	require.FileExists(t, filepath.Join(dir, "outbox-0.db.corrupt"))
	require.Contains(t, o.log.String(), "is moved aside")
}

// TestAFileThatBecomesCorrupt takes a bucket away beneath a running edge.
func TestAFileThatBecomesCorrupt(t *testing.T) {
	t.Parallel()
	dir, s := t.TempDir(), newStream()
	o := start(t, dir, s.publish)
	o.deny(4)
	s.until(t, 4)
	o.mu.Lock()
	require.NoError(t, o.file.db.Update(func(tx *bbolt.Tx) error { return tx.DeleteBucket(bucketRecords) }))
	old := o.file.name()
	o.mu.Unlock()
	o.deny(5)
	s.until(t, 9)
	o.deny(6)
	s.until(t, 15)
	require.Empty(t, o.Degraded())
	require.FileExists(t, filepath.Join(dir, "outbox-0.db.corrupt"))
	o.stop(time.Minute)
	require.NotContains(t, s.events[len(s.events)-1].ID, old)
}

func TestAFolderThatIsNone(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	s := newStream()
	o := start(t, filepath.Join(file, "data"), s.publish)
	require.Contains(t, o.Degraded(), "memory")
	o.deny(4)
	s.until(t, 4)
	s.set(true, false)
	o.deny(4)
	o.stop(0)
	require.Contains(t, o.log.String(), "denials are lost")
	require.Contains(t, o.log.String(), "the outbox has no file")
}
