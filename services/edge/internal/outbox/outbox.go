package outbox

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ccnq/ccnq/pkg/wire"
)

// Interval is how long denials are collected before they are written and sent.
const Interval = 100 * time.Millisecond

const (
	// refusalsEvery is how many intervals pass between two messages about
	// refusals.
	refusalsEvery = 10
	// maintainEvery is how often a missing file is tried again, and files of
	// edges that are gone are looked for.
	maintainEvery = time.Minute

	maxDenials      = 100_000 // addresses held
	maxRefusals     = 5_000   // addresses held
	memoryBytes     = 16 << 20
	refusalsBytes   = 4 << 20
	defaultMaxBytes = 64 << 20
)

// Publish sends one message and returns nil once a stream has stored it; see
// bus.PublishAcked.
type Publish func(ctx context.Context, subject string, payload []byte, msgID string) error

// Options say how an outbox works.
type Options struct {
	// EdgeID is in the subjects and the source of the events.
	EdgeID string
	// Dir is the folder of the files, made if it is not there; several edges may
	// share it. Empty keeps everything in memory.
	Dir string
	// MaxBytes bounds what the file holds; 0 means 64 MiB. The file may be twice
	// as large and 4 MiB.
	MaxBytes int64
	// Publish is called for one message of each queue at a time. Required.
	Publish Publish
	// Registerer receives the metrics. Required.
	Registerer prometheus.Registerer
	// Logger is required.
	Logger *slog.Logger
}

// Outbox collects refused requests and tells the denylist service of them. Its
// methods are safe for concurrent use.
type Outbox struct {
	opts     Options
	metrics  *metrics
	denials  *collector
	refusals *collector

	memory, refused *memoryQueue

	mu      sync.Mutex // guards what follows
	slot    *slot
	file    *fileQueue // nil while there is none
	faulty  bool       // the last write failed
	started bool
	stopped bool

	ctx     context.Context //nolint:containedctx // the life of the goroutines
	cancel  context.CancelFunc
	stop    chan struct{} // closed: no more intervals
	drain   chan struct{} // closed: send what is left and end
	writer  sync.WaitGroup
	senders sync.WaitGroup
}

// New opens the outbox. It does not wait and does not fail: without a usable
// file messages are kept in memory, which the log says. Call Start, and Stop
// at the end in any case.
func New(opts Options) *Outbox {
	if opts.MaxBytes == 0 {
		opts.MaxBytes = defaultMaxBytes
	}
	o := &Outbox{
		opts:     opts,
		denials:  newCollector(maxDenials),
		refusals: newCollector(maxRefusals),
		stop:     make(chan struct{}),
		drain:    make(chan struct{}),
	}
	o.ctx, o.cancel = context.WithCancel(context.Background())
	o.metrics = newMetrics(opts.Registerer, o)
	source := wire.EdgeSource(opts.EdgeID)
	o.memory = newMemoryQueue(source, memoryBytes, o.dropped)
	o.refused = newMemoryQueue(source, refusalsBytes, o.dropped)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.open()
	return o
}

// Record notes a refused request (or, in monitor mode, one that would have
// been). Addr is a plain address in group, path is without the query and cut at
// [wire.MaxPath] bytes. It takes well under a microsecond, does not block on anything but
// a short lock, and keeps no reference to path. After Stop it has no effect.
func (o *Outbox) Record(kind Kind, addr netip.Addr, group netip.Prefix, path string, at time.Time) {
	if kind.durable() {
		o.denials.record(kind, addr, group, path, at)
		return
	}
	o.refusals.record(kind, addr, group, path, at)
}

// Start begins to write and send.
func (o *Outbox) Start() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.started || o.stopped {
		return
	}
	o.started = true
	o.sendFrom(o.memory)
	o.sendFrom(o.refused)
	if o.file != nil {
		o.sendFrom(o.file)
	}
	o.writer.Go(o.write)
	if o.opts.Dir != "" {
		o.senders.Go(o.adopt)
	}
}

// Stop writes what was recorded and sends what it can until ctx ends. What is
// left stays in the file. It may be called twice.
func (o *Outbox) Stop(ctx context.Context) {
	o.mu.Lock()
	first := !o.stopped
	o.stopped = true
	o.mu.Unlock()
	if !first {
		return
	}
	close(o.stop)
	o.writer.Wait()
	o.flush(true)
	close(o.drain)
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		o.senders.Wait()
	}()
	select {
	case <-sent:
	case <-ctx.Done():
		o.cancel()
		<-sent
	}
	o.cancel()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closeFile()
	if records, _ := o.memory.size(); records > 0 {
		o.opts.Logger.Error("denials are lost: neither the disk nor NATS took them", "messages", records)
	}
}

// Degraded says why denials are not safe on disk, or nothing. After a fault it
// does so until a denial has been written again.
func (o *Outbox) Degraded() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.opts.Dir != "" && (o.file == nil || o.faulty) {
		return "denials wait in memory: the outbox's file cannot be written"
	}
	return ""
}

// write cuts the intervals.
func (o *Outbox) write() {
	tick := time.NewTicker(Interval)
	defer tick.Stop()
	maintain := time.NewTicker(maintainEvery)
	defer maintain.Stop()
	for n := 1; ; n++ {
		select {
		case <-tick.C:
			o.flush(n%refusalsEvery == 0)
		case <-maintain.C:
			o.mu.Lock()
			if o.file == nil {
				o.open()
				if o.file != nil {
					o.sendFrom(o.file)
				}
			}
			o.mu.Unlock()
		case <-o.stop:
			return
		}
	}
}

// flush cuts the interval and hands it to the queues.
func (o *Outbox) flush(refusals bool) {
	if refusals {
		o.keep(o.refused, drafts(o.refusals))
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	all := drafts(o.denials) // under mu: who holds it sees each denial in the collector or in a queue
	if o.file == nil {
		o.keep(o.memory, all)
		return
	}
	err := o.file.write(all)
	if err == nil {
		if o.faulty && len(all) > 0 { // a write of nothing shows nothing
			o.faulty = false
			o.opts.Logger.Info("the outbox's file can be written again")
		}
		return
	}
	o.keep(o.memory, all)
	o.metrics.faults.Inc()
	if !o.faulty {
		o.faulty = true
		o.opts.Logger.Error("the outbox's file cannot be written: denials wait in memory", "error", err)
	}
	if errors.Is(err, errCorrupt) {
		o.replace(err)
	}
}

// keep puts drafts into a queue in memory.
func (o *Outbox) keep(q *memoryQueue, all []draft) {
	if err := q.add(all); err != nil {
		o.opts.Logger.Error("an event cannot be encoded", "error", err)
	}
}

// open takes a slot and opens its file. The caller holds mu.
func (o *Outbox) open() {
	if o.opts.Dir == "" {
		return
	}
	err := os.MkdirAll(o.opts.Dir, 0o700)
	var s *slot
	if err == nil {
		s, err = firstSlot(o.opts.Dir)
	}
	if err == nil {
		o.slot = s
		o.file, err = o.openSlot(s)
	}
	if err != nil {
		o.closeFile()
		o.metrics.faults.Inc()
		if !o.faulty {
			o.opts.Logger.Error("the outbox has no file: denials wait in memory", "error", err)
		}
		o.faulty = true
		return
	}
	if o.faulty {
		o.faulty = false
		o.opts.Logger.Info("the outbox has a file again", "file", s.path)
	}
}

// openSlot opens the file of a slot. A corrupt one is moved aside first.
func (o *Outbox) openSlot(s *slot) (*fileQueue, error) {
	source := wire.EdgeSource(o.opts.EdgeID)
	q, err := openFile(s.path, source, o.opts.MaxBytes, o.dropped)
	if !errors.Is(err, errCorrupt) {
		return q, err
	}
	o.metrics.corrupt.Inc()
	o.opts.Logger.Error("a corrupt outbox is moved aside: what it held is not sent", "file", s.path+".corrupt", "error", err)
	if err := s.moveAside(); err != nil {
		return nil, err
	}
	return openFile(s.path, source, o.opts.MaxBytes, o.dropped)
}

// replace begins a new file in place of one that has become corrupt. The caller
// holds mu.
func (o *Outbox) replace(cause error) {
	o.metrics.corrupt.Inc()
	o.opts.Logger.Error("the outbox has become corrupt and is moved aside: what it held is not sent",
		"file", o.slot.path+".corrupt", "error", cause)
	_ = o.file.close()
	o.file = nil
	err := o.slot.moveAside()
	if err == nil {
		o.file, err = o.openSlot(o.slot)
	}
	if err != nil {
		o.opts.Logger.Error("the outbox has no file: denials wait in memory", "error", err)
		o.closeFile()
		return
	}
	if o.started && !o.stopped {
		o.sendFrom(o.file)
	}
}

// closeFile closes the file, if any, and gives the slot back. The caller holds
// mu.
func (o *Outbox) closeFile() {
	if o.file != nil {
		if err := o.file.close(); err != nil {
			o.opts.Logger.Warn("the outbox was not closed well: some messages will be sent twice", "error", err)
		}
		o.file = nil
	}
	if o.slot != nil {
		o.slot.release()
		o.slot = nil
	}
}

func (o *Outbox) sendFrom(q queue) {
	s := o.sender(q)
	o.senders.Go(func() { s.run(o.ctx, o.drain) })
}

func (o *Outbox) sender(q queue) *sender {
	return &sender{queue: q, edgeID: o.opts.EdgeID, publish: o.opts.Publish, metrics: o.metrics, logger: o.opts.Logger}
}

// dropped counts the requests of a record for which there was no room.
func (o *Outbox) dropped(r record) {
	o.metrics.dropped.WithLabelValues(class(r.kind)).Add(float64(r.requests))
}

// waiting returns what is not acknowledged, of denials, and the size of the
// file.
func (o *Outbox) waiting() (records int, bytes, file int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n, size := o.memory.size()
	records, bytes = n, int64(size)
	if o.file != nil {
		n, size, onDisk := o.file.size()
		records, bytes, file = records+n, bytes+size, onDisk
	}
	return records, bytes, file
}
