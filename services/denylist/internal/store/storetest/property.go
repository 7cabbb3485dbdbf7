package storetest

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ccnq/ccnq/pkg/wire"
	"github.com/ccnq/ccnq/services/denylist/internal/store"
)

// small settings reach every border within a few events.
var small = store.Settings{
	DailyThreshold: 3, WindowDays: 3, ExceedThreshold: 2, BlockDays: 2,
	RangeIPThreshold: 2, RangeBlockHours: 20, PruneRetention: 36 * time.Hour,
}

// exerciseModel does random things to a store and to the model, and compares
// them. Streams are cut into batches at random, so any cut
// gives what the model gives event by event.
func exerciseModel(t *testing.T, newState func(testing.TB) State) {
	t.Helper()
	state := newState(t)
	rapid.Check(t, func(rt *rapid.T) {
		state.Reset()
		p := &pair{T: rt, bundle: newBundle(rt, state, small), m: newModel(small)}
		step := func(do func()) func(*rapid.T) {
			return func(rt *rapid.T) {
				p.T, p.bundle.t = rt, rt
				do()
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"":            step(p.check),
			"events":      step(p.events),
			"more events": step(p.events),
			"block":       step(p.order),
			"look":        step(p.look),
			"prune":       step(p.prune),
			"time passes": step(p.timePasses),
			"rebuild":     step(p.rebuild),
		})
	})
}

// pair is a store and the model of what it should do.
type pair struct {
	*rapid.T
	*bundle
	m      *model
	stream []store.Event
	known  int64
	pruned bool
}

var (
	hosts     = []string{"192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.130", "2001:db8::1"}
	addresses = rapid.SampledFrom(hosts)
	targets   = rapid.SampledFrom(append([]string{"192.0.2.0/24", "192.0.2.0/25", "2001:db8::/64", "10.0.0.1"}, hosts...))
	// offsets are around now, mostly within the window, some far ahead.
	offsets = rapid.Custom(func(t *rapid.T) time.Duration {
		hours := rapid.IntRange(-100, 0).Draw(t, "hours")
		if rapid.IntRange(0, 5).Draw(t, "recent") > 0 {
			hours /= 10
		}
		return time.Duration(hours)*time.Hour + time.Duration(rapid.IntRange(0, 3600).Draw(t, "seconds"))*time.Second
	})
)

// draw makes one address of an event.
func (p *pair) draw() wire.DeniedAddress {
	a := denied(addresses.Draw(p.T, "ip"), rapid.IntRange(1, 4).Draw(p.T, "count"), p.clock.read().Add(offsets.Draw(p.T, "offset")))
	if rapid.IntRange(0, 9).Draw(p.T, "other prefix length") == 0 && a.IP.Is4() {
		a.Group = netip.PrefixFrom(a.IP, 25).Masked()
	}
	return a
}

// events makes some events and applies them in batches.
func (p *pair) events() {
	n := rapid.IntRange(1, 8).Draw(p.T, "events")
	for n > 0 {
		size := rapid.IntRange(1, n).Draw(p.T, "batch")
		n -= size
		want := store.Result{}
		var batch []store.Record
		for range size {
			var list []wire.DeniedAddress
			for range rapid.IntRange(1, 4).Draw(p.T, "addresses") {
				list = append(list, p.draw())
			}
			r := p.record(list...)
			r.At = p.clock.read()
			r.Denied.OutboxID = rapid.SampledFrom([]string{"one", "two"}).Draw(p.T, "outbox")
			r.Denied.Seq = uint64(int64(p.m.positions[r.Denied.OutboxID]) + rapid.SampledFrom([]int64{1, 1, 1, 1, 3, 0}).Draw(p.T, "step"))
			if r.Denied.Seq == 0 {
				r.Denied.Seq = 1
			}
			if p.m.apply(r) {
				want.Applied++
			} else {
				want.Skipped++
			}
			batch = append(batch, r)
			p.stream = append(p.stream, store.Event{Record: &r})
		}
		got := p.apply(batch...)
		require.Equal(p.T, []int{want.Applied, want.Skipped}, []int{got.Applied, got.Skipped}, "applied, skipped")
		p.publish()
	}
}

// publish puts changes into the stream, where a rebuild finds them.
func (p *pair) publish() {
	for _, c := range p.changes(p.known) {
		p.known = c.Version
		p.stream = append(p.stream, store.Event{Change: &c})
	}
	require.NoError(p.T, p.store.SetPublished(p.Context(), p.epoch, p.known))
}

func (p *pair) order() {
	o, now := order(targets.Draw(p.T, "target")), p.clock.read()
	if rapid.Bool().Draw(p.T, "lift") {
		keep := rapid.Bool().Draw(p.T, "keep counts")
		lifted, forgiven := p.m.unblock(o, now, keep)
		got := p.unblock(o.Text(), keep)
		require.Equal(p.T, lifted, got.Lifted)
		require.Equal(p.T, forgiven, got.Forgiven)
		require.Equal(p.T, lifted || forgiven > 0, got.Version > 0)
	} else {
		d := time.Duration(rapid.IntRange(1, 100).Draw(p.T, "hours")) * time.Hour
		p.m.block(o, now, d)
		p.block(o.Text(), d)
	}
	p.publish()
}

func (p *pair) prune() {
	p.m.prune(p.clock.read())
	if prune(p.bundle).Counts > 0 {
		p.pruned = true
	}
}

func (p *pair) timePasses() {
	p.clock.set(p.clock.read().Add(time.Duration(rapid.IntRange(1, 40).Draw(p.T, "hours")) * time.Hour))
}

// rebuild makes the projection anew, unless the stream has more than what was
// kept.
func (p *pair) rebuild() {
	if p.pruned {
		p.Skip("the stream still has the counts that were pruned")
	}
	if rapid.IntRange(0, 3).Draw(p.T, "seldom") > 0 {
		p.Skip("it takes long")
	}
	ctx := p.Context()
	require.NoError(p.T, p.store.BeginRebuild(ctx, p.epoch))
	for from := 0; from < len(p.stream); {
		to := from + rapid.IntRange(1, len(p.stream)-from).Draw(p.T, "piece")
		_, err := p.store.Replay(ctx, p.epoch, p.stream[from:to])
		require.NoError(p.T, err)
		from = to
	}
	got, err := p.store.FinishRebuild(ctx, p.epoch, p.at)
	require.NoError(p.T, err)
	require.Equal(p.T, store.Result{}, got)
}

// check compares all blocks.
func (p *pair) check() {
	got := map[string]wire.BlockChange{}
	for _, scope := range []wire.Scope{wire.ScopeIP, wire.ScopeRange} {
		for _, b := range p.list(scope) {
			require.Positive(p.T, b.Version)
			b.Version = 0
			got[string(scope)+b.Target] = b
		}
	}
	want := map[string]wire.BlockChange{}
	for key, b := range p.m.blocks {
		want[key] = *b
	}
	require.Equal(p.T, want, got)
}

// look compares what is known about one address.
func (p *pair) look() {
	ip := addresses.Draw(p.T, "address")
	days := map[string]int64{}
	for d, c := range p.m.counts[ip] {
		days[d] = c.n
	}
	require.Equal(p.T, days, p.count(ip))
	held := []string{}
	for _, b := range p.m.blocks {
		target := b.Target
		if !strings.Contains(target, "/") {
			target = fmt.Sprintf("%s/%d", target, netip.MustParseAddr(target).BitLen())
		}
		if b.BlockedUntil.After(p.clock.read()) && netip.MustParsePrefix(target).Contains(netip.MustParseAddr(ip)) {
			held = append(held, b.Target)
		}
	}
	require.ElementsMatch(p.T, held, p.holding(ip))
}
