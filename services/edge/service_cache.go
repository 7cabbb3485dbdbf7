package edge

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ccnq/ccnq/pkg/rules"
	"github.com/ccnq/ccnq/services/edge/internal/cache"
	"github.com/ccnq/ccnq/services/edge/internal/purge"
)

// newCache opens the cache, unless it is off. It needs neither NATS nor the queue.
func (e *Edge) newCache(registry *prometheus.Registry) error {
	cfg := e.cfg.Cache
	if !cfg.Enabled {
		return nil
	}
	var err error
	if e.cacheRules, err = rules.OpenFile(cfg.RulesFile, e.logger); err != nil {
		return fmt.Errorf("CCNQ_CACHE_RULES_FILE: %w", err)
	}
	if e.cacheRules.Current().Empty() {
		e.logger.Warn("the cache is on and its ruleset matches nothing", "file", cfg.RulesFile)
	}
	if !cfg.Respect {
		e.logger.Warn("the origin's Cache-Control is not honoured: what it calls private or no-store is stored too",
			"setting", "CCNQ_CACHE_RESPECT_CACHE_CONTROL")
	}
	e.cache, err = cache.New(cache.Options{
		Policy:        cfg.policy(),
		Origin:        e.cfg.Upstream.URL.String() + " " + e.cfg.Upstream.Host,
		Methods:       cfg.Methods,
		Rules:         e.cacheRules,
		Dir:           cfg.Dir,
		MaxBytes:      cfg.MaxSize,
		MaxItemBytes:  cfg.MaxItem,
		MemoryBytes:   cfg.Memory,
		SweepInterval: cfg.Sweep.Duration(),
		Registerer:    registry,
		Logger:        e.logger,
	})
	if err != nil {
		return err
	}
	e.purge = purge.New(purge.Options{
		EdgeID: e.id, Conn: e.conn, Cache: e.cache, Dir: cfg.Dir, Registerer: registry, Logger: e.logger,
	})
	e.logger.Info("the cache is on", "dir", cfg.Dir, "max_bytes", cfg.MaxSize)
	return nil
}
