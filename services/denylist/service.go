package denylist

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ccnq/ccnq/pkg/admin"
	"github.com/ccnq/ccnq/pkg/bus"
	"github.com/ccnq/ccnq/pkg/clientip"
	"github.com/ccnq/ccnq/pkg/lifecycle"
	"github.com/ccnq/ccnq/pkg/postgres"
	"github.com/ccnq/ccnq/pkg/qos"
	"github.com/ccnq/ccnq/services/denylist/internal/clusterqos"
	"github.com/ccnq/ccnq/services/denylist/internal/lead"
	"github.com/ccnq/ccnq/services/denylist/internal/projector"
	"github.com/ccnq/ccnq/services/denylist/internal/publish"
	"github.com/ccnq/ccnq/services/denylist/internal/rpc"
	"github.com/ccnq/ccnq/services/denylist/internal/store"
	"github.com/ccnq/ccnq/services/denylist/internal/store/memstore"
	"github.com/ccnq/ccnq/services/denylist/internal/store/pgstore"
	"github.com/ccnq/ccnq/services/denylist/internal/streams"
	"github.com/ccnq/ccnq/services/denylist/internal/upkeep"
)

const (
	// version is what NATS lists: the version of the messages.
	version = "1.0.0"
	// table is one that shows that the service's migrations are visible.
	table = "denylist_checkpoint"
	// toldTimeout is how long an order waits until the event stream has it.
	toldTimeout = time.Second
)

// Deps are what the service does not make by itself.
type Deps struct {
	// Logger is required.
	Logger *slog.Logger
	// NATS says how to reach NATS; nil means as the configuration says.
	NATS *bus.Options
	// Registry gets the metrics; nil means one of the service's own.
	Registry *prometheus.Registry
	// Memory keeps the tables in the memory of this process instead of
	// Postgres. Then there must not be a second process.
	Memory bool
	// Fail is told when the admin listener breaks after Start. Optional.
	Fail func(error)

	// store, for tests, takes the place of the one that the configuration
	// names.
	store store.Store
}

// Service is one process of the denylist service. Its methods are safe for
// concurrent use.
type Service struct {
	cfg      Config
	deps     Deps
	logger   *slog.Logger
	registry *prometheus.Registry
	admin    *admin.Server
	holder   string // the name of this process among those that would lead

	conn       atomic.Pointer[bus.Conn]
	streams    atomic.Pointer[streams.Keeper]
	candidate  atomic.Pointer[lead.Candidate]
	projector  atomic.Pointer[projector.Projector]
	publisher  atomic.Pointer[publish.Publisher]
	aggregator atomic.Pointer[clusterqos.Aggregator] // nil unless edges count together here
	begun      atomic.Bool                           // the store is on the present stream
	working    sync.WaitGroup
	db         *postgres.Database // nil with Memory
	upkeep     *upkeep.Keeper
	server     *rpc.Server

	starting sync.Mutex // held by Start, and by Stop while it ends everything
	cancel   context.CancelFunc
	ending   *lifecycle.Ending
}

// New returns a service that does nothing yet.
func New(cfg Config, deps Deps) *Service {
	s := &Service{
		cfg: cfg, deps: deps, logger: deps.Logger, registry: deps.Registry,
		holder: holder(),
		ending: lifecycle.NewEnding(),
	}
	if s.registry == nil {
		s.registry = admin.NewRegistry()
	}
	s.admin = admin.New(admin.Options{
		Addr: cfg.General.AdminAddr, Checks: s.Checks(), Fail: deps.Fail, Log: deps.Logger,
		Pprof: cfg.General.AdminPprof, Registry: s.registry,
	})
	return s
}

// Addr is where operators connect, or nil without an admin listener.
func (s *Service) Addr() net.Addr { return s.admin.Addr() }

// Start begins to work. It returns without waiting for NATS and Postgres: the
// service joins as soon as both are there. An error means that the
// configuration is no good, such as a credentials file that cannot be read, or
// that the admin address is taken; nothing is left running then. It must be
// called once.
func (s *Service) Start(ctx context.Context) error {
	s.starting.Lock()
	err := s.start(ctx)
	s.starting.Unlock()
	if err != nil {
		return errors.Join(err, s.Stop(ctx))
	}
	return nil
}

func (s *Service) start(ctx context.Context) error {
	if s.ending.Begun() {
		return errors.New("the service has been stopped")
	}
	run, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	conn, err := s.connect()
	if err != nil {
		return err
	}
	s.conn.Store(conn)
	if err := s.admin.Start(ctx); err != nil {
		return err
	}
	options := streams.Options{
		Conn: conn, MaxAge: s.cfg.Events.MaxAge.Duration(), MaxBytes: s.cfg.Events.MaxBytes, Logger: s.logger,
	}
	limits := s.cfg.QoS.limits()
	if s.cfg.QoS.Cluster == "nats" {
		options.More = clusterqos.Streams(limits)
	}
	keeper := streams.New(options)
	s.streams.Store(keeper)
	s.working.Go(func() { keeper.Run(run) })
	if s.cfg.QoS.Cluster == "nats" {
		s.count(run, conn, keeper, limits)
	}
	if !s.cfg.Denylist.Enabled {
		s.logger.Info("the denylist is off: nothing is counted or blocked")
		return nil
	}
	st, err := s.open(run)
	if err != nil {
		return err
	}
	return s.serve(run, conn, keeper, st)
}

func (s *Service) connect() (*bus.Conn, error) {
	opts := s.cfg.NATS.Options(rpc.ServiceName, s.logger)
	if s.deps.NATS != nil {
		opts = *s.deps.NATS
	}
	if opts.Logger == nil {
		opts.Logger = s.logger
	}
	next := opts.OnChange
	opts.OnChange = func(connected bool) {
		if keeper := s.streams.Load(); keeper != nil {
			keeper.Missing() // the server that comes back may be an empty one
		}
		if next != nil {
			next(connected)
		}
	}
	return bus.Connect(opts)
}

// count adds up what the edges track for the load-aware limits. It needs neither the
// denylist nor its store.
func (s *Service) count(run context.Context, conn *bus.Conn, keeper *streams.Keeper, limits qos.ClusterLimits) {
	if !limits.Any() {
		s.logger.Warn("edges count together, but there is no limit for all of them: set CCNQ_QOS_CLUSTER_MAX_IP_RATE, " +
			"CCNQ_QOS_CLUSTER_MAX_SUBNET_RATE or CCNQ_QOS_CLUSTER_MAX_HOST_RATIO")
	}
	aggregator := clusterqos.New(clusterqos.Options{
		Conn: conn, Limits: limits, Holder: s.holder,
		Wait: keeper.Wait, Missing: keeper.Missing, Logger: s.logger, Registry: s.registry,
	})
	s.aggregator.Store(aggregator)
	s.working.Go(func() { aggregator.Run(run) })
}

// open returns the store, which may be away.
func (s *Service) open(ctx context.Context) (store.Store, error) {
	settings := s.cfg.Denylist.settings()
	switch {
	case s.deps.store != nil:
		return s.deps.store, nil
	case s.deps.Memory:
		return memstore.New(settings, nil), nil
	}
	db, err := s.cfg.Postgres.Open(ctx, rpc.ServiceName, table)
	if err != nil {
		return nil, err
	}
	s.db = db
	return pgstore.New(db.Pool(), settings, nil), nil
}

// serve wires the parts and begins to campaign and to answer requests.
func (s *Service) serve(run context.Context, conn *bus.Conn, keeper *streams.Keeper, st store.Store) error {
	publisher := publish.New(publish.Options{
		Conn: conn, Store: st, Wait: keeper.Wait, Missing: keeper.Missing, Monitor: s.cfg.Denylist.monitor(),
		Logger: s.logger, Registry: s.registry,
	})
	s.publisher.Store(publisher)
	proj := projector.New(projector.Options{
		Conn: conn, Store: st, Wait: keeper.Wait, Missing: keeper.Missing, Changed: publisher.Changed,
		Hold: publisher.Hold, Rebuilt: publisher.Compare, Logger: s.logger, Registry: s.registry,
	})
	s.projector.Store(proj)
	s.upkeep = upkeep.New(upkeep.Options{
		Store: st, Every: s.cfg.Denylist.SweepInterval.Duration(), RenewAfter: s.cfg.Events.MaxAge.Duration() / 2,
		Changed: publisher.Changed, Logger: s.logger, Registry: s.registry,
	})
	opts := lead.Options{
		Name: "denylist", Lease: st, Holder: s.holder, Eligible: conn.Connected, Work: s.lead,
		Ping: func(ctx context.Context) error {
			_, err := st.Checkpoint(ctx)
			return err
		},
		Logger: s.logger, Registry: s.registry,
	}
	if s.db != nil {
		opts.Prepare = s.db.Prepare
	}
	candidate := lead.New(opts)
	s.candidate.Store(candidate)
	trusted, err := clientip.ParseSet(s.cfg.General.TrustedProxies)
	if err != nil {
		return fmt.Errorf("CCNQ_TRUSTED_PROXIES: %w", err)
	}
	allowlist, err := clientip.ParseSet(s.cfg.Queue.Allowlist)
	if err != nil {
		return fmt.Errorf("CCNQ_QUEUE_ALLOWLIST: %w", err)
	}
	s.server = rpc.New(rpc.Options{
		Conn: conn, Store: st, Version: version, Ready: s.ready, Changed: publisher.Changed, Rebuild: proj.Rebuild,
		Trusted: trusted, Allowlist: allowlist, Inert: s.inert(), Volatile: s.volatile,
		Logger: s.logger, Registry: s.registry,
	})
	s.working.Go(func() { candidate.Run(run) })
	return s.server.Start()
}

// inert is the warning for whoever adds a block that no edge enforces.
func (s *Service) inert() string {
	switch {
	case !s.cfg.Queue.Enabled:
		return "CCNQ_QUEUE_ENABLED is false here: while the queue is off, blocks have no effect"
	case s.cfg.Denylist.monitor():
		return "CCNQ_QUEUE_DENYLIST_MODE is monitor: blocks refuse nobody"
	}
	return ""
}

// volatile is the warning for whoever changes a block of which the memory of
// this process alone knows.
func (s *Service) volatile(ctx context.Context, version int64) string {
	if !s.deps.Memory {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, toldTimeout)
	defer cancel()
	if err := s.publisher.Load().Told(ctx, version); err != nil {
		return "the event stream does not take this now: if that lasts, it does not outlive a restart"
	}
	return ""
}

// holder is a name that no other process has.
func holder() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return host + "-" + rand.Text()
}

// Stop answers the requests that it took, publishes what is left, resigns, and
// ends everything. It returns when that is done, or with the error of ctx when
// that ends first; the rest then goes on in the background. It may be called at
// any time and more than once.
func (s *Service) Stop(ctx context.Context) error {
	return s.ending.Stop(ctx, s.stop)
}

func (s *Service) stop(ctx context.Context) error {
	s.starting.Lock()
	defer s.starting.Unlock()
	var problems []error
	if s.server != nil {
		problems = append(problems, s.server.Stop())
	}
	if s.cancel != nil {
		s.cancel()
	}
	s.working.Wait()
	if s.db != nil {
		s.db.Close()
	}
	if conn := s.conn.Load(); conn != nil {
		conn.Close()
	}
	return errors.Join(append(problems, s.admin.Stop(ctx))...)
}
