package edge

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/ccnq/ccnq/pkg/bus"
	"github.com/ccnq/ccnq/pkg/clientip"
	"github.com/ccnq/ccnq/pkg/config"
	"github.com/ccnq/ccnq/pkg/wire"
)

// Config is the edge's environment. Names and defaults of cork-cache-n-queue
// are kept.
type Config struct {
	General  General    `section:"General"`
	Upstream Upstream   `section:"General"`
	Listener Listener   `section:"General"`
	NATS     bus.Config `section:"NATS"`
	Queue    Queue      `section:"Queue"`
	Denylist Denylist   `section:"Denylist"`
	QoS      QoS        `section:"QoS"`
	Cache    Cache      `section:"Cache"`
}

// General settings.
type General struct {
	Port           int           `env:"CCNQ_PORT" envDefault:"3000" min:"0" max:"65535" doc:"port for clients; 0 takes a free one"`
	ClientIPHeader string        `env:"CCNQ_CLIENT_IP_HEADER" doc:"header with the client's address, such as X-Forwarded-For, Forwarded or CF-Connecting-IP; without it the socket's peer is the client"`
	TrustedProxies string        `env:"CCNQ_TRUSTED_PROXIES" doc:"addresses, CIDR ranges and start-end ranges of the proxies whose headers are believed; without it everybody's are"`
	EdgeID         string        `env:"CCNQ_EDGE_ID" doc:"name of this edge, A-Z a-z 0-9 _ -, at most 64, unique; without it the host name with something random"`
	DataDir        string        `env:"CCNQ_DATA_DIR" envDefault:"./data" doc:"folder for what this instance keeps on disk"`
	LogLevel       config.Level  `env:"CCNQ_LOG_LEVEL" envDefault:"info" doc:"least level of the log lines that are written"`
	AccessLog      bool          `env:"CCNQ_ACCESS_LOG" envDefault:"false" doc:"write one log line for each request"`
	AdminAddr      config.Addr   `env:"CCNQ_ADMIN_ADDR" envDefault:"127.0.0.1:9180" doc:"address for metrics and health, or off; not to be published"`
	AdminPprof     bool          `env:"CCNQ_ADMIN_PPROF" envDefault:"false" doc:"serve Go profiles on the admin listener"`
	ShutdownDelay  config.Millis `env:"CCNQ_SHUTDOWN_DELAY_MS" envDefault:"3000" doc:"time to go on accepting after SIGTERM, not ready any more, so that load balancers notice"`
}

// Upstream is the origin.
type Upstream struct {
	URL            config.URL    `env:"CCNQ_UPSTREAM_URL,required" doc:"base URL of the origin"`
	Host           string        `env:"CCNQ_UPSTREAM_HOST" doc:"Host header for the origin, instead of the client's"`
	ConnectTimeout config.Millis `env:"CCNQ_UPSTREAM_CONNECT_TIMEOUT_MS" envDefault:"10000" min:"1" doc:"limit for connecting to the origin; then 504"`
	HeaderTimeout  config.Millis `env:"CCNQ_UPSTREAM_HEADER_TIMEOUT_MS" envDefault:"300000" doc:"limit for the head of the origin's response; then 504; 0 is no limit"`
}

// Listener is where clients connect.
type Listener struct {
	TLSCertFile   string        `env:"CCNQ_TLS_CERT_FILE" doc:"certificate chain (PEM); with it the port speaks TLS and HTTP/2"`
	TLSKeyFile    string        `env:"CCNQ_TLS_KEY_FILE" doc:"key of the certificate (PEM)"`
	HeaderTimeout config.Millis `env:"CCNQ_HEADER_TIMEOUT_MS" envDefault:"10000" min:"1" doc:"limit for the arrival of a request's head"`
	IdleTimeout   config.Millis `env:"CCNQ_IDLE_TIMEOUT_MS" envDefault:"75000" min:"1" doc:"time that an idle connection is kept"`
	MaxHeader     int           `env:"CCNQ_MAX_HEADER_BYTES" envDefault:"65536" min:"4096" max:"1048576" doc:"limit for a request's head; then 431"`
}

// Queue is the edge's part of the admission queue.
type Queue struct {
	Enabled      bool           `env:"CCNQ_QUEUE_ENABLED" envDefault:"false" doc:"switch the admission queue on"`
	RulesFile    string         `env:"CCNQ_QUEUE_RULES_FILE" doc:"ruleset (JSON) of the requests in scope; required with the queue"`
	Methods      config.Methods `env:"CCNQ_QUEUE_METHODS" doc:"methods in scope, separated by commas; empty is all"`
	Pending      config.Millis  `env:"CCNQ_QUEUE_PENDING_TIMEOUT_MS" envDefault:"10000" min:"1" doc:"how long a request waits in line before it is refused"`
	Poll         config.Millis  `env:"CCNQ_QUEUE_POLL_INTERVAL_MS" envDefault:"250" min:"10" doc:"how often waiting requests are checked, beside the push that tells their turn"`
	IPv4Prefix   int            `env:"CCNQ_QUEUE_IPV4_PREFIX_LENGTH" envDefault:"24" min:"1" max:"32" doc:"prefix that groups IPv4 clients"`
	IPv6Prefix   int            `env:"CCNQ_QUEUE_IPV6_PREFIX_LENGTH" envDefault:"64" min:"1" max:"128" doc:"prefix that groups IPv6 clients"`
	MaxActive    config.Millis  `env:"CCNQ_QUEUE_MAX_ACTIVE_DURATION_MS" envDefault:"0" doc:"time after which an admitted request's connection is cut; 0 is never"`
	Allowlist    string         `env:"CCNQ_QUEUE_ALLOWLIST" doc:"addresses, CIDR ranges and start-end ranges that no limit applies to"`
	Mode         string         `env:"CCNQ_QUEUE_MODE" envDefault:"enforce" enum:"enforce,monitor" doc:"enforce, or monitor: decide and count, but refuse nobody"`
	Fallback     string         `env:"CCNQ_QUEUE_FALLBACK" envDefault:"open" enum:"open,local" doc:"while no coordinator answers: open lets requests pass, local lets this edge count alone"`
	AdmitTimeout config.Millis  `env:"CCNQ_QUEUE_ADMIT_TIMEOUT_MS" envDefault:"1000" min:"10" max:"60000" doc:"limit for the answer of a coordinator"`
	Lease        config.Millis  `env:"CCNQ_QUEUE_LEASE_MS" envDefault:"5000" min:"2000" max:"600000" doc:"how long the places of an edge outlive its last message"`
	MaxServed    int            `env:"CCNQ_QUEUE_MAX_SERVED_PER_GROUP" envDefault:"1" min:"1" max:"1000000" doc:"requests of one group at the origin at once"`
	MaxPending   int            `env:"CCNQ_QUEUE_MAX_PENDING_PER_GROUP" envDefault:"5" min:"0" max:"1000000" doc:"requests of one group that may wait in line"`
}

// Denylist is the edge's part of the denylist: it tells of denials and enforces
// blocks.
type Denylist struct {
	Enabled        bool  `env:"CCNQ_QUEUE_DENYLIST_ENABLED" envDefault:"true" doc:"count denials and block who collects them; has no effect while the queue is off"`
	OutboxMaxBytes int64 `env:"CCNQ_OUTBOX_MAX_BYTES" envDefault:"67108864" min:"1048576" doc:"size of the denials that wait in CCNQ_DATA_DIR for NATS at most; beyond it the oldest are dropped"`
}

// Validate returns one message for each problem that concerns several
// variables, or the content of one.
func (c *Config) Validate() []string {
	var problems []string
	if c.Queue.Enabled && c.Queue.RulesFile == "" {
		problems = append(problems, "CCNQ_QUEUE_RULES_FILE: required when CCNQ_QUEUE_ENABLED is true")
	}
	if (c.Listener.TLSCertFile == "") != (c.Listener.TLSKeyFile == "") {
		problems = append(problems, "CCNQ_TLS_CERT_FILE and CCNQ_TLS_KEY_FILE: one needs the other")
	}
	if name := c.General.ClientIPHeader; name != "" && !httpguts.ValidHeaderFieldName(name) {
		problems = append(problems, fmt.Sprintf("CCNQ_CLIENT_IP_HEADER: %q cannot be the name of a header", name))
	}
	if c.General.EdgeID != "" {
		if err := wire.CheckEdgeID(c.General.EdgeID); err != nil {
			problems = append(problems, "CCNQ_EDGE_ID: "+err.Error())
		}
	}
	if host := c.Upstream.Host; host != "" && !validHost(host) {
		problems = append(problems, fmt.Sprintf("CCNQ_UPSTREAM_HOST: %q is not a host or host:port", host))
	}
	if proxies, err := clientip.ParseSet(c.General.TrustedProxies); err != nil {
		problems = append(problems, "CCNQ_TRUSTED_PROXIES: "+err.Error())
	} else if c.General.TrustedProxies != "" && proxies.Empty() {
		problems = append(problems, fmt.Sprintf("CCNQ_TRUSTED_PROXIES: %q names no address; leave it empty to believe everybody", c.General.TrustedProxies))
	}
	if _, err := clientip.ParseSet(c.Queue.Allowlist); err != nil {
		problems = append(problems, "CCNQ_QUEUE_ALLOWLIST: "+err.Error())
	}
	problems = append(problems, c.validateQoS()...)
	problems = append(problems, c.validateCache()...)
	return append(problems, c.NATS.Validate()...)
}

// validHost says whether text can be sent as a Host header: a name, an IPv4
// address or an IPv6 address in brackets, with a port or none (RFC 9110,
// section 7.2).
func validHost(text string) bool {
	u, err := url.Parse("//" + text)
	if err != nil || u.Host != text || u.Hostname() == "" || !httpguts.ValidHostHeader(text) {
		return false
	}
	if strings.Contains(u.Hostname(), ":") != (text[0] == '[') {
		return false
	}
	if port := u.Port(); port != "" {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	return err == nil && !strings.HasSuffix(text, ":")
}

// edgeID returns the configured name, or the host's with something random.
func (g General) edgeID() string {
	if g.EdgeID != "" {
		return g.EdgeID
	}
	var random [4]byte
	_, _ = rand.Read(random[:]) // never fails
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "edge"
	}
	return wire.ReduceEdgeID(host, wire.MaxEdgeID-9) + "-" + hex.EncodeToString(random[:])
}

const (
	// drainTimeout bounds the wait for requests at shutdown.
	drainTimeout = 25 * time.Second
	// cutTimeout bounds the end of what is cut after that.
	cutTimeout = 3 * time.Second
	// fetchTimeout bounds the end of fetches for the cache, which are cancelled by
	// then, and the writing of what is still to be stored.
	fetchTimeout = 3 * time.Second
	// flushTimeout bounds the wait for NATS to take the last denials; what it
	// does not take waits on disk. It also bounds the last sync of the load-aware limits.
	flushTimeout = 2 * time.Second
	// adminStop bounds the wait for a scrape at shutdown.
	adminStop = time.Second
)

// StopTimeout is how long [Edge.Stop] may take at most.
func (c Config) StopTimeout() time.Duration {
	return c.General.ShutdownDelay.Duration() + drainTimeout + cutTimeout + fetchTimeout + 2*flushTimeout + 2*c.Queue.AdmitTimeout.Duration() + 2*adminStop
}
