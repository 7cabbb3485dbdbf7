package edge

import (
	"fmt"
	"net/http"

	"golang.org/x/net/http/httpguts"

	"github.com/ccnq/ccnq/pkg/config"
	"github.com/ccnq/ccnq/services/edge/internal/cache/rfc9111"
	"github.com/ccnq/ccnq/services/edge/internal/cache/store"
)

// Cache is the edge's cache.
type Cache struct {
	Enabled     bool           `env:"CCNQ_CACHE_ENABLED" envDefault:"false" doc:"switch the cache on"`
	RulesFile   string         `env:"CCNQ_CACHE_RULES_FILE" doc:"ruleset (JSON) of the requests in scope; required with the cache"`
	Dir         string         `env:"CCNQ_CACHE_DIR" envDefault:"./data/cache" doc:"folder of what is stored; one edge uses it at a time, and what is in it may be lost"`
	MaxSize     int64          `env:"CCNQ_CACHE_MAX_SIZE_BYTES" envDefault:"1073741824" doc:"space for what is stored, at least 1 MiB; the file may be half as large again"`
	MaxItem     int64          `env:"CCNQ_CACHE_MAX_ITEM_SIZE_BYTES" envDefault:"10485760" min:"1" doc:"size of a body that is stored at most, up to 32 MiB, and never more than an eighth of CCNQ_CACHE_MAX_SIZE_BYTES"`
	Memory      int64          `env:"CCNQ_CACHE_MEMORY_BYTES" envDefault:"67108864" min:"0" doc:"memory for small responses that are asked for often, beside the file"`
	TTL         config.Millis  `env:"CCNQ_CACHE_TTL_MS" envDefault:"60000" doc:"lifetime of responses that state none; 0 stores of these only what has a Last-Modified, for a tenth of its age and a minute at most"`
	Respect     bool           `env:"CCNQ_CACHE_RESPECT_CACHE_CONTROL" envDefault:"true" doc:"honour the origin's Cache-Control and Expires; false lets the TTL replace them, private and no-store included"`
	StripCookie bool           `env:"CCNQ_CACHE_STRIP_SET_COOKIE" envDefault:"false" doc:"store responses that have Set-Cookie, without it, instead of not storing them; only where such pages are the same for everybody"`
	Methods     config.Methods `env:"CCNQ_CACHE_METHODS" envDefault:"GET,HEAD" doc:"methods in scope, separated by commas: GET, HEAD"`
	Vary        config.List    `env:"CCNQ_CACHE_VARY_HEADERS" doc:"names of request headers that tell responses apart, beside those that the origin's Vary names"`
	Query       bool           `env:"CCNQ_CACHE_KEY_INCLUDE_QUERY" envDefault:"true" doc:"tell resources apart by their query"`
	Sweep       config.Millis  `env:"CCNQ_CACHE_SWEEP_INTERVAL_MS" envDefault:"60000" min:"1" doc:"how often what has expired is removed"`
}

// policy is what package rfc9111 needs to know.
func (c Cache) policy() rfc9111.Policy {
	return rfc9111.Policy{
		TTL:                c.TTL.Duration(),
		IgnoreCacheControl: !c.Respect,
		IgnoreQuery:        !c.Query,
		StripSetCookie:     c.StripCookie,
		VaryHeaders:        c.Vary,
	}
}

// validateCache checks the settings, also while the cache is off.
func (c *Config) validateCache() []string {
	var problems []string
	if c.Cache.Enabled && c.Cache.RulesFile == "" {
		problems = append(problems, "CCNQ_CACHE_RULES_FILE: required when CCNQ_CACHE_ENABLED is true")
	}
	if c.Cache.Enabled && len(c.Cache.Methods) == 0 {
		problems = append(problems, "CCNQ_CACHE_METHODS: names no method")
	}
	for _, method := range c.Cache.Methods {
		if method != http.MethodGet && method != http.MethodHead {
			problems = append(problems, fmt.Sprintf("CCNQ_CACHE_METHODS: %q is not GET or HEAD, and nothing else can be cached", method))
		}
	}
	if c.Cache.MaxSize < store.MinBytes {
		problems = append(problems, fmt.Sprintf("CCNQ_CACHE_MAX_SIZE_BYTES: %d is less than %d", c.Cache.MaxSize, store.MinBytes))
	}
	for _, name := range c.Cache.Vary {
		if !httpguts.ValidHeaderFieldName(name) {
			problems = append(problems, fmt.Sprintf("CCNQ_CACHE_VARY_HEADERS: %q is no header name", name))
		}
	}
	return problems
}
