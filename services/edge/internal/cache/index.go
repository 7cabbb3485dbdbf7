package cache

import (
	"math/rand/v2"
	"strings"
	"time"

	"github.com/ccnq/ccnq/services/edge/internal/cache/rfc9111"
	"github.com/ccnq/ccnq/services/edge/internal/cache/store"
)

// indexKept is how much longer an index lasts than the variants that it was made
// for: another that lasts longer moves the end, which is written seldom so.
const indexKept = 7 * 24 * time.Hour

// nameOf is what purges know a response by: its host and target.
func nameOf(res *rfc9111.Response) string {
	_, name, _ := strings.Cut(res.URL, "://")
	return name
}

// choose completes a landing with the response to be stored: where its variants
// are told apart, with the index that does and the variant that it is. It returns
// the reason if it cannot be stored.
func (c *Cache) choose(q *Request, land *landing, res *rfc9111.Response, since moment) rfc9111.NotStored {
	index := c.storedIndex(q)
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
	if next != nil {
		if end := res.UselessAfter(); next != index || next.UselessAfter().Before(end) {
			next = next.Lasting(later(next.UselessAfter(), end.Add(indexKept)))
			c.putIndex(q, next, since)
		}
	}
	land.res = newHead(res)
	if next != nil {
		land.index, land.variant = next, next.Variant(q.key, q.R.Header)
	}
	return rfc9111.Stored
}

// storedIndex returns the index of a resource as it is now, or nil.
func (c *Cache) storedIndex(q *Request) *rfc9111.Response {
	it, ok := c.store.Get(store.Key(q.key))
	if !ok {
		return nil
	}
	defer it.Close()
	if res := it.Head(); res.IsIndex() {
		return res.Response
	}
	return nil
}

// keepIndex lets the index of a variant that was confirmed last as long as that.
func (c *Cache) keepIndex(q *Request, variant *rfc9111.Response, since moment) {
	index, end := c.storedIndex(q), variant.UselessAfter()
	if index != nil && index.UselessAfter().Before(end) {
		c.putIndex(q, index.Lasting(end.Add(indexKept)), since)
	}
}

func (c *Cache) putIndex(q *Request, index *rfc9111.Response, since moment) {
	c.invalid.unlessSince(q.key, since.invalidations, func() {
		c.store.Put(store.Entry[*head]{
			Key: store.Key(q.key), Name: nameOf(index), Since: since.purges, Head: newHead(index), Until: index.UselessAfter(),
		})
	})
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
