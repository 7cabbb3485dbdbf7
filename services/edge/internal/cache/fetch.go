package cache

import (
	"context"
	"maps"
	"net/http"
	"strconv"
	"time"

	"github.com/ccnq/ccnq/services/edge/internal/cache/flight"
	"github.com/ccnq/ccnq/services/edge/internal/cache/rfc9111"
	"github.com/ccnq/ccnq/services/edge/internal/proxy"
)

const (
	// uncacheableFor is how long a resource, or a variant of one, is remembered
	// whose response was not storable. Each such response renews it.
	uncacheableFor = 30 * time.Second
	// maxDiscard is how much of a body that nobody wants is read, so that the
	// connection to the origin can be used again. A longer one is cut off.
	maxDiscard = 256 << 10
)

// fetch brings a response from the origin for everybody who waits for it. To the
// proxy it is the response's writer. Only the goroutine of the fetch uses it.
type fetch struct {
	flight.Asker[*landing] // whose errand it is

	cache     *Cache
	q         Request // the asker's, without W; it may be over
	impatient bool    // takes a free place or none

	ctx       context.Context //nolint:containedctx // the fetch's own
	feed      *flight.Feed[*landing]
	r         *http.Request // as it is sent
	stored    found         // what it validates, if that is stored
	asks      bool          // it is conditional on what is stored
	since     moment
	requested time.Time
	outcome   proxy.Outcome

	header  http.Header // until the head is written; then trailers
	began   bool
	discard int64 // bytes of a body that nobody wants; -1 while somebody does
	own     bool  // the response is the proxy's, which says that the origin gave none
	size    int64
	land    *landing
	storing bool
}

// newFetch makes the part of a request in a flight.
func (c *Cache) newFetch(q *Request) *fetch {
	f := &fetch{cache: c, q: *q}
	f.q.W = nil
	f.q.Way = q.Way.Keep()
	f.Asker = flight.Asker[*landing]{Context: q.R.Context(), Lane: q.Way.Lane(), Errand: f}
	return f
}

// Board asks the queue for a place.
func (f *fetch) Board(ctx context.Context) flight.Seat { return f.q.Way.Board(ctx, !f.impatient) }

// Fetch makes the fetch, and reports whether it is complete.
func (f *fetch) Fetch(ctx context.Context, seat flight.Seat, feed *flight.Feed[*landing]) bool {
	c := f.cache
	f.ctx, f.feed, f.header, f.discard = ctx, feed, http.Header{}, -1
	f.stored = c.find(&f.q)
	f.requested = c.now()
	if f.stored.item != nil && f.stored.res.Decide(f.q.directives, f.requested) == rfc9111.Fresh {
		land := f.landStored(f.stored.res)
		land.hit = true
		feed.Share(land)
		return true
	}
	f.since = c.moment(f.q.key)
	f.r = f.request()
	f.q.Way.Fetch(f, f.r, seat, &f.outcome)
	return f.end()
}

// Over is called when nobody needs what is stored any more.
func (f *fetch) Over() { f.stored.close() }

// request makes the request that is sent: the leader's, for the whole of the
// resource, with the validators of what is stored instead of its own.
func (f *fetch) request() *http.Request {
	r := f.q.R.WithContext(f.ctx)
	r.Method = http.MethodGet
	if f.stored.item != nil {
		r.Header = maps.Clone(r.Header)
		f.asks = f.stored.res.AddValidators(r.Header)
		return r
	}
	cloned := false
	for _, name := range [...]string{"If-Modified-Since", "If-None-Match", "If-Range", "Range"} {
		if r.Header[name] == nil {
			continue
		}
		if !cloned {
			r.Header, cloned = maps.Clone(r.Header), true
		}
		delete(r.Header, name)
	}
	return r
}

// Header returns the fields to be written.
func (f *fetch) Header() http.Header { return f.header }

// WriteHeader takes a head, and decides who gets it.
func (f *fetch) WriteHeader(status int) {
	switch {
	case f.began:
		return
	case status < 200 && status != http.StatusSwitchingProtocols:
		f.feed.Interim(&landing{status: status, live: f.header.Clone()})
		return
	}
	f.began = true
	h := f.header
	f.header = http.Header{}
	if values, ok := h["Content-Type"]; ok && len(values) == 0 {
		delete(h, "Content-Type")
	}
	f.own = f.outcome.Class != proxy.OK
	switch class := f.outcome.Class; {
	case class == proxy.Unreachable || class == proxy.Timeout:
		f.fail(status)
	case status >= http.StatusInternalServerError && f.staleWillDo():
		f.fail(status)
	case status == http.StatusNotModified && f.asks:
		f.confirmed(h)
	default:
		f.received(status, h)
	}
}

// staleWillDo reports whether the leader can be answered with what is stored
// instead of an error.
func (f *fetch) staleWillDo() bool {
	return f.stored.item != nil && f.q.mayBeStale() && f.stored.res.UsableOnError(f.cache.now())
}

func (f *fetch) fail(status int) {
	f.discard = 0
	if f.stored.item != nil {
		f.cache.metrics.revalidations.failed.Inc()
	}
	f.feed.Fail(&originFailure{status: status, class: f.outcome.Class, err: f.outcome.Err, stored: f.stored})
}

// confirmed takes a 304 for what is stored (RFC 9111 section 4.3.4).
func (f *fetch) confirmed(h http.Header) {
	c := f.cache
	c.metrics.revalidations.confirmed.Inc()
	res, reason := c.policy.Freshen(f.stored.res.Response, f.r, h, f.requested, c.now())
	fresh := newHead(res)
	if reason != rfc9111.Stored || !c.store.Update(f.stored.item, fresh, fresh.UselessAfter()) {
		c.store.Delete(f.stored.key)
	} else if f.stored.index != nil {
		c.keepIndex(&f.q, res, f.since)
	}
	f.discard = 0
	land := f.landStored(fresh)
	land.cookie = h["Set-Cookie"]
	f.feed.Share(land)
}

// received takes any other response.
func (f *fetch) received(status int, h http.Header) {
	c := f.cache
	if f.stored.item != nil {
		c.metrics.revalidations.replaced.Inc()
	}
	res, reason := c.storable(f.r, status, h, &f.outcome, f.requested)
	f.land = &landing{status: status, live: h}
	if reason == rfc9111.Stored {
		reason = c.choose(&f.q, f.land, res, f.since)
	}
	if reason != rfc9111.Stored {
		if !f.own {
			c.notStored(f.stored.key, status, reason)
		}
		if f.stored.item != nil && replaces(status) {
			c.store.Delete(f.stored.key)
		}
		f.feed.Alone(f.land, errNotStorable)
		return
	}
	c.uncacheable.remove(rfc9111.Key(f.stored.key))
	f.storing = true
	if f.land.index != nil {
		f.feed.Rename(f.land.keyFor(&f.q))
	}
	if n, ok := contentLength(h); ok {
		f.feed.Expect(n)
	}
	f.feed.Share(f.land)
}

// replaces reports whether a response that is not stored says that what is stored
// is out of date.
func replaces(status int) bool {
	return status < 300 || status == http.StatusNotFound || status == http.StatusGone
}

// Write takes a piece of the body.
func (f *fetch) Write(p []byte) (int, error) {
	if !f.began {
		f.WriteHeader(http.StatusOK)
	}
	if f.discard >= 0 {
		if f.discard += int64(len(p)); f.discard > maxDiscard {
			f.feed.Cancel(flight.ErrUnwanted)
			return 0, flight.ErrUnwanted
		}
		return len(p), nil
	}
	f.size += int64(len(p))
	if f.storing && f.size > f.cache.opts.MaxItemBytes {
		f.storing = false
		f.cache.notStored(f.stored.key, f.land.status, tooLarge)
	}
	if err := f.feed.Write(f.ctx, p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Flush lets the readers have what there is.
func (f *fetch) Flush() { f.feed.Flush() }

// end stores what has come, if it is whole, and reports whether it is.
func (f *fetch) end() bool {
	c := f.cache
	if f.discard >= 0 {
		return true
	}
	if f.land == nil {
		return false
	}
	f.land.err = f.outcome.Err
	f.land.trailer = f.header
	if f.own {
		return true
	}
	if f.outcome.Class != proxy.OK {
		return false
	}
	if f.storing {
		body, whole := f.feed.Body()
		if !whole {
			c.metrics.notStored.WithLabelValues(string(noMemory)).Inc()
			return true
		}
		c.put(&f.q, f.land, body, f.since)
	}
	return true
}

func contentLength(h http.Header) (int64, bool) {
	values := h["Content-Length"]
	if len(values) != 1 {
		return 0, false
	}
	n, err := strconv.ParseInt(values[0], 10, 64)
	return n, err == nil && n >= 0
}
