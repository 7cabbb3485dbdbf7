package edge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ccnq/ccnq/pkg/admin"
	"github.com/ccnq/ccnq/pkg/bus"
	"github.com/ccnq/ccnq/pkg/clientip"
	"github.com/ccnq/ccnq/pkg/rules"
	"github.com/ccnq/ccnq/pkg/wire"
	"github.com/ccnq/ccnq/services/edge/internal/admission"
	"github.com/ccnq/ccnq/services/edge/internal/cache"
	"github.com/ccnq/ccnq/services/edge/internal/denylist"
	"github.com/ccnq/ccnq/services/edge/internal/gateway"
	"github.com/ccnq/ccnq/services/edge/internal/listen"
	"github.com/ccnq/ccnq/services/edge/internal/outbox"
	"github.com/ccnq/ccnq/services/edge/internal/proxy"
	"github.com/ccnq/ccnq/services/edge/internal/purge"
)

// Deps are what an edge does not make by itself.
type Deps struct {
	// Logger is required.
	Logger *slog.Logger
	// NATS says how to reach NATS; nil means as the configuration says.
	NATS *bus.Options
	// Registry receives the metrics; nil means one of the edge's own.
	Registry *prometheus.Registry
	// Fail is told when the admin listener breaks after Start. Optional.
	Fail func(error)
}

// Edge is one edge. Its methods are safe for concurrent use.
type Edge struct {
	cfg    Config
	logger *slog.Logger

	admin  *admin.Server
	id     string    // of this edge
	conn   *bus.Conn // nil if nothing needs NATS
	gate   *admission.Gate
	blocks *denylist.List
	outbox *outbox.Outbox
	proxy  *proxy.Proxy
	rules  *rules.File
	server *listen.Server
	limits limits

	cache      *cache.Cache // nil when it is off
	cacheRules *rules.File
	purge      *purge.Listener

	serving  atomic.Bool
	stopOnce sync.Once
	addr     net.Addr
}

// New wires an edge and opens what it can fail on: the rules, the certificate,
// the credentials. It opens no socket.
func New(cfg Config, deps Deps) (_ *Edge, err error) {
	e := &Edge{cfg: cfg, logger: deps.Logger}
	defer func() {
		if err != nil {
			e.release()
		}
	}()
	registry := deps.Registry
	if registry == nil {
		registry = admin.NewRegistry()
	}
	trusted, err := clientip.ParseSet(cfg.General.TrustedProxies)
	if err != nil {
		return nil, fmt.Errorf("CCNQ_TRUSTED_PROXIES: %w", err)
	}
	allowlist, err := clientip.ParseSet(cfg.Queue.Allowlist)
	if err != nil {
		return nil, fmt.Errorf("CCNQ_QUEUE_ALLOWLIST: %w", err)
	}
	if cfg.General.ClientIPHeader != "" && trusted.Empty() {
		deps.Logger.Warn("everybody's word is taken for the client's address: set CCNQ_TRUSTED_PROXIES to the proxies in front",
			"header", cfg.General.ClientIPHeader)
	}
	clients := clientip.NewResolver(clientip.Options{Header: cfg.General.ClientIPHeader, Trusted: trusted})
	e.proxy, err = proxy.New(proxy.Options{
		Upstream:              cfg.Upstream.URL.URL,
		Host:                  cfg.Upstream.Host,
		ConnectTimeout:        cfg.Upstream.ConnectTimeout.Duration(),
		ResponseHeaderTimeout: cfg.Upstream.HeaderTimeout.Duration(),
		Trusted:               clients.PeerTrusted,
		OnEventStream:         listen.EventStream,
	})
	if err != nil {
		return nil, fmt.Errorf("CCNQ_UPSTREAM_URL: %w", err)
	}
	if err := e.connect(deps); err != nil {
		return nil, err
	}
	limits, err := e.newQoS(registry)
	if err != nil {
		return nil, err
	}
	queue, err := e.newQueue(deps, registry)
	if err != nil {
		return nil, err
	}
	e.newOutbox(registry)
	if err := e.newCache(registry); err != nil {
		return nil, err
	}
	handler := gateway.New(gateway.Options{
		Clients:    clients,
		Groups:     clientip.Grouper{V4: cfg.Queue.IPv4Prefix, V6: cfg.Queue.IPv6Prefix},
		Trusted:    trusted,
		Allowlist:  allowlist,
		Proxy:      e.proxy,
		QoS:        limits,
		Cache:      e.cache,
		Queue:      queue,
		Blocks:     e.blocks,
		Denials:    e.outbox,
		AccessLog:  cfg.General.AccessLog,
		Registerer: registry,
		Logger:     deps.Logger,
	})
	e.server, err = listen.New(listen.Options{
		Addr:              fmt.Sprintf(":%d", cfg.General.Port),
		Handler:           handler,
		TLSCertFile:       cfg.Listener.TLSCertFile,
		TLSKeyFile:        cfg.Listener.TLSKeyFile,
		ReadHeaderTimeout: cfg.Listener.HeaderTimeout.Duration(),
		IdleTimeout:       cfg.Listener.IdleTimeout.Duration(),
		MaxHeaderBytes:    cfg.Listener.MaxHeader,
		Logger:            deps.Logger,
	})
	if err != nil {
		return nil, err
	}
	e.admin = admin.New(admin.Options{
		Addr:     cfg.General.AdminAddr,
		Checks:   e.Checks(),
		Fail:     deps.Fail,
		Log:      deps.Logger,
		Pprof:    cfg.General.AdminPprof,
		Registry: registry,
		Routes:   e.Routes(),
	})
	return e, nil
}

// Routes are what the edge answers operators besides, for a program that has an
// admin listener of its own.
func (e *Edge) Routes() map[string]http.Handler {
	if e.purge == nil {
		return nil
	}
	return map[string]http.Handler{purge.Route: e.purge}
}

// Checks are the parts of the edge as /readyz names them, for a program that
// has an admin listener of its own.
func (e *Edge) Checks() admin.Checks {
	checks := admin.Checks{"listener": func() admin.Status {
		if !e.serving.Load() {
			return admin.NotReady("starting or shutting down")
		}
		return admin.OK
	}}
	if e.blocks != nil {
		checks["denylist"] = e.blocks.Status
	}
	if e.outbox != nil {
		checks["outbox"] = func() admin.Status {
			if reason := e.outbox.Degraded(); reason != "" {
				return admin.Degraded(reason)
			}
			return admin.OK
		}
	}
	if e.cache != nil {
		checks["cache"] = func() admin.Status {
			if reason := e.cache.Degraded(); reason != "" {
				return admin.Degraded(reason)
			}
			return admin.OK
		}
	}
	if e.limits.syncs != nil {
		checks["qos"] = e.limits.status
	}
	if e.gate != nil {
		checks["queue"] = func() admin.Status {
			if reason := e.gate.Degraded(); reason != "" {
				return admin.Degraded(reason)
			}
			return admin.OK
		}
	}
	return checks
}

// tells says whether there is something to tell over NATS: who is refused.
func (e *Edge) tells() bool { return e.cfg.Queue.Enabled || e.cfg.ClusterOnNATS() }

// connect connects to NATS if anything needs it.
func (e *Edge) connect(deps Deps) (err error) {
	e.id = e.cfg.General.edgeID()
	purges := e.cfg.Cache.Enabled && (deps.NATS != nil || e.cfg.NATS.Given()) // of use, not needed
	if !e.tells() && !purges {
		return nil
	}
	options := e.cfg.NATS.Options("ccnq-edge "+e.id, deps.Logger)
	if deps.NATS != nil {
		options = *deps.NATS
	}
	if options.UserFile == "" { // else the user's, which is the id if each edge has a user of its own
		options.InboxPrefix = wire.InboxPrefix(e.id)
	}
	e.conn, err = bus.Connect(options)
	return err
}

// newOutbox makes the outbox of denials, if there is NATS and they are wanted.
func (e *Edge) newOutbox(registry *prometheus.Registry) {
	if !e.tells() || !e.cfg.Denylist.Enabled {
		return
	}
	e.outbox = outbox.New(outbox.Options{
		EdgeID:     e.id,
		Dir:        filepath.Join(e.cfg.General.DataDir, "outbox"),
		MaxBytes:   e.cfg.Denylist.OutboxMaxBytes,
		Publish:    e.publish,
		Registerer: registry,
		Logger:     e.logger,
	})
}

// newQueue makes the queue stage, or returns nil when the queue is off: then
// no coordinator is needed.
func (e *Edge) newQueue(deps Deps, registry *prometheus.Registry) (*gateway.Queue, error) {
	q := e.cfg.Queue
	if !q.Enabled {
		return nil, nil
	}
	var err error
	if e.rules, err = rules.OpenFile(q.RulesFile, deps.Logger); err != nil {
		return nil, fmt.Errorf("CCNQ_QUEUE_RULES_FILE: %w", err)
	}
	for _, pattern := range e.rules.Current().Backtracking() {
		deps.Logger.Warn("a pattern needs a backtracking engine, which is slower and has a time limit", "pattern", pattern)
	}
	if e.rules.Current().Empty() {
		deps.Logger.Warn("the queue is on and its ruleset matches nothing", "file", q.RulesFile)
	}
	e.gate = admission.New(admission.Options{
		EdgeID:         e.id,
		Conn:           e.conn,
		AdmitTimeout:   q.AdmitTimeout.Duration(),
		PendingTimeout: q.Pending.Duration(),
		PollInterval:   q.Poll.Duration(),
		Lease:          q.Lease.Duration(),
		Monitor:        q.Mode == "monitor",
		Fallback:       q.Fallback == "local",
		Limits:         wire.Limits{MaxServed: q.MaxServed, MaxPending: q.MaxPending},
		Registerer:     registry,
		Logger:         deps.Logger,
	})
	if e.cfg.Denylist.Enabled {
		e.blocks = denylist.New(denylist.Options{Conn: e.conn, Registerer: registry, Logger: deps.Logger})
	}
	e.logger.Info("the queue is on", "edge", e.id, "mode", q.Mode, "fallback", q.Fallback)
	stage := &gateway.Queue{
		Gate:     e.gate,
		Methods:  q.Methods,
		Rules:    e.rules,
		PeerGone: listen.PeerGone,
	}
	if q.Mode != "monitor" {
		stage.MaxActive = q.MaxActive.Duration()
	}
	return stage, nil
}

// publish sends one event and waits until it is stored.
func (e *Edge) publish(ctx context.Context, subject string, payload []byte, msgID string) error {
	return bus.PublishAcked(ctx, e.conn, subject, payload, msgID)
}

// Start begins to serve. On an error nothing is left running.
func (e *Edge) Start(ctx context.Context) error {
	err := e.start(ctx)
	if err != nil {
		e.release()
	}
	return err
}

func (e *Edge) start(ctx context.Context) error {
	if err := e.admin.Start(ctx); err != nil {
		return fmt.Errorf("CCNQ_ADMIN_ADDR: %w", err)
	}
	if e.gate != nil {
		if err := e.gate.Start(); err != nil {
			return err
		}
	}
	if e.blocks != nil {
		if err := e.blocks.Start(); err != nil {
			return err
		}
	}
	if e.outbox != nil {
		e.outbox.Start()
	}
	if err := e.limits.start(); err != nil {
		return err
	}
	if e.purge != nil {
		if err := e.purge.Start(); err != nil {
			return err
		}
	}
	addr, err := e.server.Start()
	if err != nil {
		return fmt.Errorf("CCNQ_PORT: %w", err)
	}
	e.addr = addr
	e.serving.Store(true)
	e.logger.Info("serving", "addr", addr.String())
	return nil
}

// Addr is where clients connect, once started.
func (e *Edge) Addr() net.Addr { return e.addr }

// AdminAddr is where operators connect, once started, or nil without an admin
// listener.
func (e *Edge) AdminAddr() net.Addr { return e.admin.Addr() }

// Reload reads the rules and the certificate again; what cannot be read stays
// as it was.
func (e *Edge) Reload() error {
	var problems []error
	for _, file := range []*rules.File{e.rules, e.cacheRules} {
		if file != nil {
			problems = append(problems, file.Reload())
		}
	}
	return errors.Join(append(problems, e.server.Reload())...)
}

// Stop ends the edge in the order that loses nothing: not ready but still
// accepting for the shutdown delay; then no new connections, and requests
// under way may end; then what never ends by itself is cut; then every place
// is given back, and what was denied is told. It returns when all is done, or soon after ctx ends. It may be
// called twice.
func (e *Edge) Stop(ctx context.Context) error {
	e.stopOnce.Do(func() { e.stop(ctx) })
	return nil
}

func (e *Edge) stop(ctx context.Context) {
	e.serving.Store(false)
	select {
	case <-time.After(e.cfg.General.ShutdownDelay.Duration()):
	case <-ctx.Done():
	}
	drain, cancel := context.WithTimeout(ctx, drainTimeout)
	if err := e.server.Drain(drain); err != nil {
		e.logger.Warn("requests did not end in time", "error", err)
	}
	cancel()
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), cutTimeout)
	cut, err := e.server.Cut(ending)
	cancel()
	if err != nil {
		e.logger.Error("requests were left behind", "error", err)
	}
	e.logger.Info("drained", "cut_requests", cut.Requests, "cut_upgrades", cut.Upgrades, "cut_event_streams", cut.EventStreams)
	if e.purge != nil {
		e.purge.Stop()
	}
	if e.cache != nil {
		fetches, cancel := context.WithTimeout(context.WithoutCancel(ctx), fetchTimeout)
		if err := e.cache.Stop(fetches); err != nil {
			e.logger.Warn("the cache did not stop well", "error", err)
		}
		cancel()
	}
	if e.gate != nil {
		giveBack, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*e.cfg.Queue.AdmitTimeout.Duration())
		e.gate.Stop(giveBack)
		cancel()
	}
	flush, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
	defer cancel()
	// At the same time, so that a store that hangs does not take the other's time.
	var flushed sync.WaitGroup
	flushed.Go(func() { e.limits.flush(flush) })
	if e.outbox != nil {
		e.outbox.Stop(flush)
	}
	flushed.Wait()
	if e.blocks != nil {
		e.blocks.Stop()
	}
	e.release()
}

// release closes whatever was opened.
func (e *Edge) release() {
	e.limits.close()
	if e.purge != nil {
		e.purge.Stop()
	}
	if e.conn != nil {
		e.conn.Close()
	}
	for _, file := range []*rules.File{e.rules, e.cacheRules} {
		if file != nil {
			_ = file.Close()
		}
	}
	if e.cache != nil {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		_ = e.cache.Stop(ended) // after stop there is nothing left to do
	}
	if e.proxy != nil {
		e.proxy.Close()
	}
	if e.admin != nil {
		ctx, cancel := context.WithTimeout(context.Background(), adminStop)
		defer cancel()
		if err := e.admin.Stop(ctx); err != nil {
			e.logger.Warn("the admin listener did not stop", "error", err)
		}
	}
}
