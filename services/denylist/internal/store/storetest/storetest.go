// Package storetest is the one suite that every [store.Store] passes. Exercise
// is its table of contents; each part is in a file of its own.
package storetest

import (
	"context"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/pkg/wire"
	"github.com/ccnq/ccnq/services/denylist/internal/store"
)

// State is one empty projection that several stores share, as several
// processes share a database.
type State interface {
	// Open returns another store on the projection. A nil clock is the real
	// one.
	Open(settings store.Settings, clock func() time.Time) store.Store
	// Quarantined returns what was moved aside, in the order of the stream.
	Quarantined() []store.Quarantined
	// LoseBlocks removes all blocks without a trace, as a restored backup does.
	LoseBlocks()
	// Reset empties the projection. No store may be in a call.
	Reset()
}

// Exercise runs the suite. NewState returns a state that belongs to one test;
// the tests of one part use it one after the other.
func Exercise(t *testing.T, newState func(testing.TB) State) {
	t.Helper()
	t.Run("Apply", func(t *testing.T) { t.Parallel(); exerciseApply(t, newState) })
	t.Run("Blocks", func(t *testing.T) { t.Parallel(); exerciseBlocks(t, newState) })
	t.Run("Changes", func(t *testing.T) { t.Parallel(); exerciseChanges(t, newState) })
	t.Run("Concurrent", func(t *testing.T) { t.Parallel(); exerciseConcurrent(t, newState) })
	t.Run("Explain", func(t *testing.T) { t.Parallel(); exerciseExplain(t, newState) })
	t.Run("Faults", func(t *testing.T) { t.Parallel(); exerciseFaults(t, newState) })
	t.Run("Lead", func(t *testing.T) { t.Parallel(); exerciseLead(t, newState) })
	t.Run("Model", func(t *testing.T) { t.Parallel(); exerciseModel(t, newState) })
	t.Run("Prune", func(t *testing.T) { t.Parallel(); exercisePrune(t, newState) })
	t.Run("Rebuild", func(t *testing.T) { t.Parallel(); exerciseRebuild(t, newState) })
	t.Run("Tiers", func(t *testing.T) { t.Parallel(); exerciseTiers(t, newState) })
}

// created is when the stream of the tests was made.
var created = time.Date(2030, 1, 1, 0, 0, 0, 123_456_000, time.UTC)

// noon is the first time of the clock.
var noon = time.Date(2030, 3, 10, 12, 0, 0, 0, time.UTC)

// days is a time so many days after noon.
func days(n int) time.Time { return noon.AddDate(0, 0, n) }

// clock is a time that the test moves.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) read() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) set(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = t
}

// tester is a [testing.TB] or a rapid.T.
type tester interface {
	require.TestingT
	Context() context.Context
	Helper()
}

// leaseTTL outlasts what a test does to the clock.
const leaseTTL = 10 * 365 * 24 * time.Hour

// bundle is what one test works with: a store that leads, a clock, and the end
// of a stream.
type bundle struct {
	t     tester
	state State
	store store.Store
	clock *clock
	epoch int64
	at    store.Checkpoint
	seq   uint64 // of the last record made
	sent  uint64 // number of the last record of outbox "box"
}

// setup empties the state.
func setup(t testing.TB, state State) *bundle {
	t.Helper()
	state.Reset()
	return newBundle(t, state, store.DefaultSettings())
}

func newBundle(t tester, state State, settings store.Settings) *bundle {
	t.Helper()
	b := &bundle{t: t, state: state, clock: &clock{now: noon}}
	b.store = state.Open(settings, b.clock.read)
	epoch, ok, err := b.store.Lead(t.Context(), "the test", leaseTTL)
	require.NoError(t, err)
	require.True(t, ok)
	b.epoch = epoch
	require.NoError(t, b.store.Reset(t.Context(), epoch, created))
	b.at = store.Checkpoint{Created: created}
	return b
}

// denied makes one address of an event: n denials at a time, of the /24 or /64
// of the address.
func denied(ip string, n int, at time.Time) wire.DeniedAddress {
	addr := netip.MustParseAddr(ip)
	bits := 24
	if addr.Is6() {
		bits = 64
	}
	group, err := addr.Prefix(bits)
	if err != nil {
		panic(err)
	}
	return wire.DeniedAddress{IP: addr, Group: group, Count: n, First: at, Last: at, Path: "/a"}
}

// record makes the next event of the stream, from outbox "box". The stream
// receives it at the time of its last address.
func (b *bundle) record(addresses ...wire.DeniedAddress) store.Record {
	b.seq++
	b.sent++
	at := addresses[0].Last
	for _, a := range addresses {
		if a.Last.After(at) {
			at = a.Last
		}
	}
	return store.Record{Seq: b.seq, At: at, Edge: "e1", Denied: wire.Denied{
		OutboxID: "box", Seq: b.sent, Reason: wire.DeniedQueueFull, Addresses: addresses,
	}}
}

// apply applies records as one batch.
func (b *bundle) apply(records ...store.Record) store.Result {
	b.t.Helper()
	next := b.at
	if len(records) > 0 {
		next.Seq = records[len(records)-1].Seq
	}
	got, err := b.store.Apply(b.t.Context(), b.epoch, b.at, store.Batch{Records: records, Next: next})
	require.NoError(b.t, err)
	b.at = next
	return got
}

// deny applies one event of one address.
func (b *bundle) deny(ip string, n int, at time.Time) store.Result {
	b.t.Helper()
	return b.apply(b.record(denied(ip, n, at)))
}

// blocks returns the ends of all blocks of a scope.
func (b *bundle) blocks(scope wire.Scope) map[string]time.Time {
	b.t.Helper()
	ends := make(map[string]time.Time)
	for _, block := range b.list(scope) {
		ends[block.Target] = block.BlockedUntil
	}
	return ends
}

func (b *bundle) list(scope wire.Scope) []wire.BlockChange {
	b.t.Helper()
	page, err := b.store.Blocks(b.t.Context(), store.Listing{Scope: scope, Limit: 1000})
	require.NoError(b.t, err)
	return page
}

// count returns the denials of an address, by day.
func (b *bundle) count(ip string) map[string]int64 {
	b.t.Helper()
	got, err := b.store.Explain(b.t.Context(), netip.MustParseAddr(ip))
	require.NoError(b.t, err)
	counts := make(map[string]int64)
	for _, d := range got.Days {
		if d.IP.String() == ip {
			counts[d.Day] = d.Count
		}
	}
	return counts
}

// changes returns the changes after a version.
func (b *bundle) changes(after int64) []store.Change {
	b.t.Helper()
	got, err := b.store.Changes(b.t.Context(), after, 10_000)
	require.NoError(b.t, err)
	return got
}

// order names a target.
func order(target string) store.Order {
	scope, p, err := wire.ParseTargetText(target)
	if err != nil {
		panic(err)
	}
	return store.Order{Scope: scope, Target: p, Reason: "abuse", By: "an operator"}
}

func (b *bundle) block(target string, d time.Duration) wire.BlockChange {
	b.t.Helper()
	got, err := b.store.Block(b.t.Context(), order(target), d)
	require.NoError(b.t, err)
	return got
}

func (b *bundle) unblock(target string, keepCounts bool) store.Lifted {
	b.t.Helper()
	got, err := b.store.Unblock(b.t.Context(), order(target), keepCounts)
	require.NoError(b.t, err)
	return got
}

func (b *bundle) holding(ip string) []string {
	b.t.Helper()
	addr := netip.MustParseAddr(ip)
	held, err := b.store.Holding(b.t.Context(), netip.PrefixFrom(addr, addr.BitLen()))
	require.NoError(b.t, err)
	targets := []string{}
	for _, h := range held {
		targets = append(targets, h.Target)
	}
	return targets
}
