package cache

import (
	"math/rand/v2"
	"strings"

	"github.com/ccnq/ccnq/services/edge/internal/cache/rfc9111"
	"github.com/ccnq/ccnq/services/edge/internal/cache/store"
)

// nameOf is what purges know a response by: its host and target.
func nameOf(res *rfc9111.Response) string {
	_, name, _ := strings.Cut(res.URL, "://")
	return name
}

// choose completes a landing with the response to be stored: where its variants
// are told apart, with the index that does and the variant that it is. It returns
// the reason if it cannot be stored.
func (c *Cache) choose(q *Request, land *landing, res *rfc9111.Response, since moment) rfc9111.NotStored {
	key := store.Key(q.key)
	var index *rfc9111.Response
	if it, ok := c.store.Get(key); ok {
		if stored := it.Head(); stored.IsIndex() {
			index = stored.Response
		}
		it.Close()
	}
	next := index
	switch {
	case index != nil: // also for a response that does not say by what it varies
		var ok bool
		if next, ok = index.Extend(res); !ok {
			return rfc9111.VaryStar
		}
	case len(res.Vary()) > 0:
		next = rfc9111.NewIndex(res.URL, res.Vary(), rand.Uint64())
	}
	if next != index {
		c.invalid.unlessSince(q.key, since.invalidations, func() {
			c.store.Put(store.Entry[*head]{
				Key: key, Name: nameOf(res), Since: since.purges, Head: newHead(next), Until: next.UselessAfter(),
			})
		})
	}
	land.res = newHead(res)
	if next != nil {
		land.index, land.variant = next, next.Variant(q.key, q.R.Header)
	}
	return rfc9111.Stored
}
