package guard

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/ccnq/ccnq/services/queue-coordinator/internal/store"
)

// ErrUnavailable means that the store is away and was not asked.
var ErrUnavailable = errors.New("store is unavailable")

const (
	pingTimeout    = 500 * time.Millisecond
	restoreTimeout = 5 * time.Second
	minDelay       = 250 * time.Millisecond
	maxDelay       = 2 * time.Second
	// steady is how long the store must have been up for its next loss to
	// be taken for a new one, which is looked into without a delay.
	steady = 10 * time.Second
	// logEvery spaces out lines about calls that fail.
	logEvery = time.Second
)

// Options say what is guarded.
type Options struct {
	Store store.Store
	// Ping asks the store for a sign of life. Nil means that the store cannot
	// be away.
	Ping func(context.Context) error
	// Restore makes the store usable again, and fails while it is away.
	Restore func(context.Context) error
	// OnChange is called when the store is lost and before it is used again. It
	// must not block.
	OnChange func()
	Logger   *slog.Logger
	Registry prometheus.Registerer
}

// Store passes calls on to a store while that can be reached. It is safe for
// concurrent use.
type Store struct {
	opts    Options
	seconds map[string]prometheus.Observer // by operation, read only
	down    atomic.Bool
	logged  atomic.Int64 // Unix nanoseconds of the last line about a call

	mu       sync.Mutex
	cancel   context.CancelFunc // of the goroutine that looks after the store; nil while there is none
	closed   bool
	upSince  time.Time
	delay    time.Duration
	watchers sync.WaitGroup
}

var _ store.Store = (*Store)(nil)

// New returns a guard of a store that is up.
func New(opts Options) *Store {
	s := &Store{opts: opts, seconds: make(map[string]prometheus.Observer)}
	seconds := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "ccnq_coordinator_store_seconds",
		Help:    "Duration of one call of the store, which serves a whole batch.",
		Buckets: prometheus.ExponentialBuckets(0.000_05, 2, 16),
	}, []string{"op"})
	for _, op := range operations {
		s.seconds[op] = seconds.WithLabelValues(op)
	}
	up := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "ccnq_coordinator_store_up",
		Help: "1 while the store can be reached.",
	}, func() float64 {
		if s.Up() {
			return 1
		}
		return 0
	})
	opts.Registry.MustRegister(seconds, up)
	return s
}

// Up reports whether the store can be reached.
func (s *Store) Up() bool { return !s.down.Load() }

// Close closes the store behind.
func (s *Store) Close() {
	s.mu.Lock()
	s.closed = true
	if s.cancel != nil {
		s.cancel()
	}
	s.mu.Unlock()
	s.watchers.Wait()
	s.opts.Store.Close()
}

// judge draws the conclusion from the result of a call.
func (s *Store) judge(err error) {
	if err == nil || s.opts.Ping == nil {
		return
	}
	switch classify(err) {
	case suspect:
		s.watch(false)
	case lost:
		s.watch(true)
	case failed:
	default:
		return
	}
	now, last := time.Now().UnixNano(), s.logged.Load()
	if now-last >= int64(logEvery) && s.logged.CompareAndSwap(last, now) {
		s.opts.Logger.Warn("call of the store failed", "error", err)
	}
}

// What an error says about the store.
type class int

const (
	fine    class = iota // it concerns one request
	failed               // it concerns one call
	suspect              // the store may be away
	lost                 // the store is away, or has lost its schema
)

func classify(err error) class {
	var answer *pgconn.PgError
	switch {
	case errors.Is(err, store.ErrBusy), errors.Is(err, store.ErrForeign), errors.Is(err, store.ErrClosed),
		errors.Is(err, ErrUnavailable), errors.Is(err, context.Canceled):
		return fine
	case errors.Is(err, store.ErrExpired), errors.Is(err, context.DeadlineExceeded):
		return suspect
	case errors.Is(err, store.ErrAnswer):
		return failed
	case !errors.As(err, &answer):
		return lost
	}
	switch code := answer.Code; {
	case code == "57014": // query_canceled: a time limit
		return suspect
	case strings.HasPrefix(code, "08"), // connection exception
		strings.HasPrefix(code, "53"),                     // insufficient resources, such as too many connections
		strings.HasPrefix(code, "57P"),                    // shutdown, crash, start
		strings.HasPrefix(code, "28"),                     // invalid authorization
		code == "3F000", code == "42P01", code == "42883": // no such schema, table, function
		return lost
	default:
		return failed
	}
}

// watch looks after the store until it is known to be up.
func (s *Store) watch(isLost bool) {
	if isLost {
		s.markDown()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cancel != nil || s.closed {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	s.watchers.Go(func() { s.look(ctx) })
}

// look pings a store that is suspected, and restores one that is down.
func (s *Store) look(ctx context.Context) {
	if s.Up() && try(ctx, s.opts.Ping, pingTimeout) != nil {
		s.markDown()
	}
	for {
		s.mu.Lock()
		if s.Up() || s.closed {
			s.cancel()
			s.cancel = nil
			s.mu.Unlock()
			return
		}
		delay := s.nextDelay()
		s.mu.Unlock()
		select {
		case <-ctx.Done():
			continue
		case <-time.After(delay):
		}
		if try(ctx, s.opts.Restore, restoreTimeout) == nil {
			s.markUp()
		}
	}
}

func try(ctx context.Context, f func(context.Context) error, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return f(ctx)
}

// nextDelay returns how long to wait before the next attempt. The lock is
// held.
func (s *Store) nextDelay() time.Duration {
	delay := s.delay
	s.delay = min(max(2*delay, minDelay), maxDelay)
	return delay
}

func (s *Store) markDown() {
	if !s.down.CompareAndSwap(false, true) {
		return
	}
	s.mu.Lock()
	if s.upSince.IsZero() || time.Since(s.upSince) >= steady {
		s.delay = 0
	}
	s.mu.Unlock()
	s.opts.Logger.Warn("the store is away; requests are answered as unavailable")
	s.opts.OnChange()
}

func (s *Store) markUp() {
	s.mu.Lock()
	s.upSince = time.Now()
	s.mu.Unlock()
	s.opts.OnChange()
	s.down.Store(false)
	s.opts.Logger.Info("the store is back")
}
