// Package push tells edges at once which of their waiting requests hold a
// place now.
//
// It keeps no state. A push that is lost does no harm: the edge's next status
// finds the place.
package push

import (
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ccnq/ccnq/pkg/bus"
	"github.com/ccnq/ccnq/pkg/wire"
	"github.com/ccnq/ccnq/services/queue-coordinator/internal/store"
)

// Pusher publishes promotions. It is safe for concurrent use.
type Pusher struct {
	conn         *bus.Conn
	logger       *slog.Logger
	pushed, lost prometheus.Counter
}

// New returns a pusher that publishes through conn and counts in registry.
func New(conn *bus.Conn, logger *slog.Logger, registry prometheus.Registerer) *Pusher {
	p := &Pusher{
		conn:   conn,
		logger: logger,
		pushed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "ccnq_coordinator_promotions_pushed_total",
			Help: "Requests whose edge was told that they hold a place now.",
		}),
		lost: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "ccnq_coordinator_promotions_lost_total",
			Help: "Promotions that could not be published; the edge's next status finds them.",
		}),
	}
	registry.MustRegister(p.pushed, p.lost)
	return p
}

// Promoted publishes one message for each edge, more only when the ids do not
// fit into one. It is a [store.PromotedFunc].
func (p *Pusher) Promoted(promotions []store.Promotion) {
	now := time.Now()
	for len(promotions) > 0 {
		var message wire.Promoted
		var rest []store.Promotion
		edge := promotions[0].EdgeID
		for _, promotion := range promotions {
			if promotion.EdgeID != edge || len(message.RequestIDs) == wire.MaxIDs {
				rest = append(rest, promotion)
				continue
			}
			message.RequestIDs = append(message.RequestIDs, promotion.ID)
			message.AgeUS = max(message.AgeUS, age(promotion.Freed, now))
		}
		p.publish(edge, message)
		promotions = rest
	}
}

// age returns the microseconds from freed to now, as far as a message can say
// it; 0 if freed is not known.
func age(freed, now time.Time) int64 {
	if freed.IsZero() {
		return 0
	}
	return min(max(now.Sub(freed).Microseconds(), 1), wire.MaxBudgetMS*1000)
}

func (p *Pusher) publish(edge string, message wire.Promoted) {
	n := float64(len(message.RequestIDs))
	if err := bus.Publish(p.conn, wire.EdgeSubject(wire.SubjectPromoted, edge), message); err != nil {
		p.lost.Add(n)
		p.logger.Debug("promotion not pushed", "error", err)
		return
	}
	p.pushed.Add(n)
}
