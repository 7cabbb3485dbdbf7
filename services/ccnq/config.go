package ccnq

import (
	"github.com/ccnq/ccnq/pkg/config"
	"github.com/ccnq/ccnq/services/denylist"
	"github.com/ccnq/ccnq/services/edge"
	coordinator "github.com/ccnq/ccnq/services/queue-coordinator"
)

// Config is the standalone program's environment: its own few variables, and
// those of the services in it.
type Config struct {
	Standalone  Standalone `section:"Standalone program"`
	Edge        edge.Config
	Coordinator coordinator.Config
	Denylist    denylist.Config
}

// Standalone are the settings that only the standalone program has.
type Standalone struct {
	NATSListen config.Addr `env:"CCNQ_NATS_LISTEN" envDefault:"127.0.0.1:4222" doc:"where the NATS server inside the program listens for clients, or off; they present the token in nats-token in CCNQ_DATA_DIR"`
}

// Load fills c from variables in the form of [os.Environ]; see [config.Load].
func (c *Config) Load(environ []string) error {
	return config.Load(environ, &c.Edge, &c.Coordinator, &c.Denylist, &c.Standalone)
}

// AllConfigs returns an empty value of each program's configuration, for the
// documentation.
func AllConfigs() []any {
	return []any{&edge.Config{}, &coordinator.Config{}, &denylist.Config{}, &struct {
		Standalone Standalone `section:"Standalone program"`
	}{}}
}
