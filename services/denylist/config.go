package denylist

import (
	"fmt"
	"time"

	"github.com/ccnq/ccnq/pkg/bus"
	"github.com/ccnq/ccnq/pkg/clientip"
	"github.com/ccnq/ccnq/pkg/config"
	"github.com/ccnq/ccnq/pkg/postgres"
	"github.com/ccnq/ccnq/services/denylist/internal/store"
)

// Config is the denylist service's environment. Names and defaults of
// cork-cache-n-queue are kept.
type Config struct {
	General  General         `section:"General"`
	NATS     bus.Config      `section:"NATS"`
	Postgres postgres.Config `section:"Postgres"`
	Queue    Queue           `section:"Queue"`
	Denylist Denylist        `section:"Denylist"`
	Events   Events          `section:"Events"`
	QoS      QoS             `section:"QoS"`
}

// General settings.
type General struct {
	LogLevel       config.Level `env:"CCNQ_LOG_LEVEL" envDefault:"info" doc:"least level of the log lines that are written"`
	AdminAddr      config.Addr  `env:"CCNQ_ADMIN_ADDR" envDefault:"127.0.0.1:9182" doc:"address for metrics and health, or off; not to be published"`
	AdminPprof     bool         `env:"CCNQ_ADMIN_PPROF" envDefault:"false" doc:"serve Go profiles on the admin listener"`
	TrustedProxies string       `env:"CCNQ_TRUSTED_PROXIES" doc:"addresses, CIDR ranges and start-end ranges of the proxies whose headers are believed; without it everybody's are"`
}

// Queue is what the service must know of the admission queue.
type Queue struct {
	Enabled   bool   `env:"CCNQ_QUEUE_ENABLED" envDefault:"false" doc:"switch the admission queue on"`
	Allowlist string `env:"CCNQ_QUEUE_ALLOWLIST" doc:"addresses, CIDR ranges and start-end ranges that no limit applies to"`
}

// Denylist are the thresholds of cork-cache-n-queue. All processes of one
// database must agree on them.
type Denylist struct {
	Enabled          bool          `env:"CCNQ_QUEUE_DENYLIST_ENABLED" envDefault:"true" doc:"count denials and block who collects them; has no effect while the queue is off"`
	Mode             string        `env:"CCNQ_QUEUE_DENYLIST_MODE" envDefault:"enforce" enum:"enforce,monitor" doc:"monitor decides and publishes blocks, but refuses nobody for them"`
	DailyThreshold   int           `env:"CCNQ_QUEUE_DENYLIST_DAILY_THRESHOLD" envDefault:"25" min:"1" max:"1000000000" doc:"denials of one address on one day (UTC) from which the day counts as exceeded"`
	WindowDays       int           `env:"CCNQ_QUEUE_DENYLIST_WINDOW_DAYS" envDefault:"14" min:"1" max:"366" doc:"days, today included, in which exceeded days are counted"`
	ExceedThreshold  int           `env:"CCNQ_QUEUE_DENYLIST_EXCEED_THRESHOLD" envDefault:"5" min:"1" max:"366" doc:"exceeded days in the window from which an address is blocked"`
	BlockDays        int           `env:"CCNQ_QUEUE_DENYLIST_BLOCK_DAYS" envDefault:"30" min:"1" max:"3650" doc:"days for which an address is blocked"`
	RangeIPThreshold int           `env:"CCNQ_QUEUE_DENYLIST_RANGE_IP_THRESHOLD" envDefault:"25" min:"1" max:"1000000000" doc:"denied addresses of a range on one day (UTC) above which the range is blocked"`
	RangeBlockHours  int           `env:"CCNQ_QUEUE_DENYLIST_RANGE_BLOCK_HOURS" envDefault:"24" min:"1" max:"87600" doc:"hours for which a range is blocked"`
	SweepInterval    config.Millis `env:"CCNQ_QUEUE_DENYLIST_SWEEP_INTERVAL_MS" envDefault:"60000" min:"1000" doc:"time between two sweeps for old counts and blocks"`
	PruneRetention   config.Millis `env:"CCNQ_QUEUE_DENYLIST_PRUNE_RETENTION_MS" envDefault:"2592000000" min:"3600000" doc:"how long counts outlive the window, and blocks their end"`
}

// Events is how long the events are kept.
type Events struct {
	MaxAge   config.Millis `env:"CCNQ_EVENTS_MAX_AGE_MS" envDefault:"3888000000" min:"3600000" doc:"how long the events that blocks are made of are kept; at least the window and the retention"`
	MaxBytes int64         `env:"CCNQ_EVENTS_MAX_BYTES" envDefault:"1073741824" min:"1048576" doc:"size of these events at most; when it is reached, new ones wait at the edges"`
}

// Validate returns one message for each problem that concerns several
// variables, or the content of one.
func (c *Config) Validate() []string {
	problems := append(c.NATS.Validate(), c.Postgres.Validate()...)
	problems = append(problems, c.QoS.validate()...)
	for name, list := range map[string]string{
		"CCNQ_TRUSTED_PROXIES": c.General.TrustedProxies, "CCNQ_QUEUE_ALLOWLIST": c.Queue.Allowlist,
	} {
		if _, err := clientip.ParseSet(list); err != nil {
			problems = append(problems, name+": "+err.Error())
		}
	}
	d := c.Denylist
	if d.ExceedThreshold > d.WindowDays {
		problems = append(problems, fmt.Sprintf(
			"CCNQ_QUEUE_DENYLIST_EXCEED_THRESHOLD: %d exceeded days never fit into the %d of CCNQ_QUEUE_DENYLIST_WINDOW_DAYS",
			d.ExceedThreshold, d.WindowDays))
	}
	needed := time.Duration(d.WindowDays)*24*time.Hour + d.PruneRetention.Duration()
	if c.Events.MaxAge.Duration() < needed {
		problems = append(problems, fmt.Sprintf(
			"CCNQ_EVENTS_MAX_AGE_MS: must be at least %d, which is CCNQ_QUEUE_DENYLIST_WINDOW_DAYS and CCNQ_QUEUE_DENYLIST_PRUNE_RETENTION_MS together",
			needed.Milliseconds()))
	}
	return problems
}

// settings are the thresholds as the store takes them.
func (d Denylist) settings() store.Settings {
	return store.Settings{
		DailyThreshold: d.DailyThreshold, WindowDays: d.WindowDays, ExceedThreshold: d.ExceedThreshold,
		BlockDays: d.BlockDays, RangeIPThreshold: d.RangeIPThreshold, RangeBlockHours: d.RangeBlockHours,
		PruneRetention: d.PruneRetention.Duration(),
	}
}

func (d Denylist) monitor() bool { return d.Mode == "monitor" }
