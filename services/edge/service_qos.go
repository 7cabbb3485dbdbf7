package edge

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ccnq/ccnq/pkg/admin"
	"github.com/ccnq/ccnq/pkg/qos"
	"github.com/ccnq/ccnq/services/edge/internal/gateway"
	"github.com/ccnq/ccnq/services/edge/internal/qoscluster"
)

const (
	// violationLasts is how long a host above its share stays so, see package qos.
	violationLasts = time.Minute
	// The rates of one host that connect-qos has by default.
	seedMinHostRate = 20
	seedMaxHostRate = 40
)

// limits are the parts of the load-aware limits that the edge made, and must start
// and end.
type limits struct {
	limiter *qos.Limiter
	lag     io.Closer
	nats    *qoscluster.Store // nil unless edges count together by way of NATS
	redis   io.Closer         // nil unless they do in Redis
	syncs   *qoscluster.Observer
}

// newQoS makes the qos stage, or returns nil when it is off. Without a cluster on
// NATS it needs no connection.
func (e *Edge) newQoS(registry *prometheus.Registry) (*gateway.QoS, error) {
	cfg := e.cfg.QoS
	if !cfg.Enabled {
		return nil, nil
	}
	options := cfg.limiter()
	stage := &gateway.QoS{
		Monitor: cfg.Mode == "monitor", Status: cfg.Status, Close: cfg.DestroySocket, Counted: cfg.FeedsDenylist,
		RetryHost: cfg.MaxAge.Duration(), RetryClient: cfg.MaxAge.Duration(), RetryViolation: max(violationLasts, cfg.MaxAge.Duration()),
	}
	switch cfg.LagSource {
	case "timer":
		lag := qos.NewTimerLag()
		options.Lag, e.limits.lag = lag, lag
	case "origin":
		stage.OriginLag = qos.NewOriginLag()
		options.Lag, e.limits.lag = stage.OriginLag, stage.OriginLag
	default:
		lag := qos.NewSchedulerLag()
		options.Lag, e.limits.lag = lag, lag
	}
	if cfg.clustered() {
		store, err := e.newClusterStore()
		if err != nil {
			return nil, err
		}
		e.limits.syncs = qoscluster.NewObserver(e.logger, registry)
		options.Cluster = cfg.cluster()
		options.Cluster.Store = store
		options.Cluster.OnSync, options.Cluster.OnError = e.limits.syncs.OnSync, e.limits.syncs.OnError
		// Hits count for two windows there, and lists are known a sync later.
		stage.RetryClient = 2*cfg.MaxAge.Duration() + 2*cfg.Cluster.Interval.Duration()
		stage.RetryViolation = max(stage.RetryViolation, stage.RetryClient)
	}
	limiter, err := qos.New(options)
	if err != nil {
		return nil, errors.New(qosProblem(err))
	}
	e.limits.limiter, stage.Limiter = limiter, limiter
	if cfg.clustered() {
		e.limits.syncs.Watch(limiter)
	}
	if cfg.MinHostRate == seedMinHostRate && cfg.MaxHostRate == seedMaxHostRate {
		stage.Hosts = gateway.NewHostSpread(e.logger, cfg.MaxHostRate.Float())
	}
	e.logger.Info("the load-aware limits are on", "mode", cfg.Mode, "lag_source", cfg.LagSource, "cluster", cfg.Cluster.Store)
	return stage, nil
}

// newClusterStore makes what the edges of a cluster count with.
func (e *Edge) newClusterStore() (qos.ClusterStore, error) {
	cfg := e.cfg.QoS.Cluster
	if cfg.Store == clusterNATS {
		e.limits.nats = qoscluster.New(qoscluster.Options{EdgeID: e.id, Conn: e.conn, Logger: e.logger})
		return e.limits.nats, nil
	}
	store, client, problems := cfg.redisStore()
	if problems != nil {
		return nil, errors.New(strings.Join(problems, "; "))
	}
	e.limits.redis = client
	return store, nil
}

// start begins to hear of the cluster's lists.
func (l *limits) start() error {
	if l.nats == nil {
		return nil
	}
	return l.nats.Start(l.limiter.SetBlocklists)
}

// flush tells the cluster what was tracked since the last sync, and leaves it, as far
// as ctx lets it.
func (l *limits) flush(ctx context.Context) {
	if l.limiter != nil {
		l.limiter.Sync(ctx)
		_ = l.limiter.Shutdown(ctx) // a sync that began before may be under way
	}
}

// close ends everything that was made.
func (l *limits) close() {
	if l.limiter != nil {
		_ = l.limiter.Close()
	}
	if l.nats != nil {
		l.nats.Stop()
	}
	for _, c := range []io.Closer{l.redis, l.lag} {
		if c != nil {
			_ = c.Close()
		}
	}
}

// status is degraded while this edge counts alone although it should not.
func (l *limits) status() admin.Status {
	if err := l.syncs.Err(); err != nil {
		return admin.Degraded("the last known lists of the cluster are in force: " + err.Error())
	}
	return admin.OK
}
