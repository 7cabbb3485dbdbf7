package edge

import (
	"time"

	"github.com/ccnq/ccnq/pkg/qos"
	"github.com/ccnq/ccnq/services/edge/internal/gateway"
)

// violationLasts is how long a host above its share stays so, see package qos.
const violationLasts = time.Minute

// newQoS makes the qos stage, or returns nil when it is off. It needs neither NATS
// nor the queue.
func (e *Edge) newQoS() (*gateway.QoS, error) {
	cfg := e.cfg.QoS
	if !cfg.Enabled {
		return nil, nil
	}
	options := cfg.limiter()
	stage := &gateway.QoS{
		Monitor: cfg.Mode == "monitor", Status: cfg.Status, Close: cfg.DestroySocket, Counted: cfg.FeedsDenylist,
		RetryAfter: cfg.MaxAge.Duration(), RetryViolation: max(violationLasts, cfg.MaxAge.Duration()),
	}
	switch cfg.LagSource {
	case "timer":
		e.lag = qos.NewTimerLag()
	case "origin":
		stage.OriginLag = qos.NewOriginLag()
		e.lag = stage.OriginLag
	default:
		e.lag = qos.NewSchedulerLag()
	}
	options.Lag = e.lag
	var err error
	if e.limiter, err = qos.New(options); err != nil {
		return nil, err
	}
	stage.Limiter = e.limiter
	if cfg.MinHostRate == seedMinHostRate && cfg.MaxHostRate == seedMaxHostRate {
		stage.Hosts = gateway.NewHostSpread(e.logger, cfg.MaxHostRate.Float())
	}
	e.logger.Info("the load-aware limits are on", "mode", cfg.Mode, "lag_source", cfg.LagSource)
	return stage, nil
}

// The rates of one host that connect-qos has by default.
const (
	seedMinHostRate = 20
	seedMaxHostRate = 40
)

// lagSource is a source that the edge made and must close.
type lagSource interface {
	qos.Lag
	Close() error
}
