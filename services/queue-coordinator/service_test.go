package coordinator

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/pkg/bus"
	"github.com/ccnq/ccnq/pkg/config"
	"github.com/ccnq/ccnq/pkg/testdb"
	"github.com/ccnq/ccnq/pkg/wire"
)

func TestMemoryServesWhenStartReturns(t *testing.T) {
	t.Parallel()
	p := newParts(t)
	cfg := p.config("postgres://nobody@127.0.0.1:1/none", "queue")
	c := p.start(cfg, Deps{Memory: true, NATS: &bus.Options{InProcess: p.nats.InProcess(), Name: "test"}})
	require.NoError(t, c.conn.Load().Ping(p.ctx()))
	decision, err := p.edge("edge-1").admit(1, 10*time.Second)
	require.NoError(t, err)
	require.Equal(t, wire.Admitted, decision)
	ready, body := readyz(t, c)
	require.True(t, ready, body)
}

func TestMetricsOfAllParts(t *testing.T) {
	t.Parallel()
	p := newParts(t)
	c := p.start(p.config("postgres://nobody@127.0.0.1:1/none", "queue"), Deps{Memory: true})
	families, err := c.registry.Gather()
	require.NoError(t, err)
	have := make(map[string]bool)
	for _, family := range families {
		have[family.GetName()] = true
	}
	for _, name := range []string{
		"ccnq_coordinator_active", "ccnq_coordinator_asserted_total", "ccnq_coordinator_batches_in_flight", "ccnq_coordinator_groups",
		"ccnq_coordinator_promotions_pushed_total", "ccnq_coordinator_reclaim_suspended", "ccnq_coordinator_reclaimed_total",
		"ccnq_coordinator_requests_total", "ccnq_coordinator_store_seconds", "ccnq_coordinator_store_up", "ccnq_coordinator_waiting",
	} {
		require.True(t, have[name], name)
	}
}

// TestTwoCoordinatorsOneDatabase shares the work of one group between two.
func TestTwoCoordinatorsOneDatabase(t *testing.T) {
	t.Parallel()
	p := newParts(t)
	db := testdb.New(t)
	cfg := p.config(db.URL, db.Schema)
	cfg.Queue.MaxServed, cfg.Queue.MaxPending = 10, 1_000
	cfg.Queue.Lease = config.Millis(10 * time.Minute) // no place is taken away meanwhile
	for range 2 {
		untilReady(t, p.start(cfg, Deps{}))
	}
	var origin struct {
		sync.Mutex
		now, most, served int
	}
	var wg sync.WaitGroup
	for i, e := range []*edge{p.edge("edge-1"), p.edge("edge-2")} {
		turns := make(map[wire.RequestID]chan struct{})
		for n := range 100 {
			turns[id(1_000*i+n+1)] = make(chan struct{})
		}
		wg.Go(func() {
			for range turns {
				close(turns[<-e.promoted])
			}
		})
		for n := range 100 {
			n := 1_000*i + n + 1
			wg.Go(func() {
				decision, err := e.admit(n, patience)
				if err != nil {
					t.Error(err)
					return
				}
				switch decision {
				case wire.Queued:
					<-turns[id(n)]
				case wire.Admitted:
					e.promoted <- id(n)
				}
				origin.Lock()
				origin.now++
				origin.served++
				origin.most = max(origin.most, origin.now)
				origin.Unlock()
				origin.Lock()
				origin.now--
				origin.Unlock()
				if err := e.release(n); err != nil {
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()
	require.LessOrEqual(t, origin.most, 10)
	require.Equal(t, 200, origin.served)
}

func TestStopAtAnyTime(t *testing.T) {
	t.Parallel()
	p := newParts(t)
	cfg := p.config("postgres://nobody@127.0.0.1:1/none", "queue")
	logger := slog.New(slog.DiscardHandler)

	c := New(cfg, Deps{Logger: logger})
	require.NoError(t, c.Stop(p.ctx()), "before Start")
	require.Error(t, c.Start(p.ctx()), "after Stop")
	require.NoError(t, c.Stop(p.ctx()))

	for _, memory := range []bool{true, false} {
		c = New(cfg, Deps{Logger: logger, Memory: memory})
		require.NoError(t, c.Start(p.ctx()))
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				if err := c.Stop(p.ctx()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}

	// Start and Stop at once, in whichever order.
	for range 20 {
		c := New(cfg, Deps{Logger: logger, Memory: true})
		var wg sync.WaitGroup
		wg.Go(func() { _ = c.Start(p.ctx()) })
		wg.Go(func() { _ = c.Stop(p.ctx()) })
		wg.Wait()
		require.NoError(t, c.Stop(p.ctx()))
	}
}

func TestStopIsBounded(t *testing.T) {
	t.Parallel()
	p := newParts(t)
	c := New(p.config("postgres://nobody@127.0.0.1:1/none", "queue"), Deps{Logger: slog.New(slog.DiscardHandler), Memory: true})
	require.NoError(t, c.Start(p.ctx()))
	c.starting.Lock() // what Stop waits for
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, c.Stop(ctx), context.Canceled)
	c.starting.Unlock()
	<-c.ending.Over()
}

func TestStartFailsOnWhatWaitingCannotMend(t *testing.T) {
	t.Parallel()
	p := newParts(t)
	cfg := p.config("postgres://nobody@127.0.0.1:1/none", "queue")
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()

	port := cfg
	port.General.AdminAddr = config.Addr(taken.Addr().String())
	token := cfg
	token.NATS.TokenFile = filepath.Join(t.TempDir(), "missing")
	for _, bad := range []Config{port, token} {
		c := New(bad, Deps{Logger: slog.New(slog.DiscardHandler)})
		require.Error(t, c.Start(p.ctx()))
	}
}

// exec runs SQL in the database at address.
func exec(t testing.TB, address, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), address)
	require.NoError(t, err)
	defer conn.Close(context.Background())
	_, err = conn.Exec(t.Context(), sql)
	require.NoError(t, err)
}

func TestAdminListenerCanBeOff(t *testing.T) {
	t.Parallel()
	p := newParts(t)
	cfg := p.config("postgres://nobody@127.0.0.1:1/none", "queue")
	cfg.General.AdminAddr = "off"
	c := p.start(cfg, Deps{Memory: true})
	require.Nil(t, c.Addr())
	recorder := httptest.NewRecorder()
	c.Checks().ServeHTTP(recorder, nil)
	require.Contains(t, []int{http.StatusOK, http.StatusServiceUnavailable}, recorder.Code)
}
