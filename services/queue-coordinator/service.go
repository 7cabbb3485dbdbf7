package coordinator

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ccnq/ccnq/pkg/admin"
	"github.com/ccnq/ccnq/pkg/bus"
	"github.com/ccnq/ccnq/pkg/lifecycle"
	"github.com/ccnq/ccnq/pkg/postgres"
	"github.com/ccnq/ccnq/services/queue-coordinator/internal/guard"
	"github.com/ccnq/ccnq/services/queue-coordinator/internal/push"
	"github.com/ccnq/ccnq/services/queue-coordinator/internal/rpc"
	"github.com/ccnq/ccnq/services/queue-coordinator/internal/store"
	"github.com/ccnq/ccnq/services/queue-coordinator/internal/store/memstore"
	"github.com/ccnq/ccnq/services/queue-coordinator/internal/store/pgstore"
	"github.com/ccnq/ccnq/services/queue-coordinator/internal/sweep"
)

const (
	// version is what NATS lists: the version of the messages.
	version = "1.0.0"
	// table is one that shows that the coordinator's migrations are visible.
	table = "group_state"
	// prepareTimeout bounds one attempt to make the database usable.
	// Migrations wait for each other, see db.LockWait.
	prepareTimeout = 2 * time.Minute
	minRetry       = 250 * time.Millisecond
	maxRetry       = 2 * time.Second
)

// Deps are what a coordinator does not make by itself.
type Deps struct {
	// Logger is required.
	Logger *slog.Logger
	// NATS says how to reach NATS; nil means as the configuration says.
	NATS *bus.Options
	// Registry gets the metrics; nil means one of the coordinator's own.
	Registry *prometheus.Registry
	// Memory keeps the state in the memory of this process instead of
	// Postgres. Then there must not be a second coordinator.
	Memory bool
	// Unbatched makes one call of the store for each request, to measure what
	// batching brings.
	Unbatched bool
	// Fail is told when the admin listener breaks after Start. Optional.
	Fail func(error)
}

// Coordinator is one coordinator. Its methods are safe for concurrent use.
type Coordinator struct {
	cfg      Config
	deps     Deps
	logger   *slog.Logger
	registry *prometheus.Registry
	admin    *admin.Server

	working sync.WaitGroup // joining, sweeping
	conn    atomic.Pointer[bus.Conn]
	guard   atomic.Pointer[guard.Store]
	serving atomic.Bool // the edges can ask
	sweeper atomic.Pointer[sweep.Sweeper]
	db      *postgres.Database // nil with Memory
	server  *rpc.Server        // read after working.Wait

	starting sync.Mutex // held by Start, and by Stop while it ends everything
	cancel   context.CancelFunc
	ending   *lifecycle.Ending
}

// New returns a coordinator that does nothing yet.
func New(cfg Config, deps Deps) *Coordinator {
	c := &Coordinator{
		cfg: cfg, deps: deps, logger: deps.Logger, registry: deps.Registry,
		ending: lifecycle.NewEnding(),
	}
	if c.registry == nil {
		c.registry = admin.NewRegistry()
	}
	c.admin = admin.New(admin.Options{
		Addr: cfg.General.AdminAddr, Checks: c.Checks(), Fail: deps.Fail, Log: deps.Logger,
		Pprof: cfg.General.AdminPprof, Registry: c.registry,
	})
	return c
}

// Checks are the parts of the coordinator as /readyz names them, for a program
// that has an admin listener of its own. They may be used before Start.
func (c *Coordinator) Checks() admin.Checks {
	return admin.Checks{"nats": c.natsStatus, "store": c.storeStatus}
}

func (c *Coordinator) natsStatus() admin.Status {
	if c.ending.Begun() {
		return admin.NotReady("stopping")
	}
	if conn := c.conn.Load(); conn == nil || !conn.Connected() {
		return admin.NotReady("not connected")
	}
	return admin.OK
}

func (c *Coordinator) storeStatus() admin.Status {
	switch g := c.guard.Load(); {
	case g == nil || !c.serving.Load():
		return admin.NotReady("not prepared yet")
	case !g.Up():
		return admin.NotReady("away; requests are answered as unavailable")
	}
	return admin.OK
}

// Start begins to work. It returns without waiting for NATS and Postgres: the
// coordinator serves as soon as both are there. With Memory it serves when
// Start returns. An error means that the configuration is no good, such as a
// credentials file that cannot be read, or that the admin address is taken;
// nothing is left running then. It must be called once.
func (c *Coordinator) Start(ctx context.Context) error {
	c.starting.Lock()
	err := c.start(ctx)
	c.starting.Unlock()
	if err != nil {
		return errors.Join(err, c.Stop(ctx))
	}
	return nil
}

func (c *Coordinator) start(ctx context.Context) error {
	if c.ending.Begun() {
		return errors.New("the coordinator has been stopped")
	}
	run, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	opts := c.cfg.NATS.Options(rpc.ServiceName, c.logger)
	if c.deps.NATS != nil {
		opts = *c.deps.NATS
	}
	if opts.Logger == nil {
		opts.Logger = c.logger
	}
	next := opts.OnChange
	opts.OnChange = func(connected bool) {
		c.interrupted()
		if next != nil {
			next(connected)
		}
	}
	conn, err := bus.Connect(opts)
	if err != nil {
		return err
	}
	c.conn.Store(conn)
	if err := c.admin.Start(ctx); err != nil {
		return err
	}
	pusher := push.New(conn, c.logger, c.registry)
	if c.deps.Memory {
		return c.serve(run, memstore.New(time.Now, pusher.Promoted))
	}
	if c.db, err = c.cfg.Postgres.Open(run, rpc.ServiceName, table); err != nil {
		return err
	}
	c.working.Go(func() { c.join(run, pusher) })
	return nil
}

// join waits until the database is usable, then serves, unless run ends before.
func (c *Coordinator) join(run context.Context, pusher *push.Pusher) {
	delay, last := minRetry, ""
	for {
		ctx, cancel := context.WithTimeout(run, prepareTimeout)
		err := c.db.Prepare(ctx)
		cancel()
		if err == nil {
			err = c.serve(run, pgstore.New(c.db.Pool(), pgstore.Options{Promoted: pusher.Promoted, Logger: c.logger}))
			if err != nil {
				c.logger.Error("cannot serve", "error", err)
			}
			return
		}
		if run.Err() != nil {
			return
		}
		if err.Error() != last {
			last = err.Error()
			c.logger.Warn("Postgres is not usable yet; trying on", "error", err)
		}
		select {
		case <-run.Done():
			return
		case <-time.After(delay):
			delay = min(2*delay, maxRetry)
		}
	}
}

// serve begins to answer edges, from a store that is usable, and to sweep until
// run ends.
func (c *Coordinator) serve(run context.Context, st store.Store) error {
	opts := guard.Options{Store: st, OnChange: c.interrupted, Logger: c.logger, Registry: c.registry}
	if c.db != nil {
		opts.Ping, opts.Restore = c.db.Ping, c.db.Prepare
	}
	guarded, conn := guard.New(opts), c.conn.Load()
	c.guard.Store(guarded)
	limits := c.cfg.Queue.limits()
	sweeper := sweep.New(sweep.Options{
		Store: guarded, Limits: limits, Every: c.cfg.Queue.SweepInterval.Duration(),
		IdleGroup: c.cfg.Queue.IdleGroup.Duration(), Ping: conn.Ping, Logger: c.logger, Registry: c.registry,
	})
	c.sweeper.Store(sweeper)
	c.working.Go(func() { sweeper.Run(run) })
	c.server = rpc.New(rpc.Options{
		Conn: conn, Store: guarded, Limits: limits, Version: version, Unbatched: c.deps.Unbatched,
		Logger: c.logger, Registry: c.registry,
	})
	if err := c.server.Start(); err != nil {
		return err
	}
	c.serving.Store(true)
	c.logger.Info("serving the queue", "max_served", limits.MaxServed, "max_pending", limits.MaxPending)
	return nil
}

// interrupted keeps the sweeper from taking silence for death.
func (c *Coordinator) interrupted() {
	if s := c.sweeper.Load(); s != nil {
		s.Interrupted()
	}
}

// Addr is where operators connect, or nil without an admin listener.
func (c *Coordinator) Addr() net.Addr { return c.admin.Addr() }

// Stop takes no more requests, answers those that it took, and ends
// everything. It returns when that is done, or with the error of ctx when that
// ends first; the rest then goes on in the background. It may be called at any
// time and more than once.
func (c *Coordinator) Stop(ctx context.Context) error {
	return c.ending.Stop(ctx, c.stop)
}

func (c *Coordinator) stop(ctx context.Context) error {
	c.starting.Lock()
	defer c.starting.Unlock()
	if c.cancel != nil {
		c.cancel()
	}
	c.working.Wait()
	var problems []error
	if c.server != nil {
		problems = append(problems, c.server.Stop())
	}
	if g := c.guard.Load(); g != nil {
		g.Close()
	}
	if c.db != nil {
		c.db.Close()
	}
	if conn := c.conn.Load(); conn != nil {
		conn.Close()
	}
	return errors.Join(append(problems, c.admin.Stop(ctx))...)
}
