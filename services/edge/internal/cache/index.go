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

// index returns the index of the variants of a resource that covers res, and
// stores it if it is new; or the reason why there can be none.
func (c *Cache) index(
	q *Request, res *rfc9111.Response, since store.Generation,
) (*rfc9111.Response, rfc9111.NotStored) {
	key := store.Key(q.key)
	var index *rfc9111.Response
	if it, ok := c.store.Get(key); ok {
		if head := it.Head(); head.IsIndex() {
			index = head
		}
		it.Close()
	}
	var next *rfc9111.Response
	if index == nil {
		next = rfc9111.NewIndex(res.URL, res.Vary(), rand.Uint64())
	} else {
		var ok bool
		if next, ok = index.Extend(res); !ok {
			return nil, rfc9111.VaryStar
		}
	}
	if next == index {
		return index, rfc9111.Stored
	}
	c.store.Put(store.Entry[*rfc9111.Response]{
		Key: key, Name: nameOf(res), Since: since, Head: next, Until: next.UselessAfter(),
	})
	return next, rfc9111.Stored
}
