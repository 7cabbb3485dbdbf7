package coordinator

import (
	"github.com/ccnq/ccnq/pkg/bus"
	"github.com/ccnq/ccnq/pkg/config"
	"github.com/ccnq/ccnq/pkg/postgres"
	"github.com/ccnq/ccnq/services/queue-coordinator/internal/store"
)

// Config is the coordinator's environment. Names and defaults of
// cork-cache-n-queue are kept.
type Config struct {
	General  General         `section:"General"`
	NATS     bus.Config      `section:"NATS"`
	Postgres postgres.Config `section:"Postgres"`
	Queue    Queue           `section:"Queue"`
}

// General settings.
type General struct {
	LogLevel   config.Level `env:"CCNQ_LOG_LEVEL" envDefault:"info" doc:"least level of the log lines that are written"`
	AdminAddr  config.Addr  `env:"CCNQ_ADMIN_ADDR" envDefault:"127.0.0.1:9181" doc:"address for metrics and health, or off; not to be published"`
	AdminPprof bool         `env:"CCNQ_ADMIN_PPROF" envDefault:"false" doc:"serve Go profiles on the admin listener"`
}

// Queue is the coordinator's part of the admission queue. All coordinators of
// one database must agree on it.
type Queue struct {
	MaxServed     int           `env:"CCNQ_QUEUE_MAX_SERVED_PER_GROUP" envDefault:"1" min:"1" max:"1000000" doc:"requests of one group at the origin at once"`
	MaxPending    int           `env:"CCNQ_QUEUE_MAX_PENDING_PER_GROUP" envDefault:"5" min:"0" max:"1000000" doc:"requests of one group that may wait in line"`
	StaleActive   config.Millis `env:"CCNQ_QUEUE_STALE_ACTIVE_MS" envDefault:"300000" min:"1000" doc:"age from which an admitted request is taken for abandoned if its edge gives no sign of life"`
	SweepInterval config.Millis `env:"CCNQ_QUEUE_SWEEP_INTERVAL_MS" envDefault:"60000" min:"1000" doc:"time between two sweeps for abandoned requests and idle groups"`
	IdleGroup     config.Millis `env:"CCNQ_QUEUE_IDLE_GROUP_MS" envDefault:"3600000" min:"1000" doc:"how long a group without requests is remembered"`
	Lease         config.Millis `env:"CCNQ_QUEUE_LEASE_MS" envDefault:"5000" min:"2000" max:"600000" doc:"how long the places of an edge outlive its last message"`
}

// Validate returns one message for each problem that concerns several
// variables, or the content of one.
func (c *Config) Validate() []string {
	return append(c.NATS.Validate(), c.Postgres.Validate()...)
}

// limits returns what decisions depend on.
func (q Queue) limits() store.Limits {
	return store.Limits{
		MaxServed:   q.MaxServed,
		MaxPending:  q.MaxPending,
		Lease:       q.Lease.Duration(),
		StaleActive: q.StaleActive.Duration(),
	}
}
