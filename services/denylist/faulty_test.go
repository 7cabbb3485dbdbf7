package denylist

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/pkg/bus"
	"github.com/ccnq/ccnq/pkg/wire"
	"github.com/ccnq/ccnq/services/denylist/internal/store"
)

// faulty is a store that fails at random, half of the time after it has done
// what it was asked for, and that can be frozen.
type faulty struct {
	store.Store
	failing atomic.Bool
	failed  atomic.Int64
	mu      sync.RWMutex // held for writing while frozen
}

var errInjected = errors.New("injected failure")

func call[R any](f *faulty, do func() (R, error)) (R, error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	var none R
	if !f.failing.Load() || rand.N(4) > 0 {
		return do()
	}
	f.failed.Add(1)
	if rand.N(2) == 0 {
		_, _ = do() // and the answer is lost
	}
	return none, errInjected
}

func (f *faulty) Lead(ctx context.Context, holder string, ttl time.Duration) (int64, bool, error) {
	var ok bool
	epoch, err := call(f, func() (epoch int64, err error) {
		epoch, ok, err = f.Store.Lead(ctx, holder, ttl)
		return epoch, err
	})
	return epoch, ok && err == nil, err
}

func (f *faulty) Checkpoint(ctx context.Context) (store.Checkpoint, error) {
	return call(f, func() (store.Checkpoint, error) { return f.Store.Checkpoint(ctx) })
}

func (f *faulty) Apply(ctx context.Context, epoch int64, at store.Checkpoint, b store.Batch) (store.Result, error) {
	return call(f, func() (store.Result, error) { return f.Store.Apply(ctx, epoch, at, b) })
}

func (f *faulty) Changes(ctx context.Context, after int64, limit int) ([]store.Change, error) {
	return call(f, func() ([]store.Change, error) { return f.Store.Changes(ctx, after, limit) })
}

func (f *faulty) SetPublished(ctx context.Context, epoch, v int64) error {
	_, err := call(f, func() (struct{}, error) { return struct{}{}, f.Store.SetPublished(ctx, epoch, v) })
	return err
}

func (f *faulty) Totals(ctx context.Context, at time.Time) (store.Totals, error) {
	return call(f, func() (store.Totals, error) { return f.Store.Totals(ctx, at) })
}

// model is the denylist in its plainest form.
type model struct {
	counts map[string]int                  // by address and day
	ranges map[string]map[netip.Addr]bool  // addresses by range and day
	blocks map[wire.Scope]map[string]int64 // ends, Unix microseconds
}

func newModel() *model {
	return &model{
		counts: map[string]int{}, ranges: map[string]map[netip.Addr]bool{},
		blocks: map[wire.Scope]map[string]int64{wire.ScopeIP: {}, wire.ScopeRange: {}},
	}
}

func (m *model) apply(d wire.Denied, settings store.Settings) {
	for _, a := range d.Addresses {
		day := a.Last.UTC().Format(time.DateOnly)
		key := a.IP.String() + " " + day
		m.counts[key] += a.Count
		if m.counts[key] >= settings.DailyThreshold {
			m.extend(wire.ScopeIP, a.IP.String(), a.Last.Add(settings.BlockFor(wire.ScopeIP)))
		}
		group := a.Group.String() + " " + day
		if m.ranges[group] == nil {
			m.ranges[group] = map[netip.Addr]bool{}
		}
		m.ranges[group][a.IP] = true
		if len(m.ranges[group]) > settings.RangeIPThreshold {
			m.extend(wire.ScopeRange, a.Group.String(), a.Last.Add(settings.BlockFor(wire.ScopeRange)))
		}
	}
}

func (m *model) extend(scope wire.Scope, target string, until time.Time) {
	m.blocks[scope][target] = max(m.blocks[scope][target], until.UnixMicro())
}

// keys returns the ends of all keys in force.
func (s *site) keys() map[wire.Scope]map[string]int64 {
	out := map[wire.Scope]map[string]int64{wire.ScopeIP: {}, wire.ScopeRange: {}}
	for from := uint64(1); ; {
		page, err := bus.DirectGetPage(s.ctx(), s.conn, wire.StreamBlocks, from, 1_000, wire.SubjectBlocks)
		if err != nil {
			return nil // asked again
		}
		for _, m := range page.Messages {
			scope, prefix, err := wire.ParseBlockKey(wire.KVKey(m.Subject))
			if err != nil {
				continue // the mark
			}
			block, err := wire.Decode[wire.Block](m.Data)
			require.NoError(s.t, err)
			if block.BlockedUntil.After(time.Now()) {
				out[scope][wire.TargetText(scope, prefix)] = block.BlockedUntil.UnixMicro()
			}
		}
		if page.Done {
			return out
		}
		from = page.Next
	}
}
