package cache

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ccnq/ccnq/pkg/rules"
	"github.com/ccnq/ccnq/services/edge/internal/cache/flight"
	"github.com/ccnq/ccnq/services/edge/internal/cache/rfc9111"
	"github.com/ccnq/ccnq/services/edge/internal/cache/store"
)

const (
	// fetchWindow is how far a fetch may be ahead of its readers.
	fetchWindow = 512 << 10
	// fetchBudget bounds the bodies that are under way, all together.
	fetchBudget = 64 << 20
	// stallLimit is how long a reader may hold up others.
	stallLimit = 5 * time.Second
	// maxItemBytes bounds Options.MaxItemBytes: two such bodies may be under way,
	// and wait to be written.
	maxItemBytes = fetchBudget / 2
)

// Options configure a [Cache]. All are required but what says otherwise.
type Options struct {
	// Policy is what the operator decided.
	Policy rfc9111.Policy
	// Origin is whom responses come from. With it, or with Policy, what is stored
	// changes its meaning, so a change of either empties the cache at the start.
	Origin string
	// Methods are those in scope: GET, HEAD or both.
	Methods []string
	// Rules limit the cache to requests that match.
	Rules *rules.File
	// Dir, MaxBytes, MaxItemBytes, MemoryBytes and SweepInterval are the store's,
	// see [store.Options]. More MaxItemBytes than 32 MiB, or than an eighth of
	// MaxBytes, is taken for that.
	Dir                                 string
	MaxBytes, MaxItemBytes, MemoryBytes int64
	SweepInterval                       time.Duration
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Registerer receives the metrics.
	Registerer prometheus.Registerer
	// Logger is told of faults.
	Logger *slog.Logger

	stall  time.Duration // a test's stallLimit; 0 is that
	budget int64         // a test's fetchBudget; 0 is that
}

// Cache is the cache of one edge. It is safe for concurrent use.
type Cache struct {
	opts    Options
	policy  *rfc9111.Policy
	now     func() time.Time
	flights *flight.Table[*landing]
	store   *store.Store[*head]
	metrics *metrics

	uncacheable marks // what is not stored, by the variant
	unrefreshed marks // what could not be validated in the background, by the variant
	invalid     invalidations

	recorded   atomic.Int64 // bytes of bodies that recordings hold
	refreshing sync.WaitGroup
}

type item = store.Item[*head]

// New opens a cache. Its error names a bad option; a fault of the disk is none,
// see [Cache.Degraded].
func New(opts Options) (*Cache, error) {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if limit := min(maxItemBytes, opts.MaxBytes/8); opts.MaxItemBytes > limit {
		opts.Logger.Warn("no body is stored that is larger than an eighth of the cache or than 32 MiB", "limit", limit, "set", opts.MaxItemBytes)
		opts.MaxItemBytes = limit
	}
	c := &Cache{opts: opts, policy: &opts.Policy, now: opts.Now}
	c.flights = flight.New[*landing](flight.Options{
		Window: fetchWindow,
		Limit:  opts.MaxItemBytes,
		Budget: cmp.Or(opts.budget, fetchBudget),
		Stall:  cmp.Or(opts.stall, stallLimit),
	})
	var err error
	c.store, err = store.Open(store.Options[*head]{
		Codec:         codec,
		Realm:         fmt.Sprintf("%q %#v", opts.Origin, opts.Policy),
		Dir:           opts.Dir,
		MaxBytes:      opts.MaxBytes,
		MaxItemBytes:  opts.MaxItemBytes,
		MemoryBytes:   opts.MemoryBytes,
		SweepInterval: opts.SweepInterval,
		Now:           opts.Now,
		Registerer:    opts.Registerer,
		Logger:        opts.Logger,
	})
	if err != nil {
		return nil, fmt.Errorf("cache: %w", err)
	}
	c.metrics = newMetrics(opts.Registerer, c)
	return c, nil
}

// Degraded says why nothing is stored, or returns the empty string.
func (c *Cache) Degraded() string { return c.store.Degraded() }

// Purge removes what matches, see [store.Store.Purge]. It is effective for
// requests that come after the call.
func (c *Cache) Purge(ctx context.Context, purges ...store.Purge) error {
	if len(purges) == 0 {
		return nil
	}
	c.flights.OutdateAll()
	return c.store.Purge(ctx, purges...)
}

// Stop ends the fetches that are under way and closes the store, as far as ctx
// allows. No request is served any more by then. It may be called twice.
func (c *Cache) Stop(ctx context.Context) error {
	err := c.flights.Stop(ctx)
	if err == nil {
		c.refreshing.Wait() // they end with their flights
	}
	c.store.Stop(ctx)
	if err != nil {
		return errors.New("cache: fetches did not end in time")
	}
	return nil
}

// inScope applies the method filter, which is cheaper, before the rules.
func (c *Cache) inScope(q *Request) bool {
	return slices.Contains(c.opts.Methods, q.R.Method) && c.opts.Rules.Current().Match(q.R, rules.OnTimeoutMiss)
}

// found is what is stored for a request.
type found struct {
	item   *item             // nil if nothing is
	res    *head             // its head
	key    store.Key         // under which it is, or would be
	index  *rfc9111.Response // of the variants, of which key is one; nil if there are none
	shared bool              // the item is not this one's to close
}

// find looks a resource up, and which of its variants the request selects.
func (c *Cache) find(q *Request) found {
	key := store.Key(q.key)
	it, ok := c.store.Get(key)
	if !ok {
		return found{key: key}
	}
	res := it.Head()
	if !res.IsIndex() {
		return found{item: it, res: res, key: key}
	}
	it.Close()
	f := found{key: store.Key(res.Variant(q.key, q.R.Header)), index: res.Response}
	if it, ok = c.store.Get(f.key); ok {
		f.item, f.res = it, it.Head()
	}
	return f
}

func (f *found) close() {
	if f.item != nil && !f.shared {
		f.item.Close()
	}
	f.item = nil
}

// flightKey is the flight that a request joins.
func (q *Request) flightKey(f *found) flight.Key {
	key := flight.Key{Primary: q.key}
	if f.index != nil {
		key.Variant = f.key
	}
	return key
}
