package cache

import (
	"context"
	"strings"

	"github.com/ccnq/ccnq/pkg/wire"
	"github.com/ccnq/ccnq/services/edge/internal/cache/store"
)

// PurgeTargets removes what an operator names. It is effective for requests
// that come after the call, and what was asked for before is not stored either.
// The error says that a target is no good, or that what was removed may come
// back after a crash, see [store.Store.Purge].
func (c *Cache) PurgeTargets(ctx context.Context, targets []wire.PurgeTarget) error {
	purges := make([]store.Purge, 0, len(targets))
	for _, t := range targets {
		name, prefix, err := t.Resources()
		if err != nil {
			return err
		}
		if c.policy.IgnoreQuery { // then no name has a query
			name, _, _ = strings.Cut(name, "?")
		}
		purges = append(purges, store.Purge{Name: name, Prefix: prefix})
	}
	return c.Purge(ctx, purges...)
}

// PurgeAll removes everything, likewise.
func (c *Cache) PurgeAll(ctx context.Context) error { return c.Purge(ctx, store.Purge{Prefix: true}) }

// Empty says whether nothing is stored. While the store has no file it cannot
// be known, and is false.
func (c *Cache) Empty() bool { return c.store.Degraded() == "" && c.store.Len() == 0 }
