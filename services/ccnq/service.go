package ccnq

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ccnq/ccnq/pkg/admin"
	"github.com/ccnq/ccnq/pkg/bus"
	"github.com/ccnq/ccnq/pkg/bus/embed"
	"github.com/ccnq/ccnq/pkg/config"
	"github.com/ccnq/ccnq/pkg/lifecycle"
	"github.com/ccnq/ccnq/services/denylist"
	"github.com/ccnq/ccnq/services/edge"
	coordinator "github.com/ccnq/ccnq/services/queue-coordinator"
)

// tokenFile is the file in the data folder that clients of the NATS server
// take their token from.
const tokenFile = "nats-token"

// Program is the standalone program. Its methods are safe for concurrent use.
type Program struct {
	cfg         Config
	logger      *slog.Logger
	registry    *prometheus.Registry
	nats        *embed.Server
	admin       *admin.Server
	edge        *edge.Edge
	coordinator *coordinator.Coordinator
	denylist    *denylist.Service
	group       *lifecycle.Group
}

// Deps are what the program does not make by itself.
type Deps struct {
	// Logger is required.
	Logger *slog.Logger
	// Started is called once everything runs. Optional.
	Started func(*Program)
}

// New wires the program and starts its NATS server, which the other parts dial
// at once. Nothing serves clients yet. [Program.Stop] must be called also when
// it was never started.
func New(cfg Config, deps Deps) (_ *Program, err error) {
	logger := deps.Logger
	p := &Program{cfg: cfg, logger: logger, registry: admin.NewRegistry()}
	if err := p.startNATS(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			p.nats.Stop()
		}
	}()
	adminAddr := cfg.Edge.General.AdminAddr
	cfg.Edge.General.AdminAddr, cfg.Coordinator.General.AdminAddr, cfg.Denylist.General.AdminAddr = "off", "off", "off"
	p.coordinator = coordinator.New(cfg.Coordinator, coordinator.Deps{
		Logger: logger.With("service", "queue-coordinator"), NATS: p.dial("queue-coordinator"),
		Registry: p.registry, Memory: true,
	})
	p.denylist = denylist.New(cfg.Denylist, denylist.Deps{
		Logger: logger.With("service", "denylist"), NATS: p.dial("denylist"),
		Registry: p.registry, Memory: true,
	})
	p.edge, err = edge.New(cfg.Edge, edge.Deps{
		Logger: logger.With("service", "edge"), NATS: p.dial("edge"), Registry: p.registry,
	})
	if err != nil {
		return nil, err
	}
	checks := p.edge.Checks()
	var services []lifecycle.Component
	if cfg.Edge.Queue.Enabled {
		maps.Copy(checks, p.coordinator.Checks().Dispensable())
		services = append(services, lifecycle.Component{
			Name: "queue-coordinator", Start: p.coordinator.Start, Stop: p.coordinator.Stop,
		})
	}
	if cfg.Edge.Queue.Enabled || cfg.Edge.ClusterOnNATS() {
		maps.Copy(checks, p.denylist.Checks().Dispensable())
		services = append(services, lifecycle.Component{Name: "denylist", Start: p.denylist.Start, Stop: p.denylist.Stop})
	}
	p.admin = admin.New(admin.Options{
		Addr: adminAddr, Checks: checks, Fail: func(err error) { p.group.Fail(err) },
		Log: logger, Pprof: cfg.Edge.General.AdminPprof, Registry: p.registry, Routes: p.edge.Routes(),
	})
	parts := []lifecycle.Component{{Name: "admin listener", Start: p.admin.Start, Stop: p.admin.Stop}}
	parts = append(parts, services...)
	parts = append(parts,
		lifecycle.Component{Name: "edge", Start: p.edge.Start, Stop: p.edge.Stop, StopTimeout: cfg.Edge.StopTimeout()},
		lifecycle.Component{Name: "started", Start: func(context.Context) error {
			if deps.Started != nil {
				deps.Started(p)
			}
			return nil
		}},
	)
	p.group = lifecycle.New(parts...)
	return p, nil
}

// Run starts the program and stops it when a signal, ctx or a failure says so;
// see [lifecycle.Run].
func (p *Program) Run(ctx context.Context) error {
	defer p.nats.Stop()
	return lifecycle.Run(ctx, p.group, func() {
		if err := p.edge.Reload(); err != nil {
			p.logger.Error("reload failed; what was loaded before stays", "error", err)
		}
	})
}

// Start starts the program without waiting for its end.
func (p *Program) Start(ctx context.Context) error { return p.group.Start(ctx) }

// Stop ends the program, whether it was started or not. It may be called more
// than once.
func (p *Program) Stop(ctx context.Context) error {
	err := p.group.Stop(ctx)
	p.nats.Stop()
	return err
}

// Addr is where clients connect, once started.
func (p *Program) Addr() net.Addr { return p.edge.Addr() }

// AdminAddr is where operators connect, once started, or nil without an admin
// listener.
func (p *Program) AdminAddr() net.Addr { return p.admin.Addr() }

// startNATS runs the server inside the process. Its token is made once and
// kept in the data folder, for the operator's own tools.
func (p *Program) startNATS() error {
	dir := p.cfg.Edge.General.DataDir
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("CCNQ_DATA_DIR: %w", err)
	}
	token, err := ensureToken(filepath.Join(dir, tokenFile))
	if err != nil {
		return fmt.Errorf("CCNQ_DATA_DIR: %w", err)
	}
	opts := embed.Options{Name: "ccnq", Token: token, StoreDir: filepath.Join(dir, "nats")}
	if opts.Host, opts.Port, err = listenOn(p.cfg.Standalone.NATSListen); err != nil {
		return err
	}
	if p.nats, err = embed.Start(opts); err != nil {
		return fmt.Errorf("CCNQ_NATS_LISTEN %s (off closes it): %w", p.cfg.Standalone.NATSListen, err)
	}
	return nil
}

// listenOn takes an address apart; port 0 stands for no listener, as it does
// in [embed.Options].
func listenOn(addr config.Addr) (host string, port int, err error) {
	if addr.Off() {
		return "", 0, nil
	}
	host, service, err := net.SplitHostPort(string(addr))
	if err == nil {
		port, err = strconv.Atoi(service)
	}
	if err != nil {
		return "", 0, fmt.Errorf("CCNQ_NATS_LISTEN: %w", err)
	}
	if port == 0 {
		port = -1 // any free one
	}
	return host, port, nil
}

// ensureToken returns the token in a file, which it makes if it is missing.
func ensureToken(file string) (string, error) {
	content, err := os.ReadFile(file)
	switch {
	case err == nil && len(content) >= 32:
		return string(content), nil
	case err == nil:
		return "", fmt.Errorf("%s holds no token: remove it", file)
	case !errors.Is(err, os.ErrNotExist):
		return "", err
	}
	var random [16]byte
	_, _ = rand.Read(random[:]) // never fails
	token := hex.EncodeToString(random[:])
	return token, os.WriteFile(file, []byte(token), 0o600)
}

// dial returns how a part of this process reaches NATS.
func (p *Program) dial(name string) *bus.Options {
	return &bus.Options{
		InProcess: p.nats.InProcess(),
		Name:      name,
		TokenFile: filepath.Join(p.cfg.Edge.General.DataDir, tokenFile),
		Logger:    p.logger.With("service", name),
	}
}
