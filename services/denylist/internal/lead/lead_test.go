package lead

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/ccnq/ccnq/services/denylist/internal/store"
	"github.com/ccnq/ccnq/services/denylist/internal/store/memstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// gate is a store that can be cut off, and that can hang.
type gate struct {
	store.Store
	cut  atomic.Bool
	hang atomic.Bool
}

func (g *gate) Lead(ctx context.Context, holder string, ttl time.Duration) (int64, bool, error) {
	if g.hang.Load() {
		<-ctx.Done()
		return 0, false, ctx.Err()
	}
	if g.cut.Load() {
		return 0, false, errors.New("cut off")
	}
	return g.Store.Lead(ctx, holder, ttl)
}

// member is a candidate that runs, in a synctest bubble.
type member struct {
	*Candidate
	gate     *gate
	eligible atomic.Bool
	prepared atomic.Int64
	term     atomic.Pointer[Term]
	stop     func()
}

func join(t *testing.T, st store.Store, holder string) *member {
	t.Helper()
	m := &member{gate: &gate{Store: st}}
	m.eligible.Store(true)
	m.Candidate = New(Options{
		Name: "test", Lease: m.gate, Holder: holder, Eligible: m.eligible.Load, Logger: slog.New(slog.DiscardHandler),
		Ping: func(ctx context.Context) error {
			_, err := st.Checkpoint(ctx)
			return err
		},
		Prepare: func(context.Context) error { m.prepared.Add(1); return nil },
		Work: func(ctx context.Context, term *Term) {
			m.term.Store(term)
			<-ctx.Done()
		},
		Registry: prometheus.NewRegistry(),
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); m.Run(ctx) }()
	m.stop = func() { cancel(); <-done }
	t.Cleanup(m.stop)
	synctest.Wait()
	return m
}

// after lets time pass.
func after(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func TestOneLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memstore.New(store.DefaultSettings(), nil)
		a, b := join(t, st, "a"), join(t, st, "b")
		for range 100 {
			require.True(t, a.Leads() && a.Up() && a.term.Load().Valid())
			require.False(t, b.Leads())
			require.True(t, b.Up(), "it stands by")
			after(time.Second)
		}
		require.EqualValues(t, 1, a.prepared.Load())

		a.stop()
		after(pause)
		require.True(t, b.Leads(), "whoever stops resigns")
		require.Greater(t, b.term.Load().Epoch, a.term.Load().Epoch)
	})
}

func TestTakeover(t *testing.T) {
	for name, fault := range map[string]func(m *member){
		"cut off":  func(m *member) { m.gate.cut.Store(true) },
		"no reply": func(m *member) { m.gate.hang.Store(true) },
		"no NATS":  func(m *member) { m.eligible.Store(false) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				st := memstore.New(store.DefaultSettings(), nil)
				a, b := join(t, st, "a"), join(t, st, "b")
				after(10 * time.Second)
				fault(a)
				after(5 * time.Second)
				require.True(t, b.Leads(), "within five seconds")
				after(2 * time.Second)
				require.False(t, a.Leads())
				require.False(t, a.term.Load().Valid())
				a.gate.cut.Store(false)
				a.gate.hang.Store(false)
				a.eligible.Store(true)
				after(10 * time.Second)
				require.False(t, a.Leads(), "and stays with it")
				require.True(t, a.Up())
			})
		})
	}
}

func TestShortFailureEndsNoTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := join(t, memstore.New(store.DefaultSettings(), nil), "a")
		term := a.term.Load()
		a.gate.cut.Store(true)
		after(2500 * time.Millisecond)
		require.False(t, a.Up())
		require.True(t, a.Leads() && term.Valid())
		a.gate.cut.Store(false)
		after(2 * time.Second)
		require.True(t, a.Up() && a.Leads())
		require.Same(t, term, a.term.Load())
	})
}
