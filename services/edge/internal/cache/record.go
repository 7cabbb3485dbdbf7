package cache

import (
	"net/http"
	"time"

	"github.com/ccnq/ccnq/services/edge/internal/cache/rfc9111"
	"github.com/ccnq/ccnq/services/edge/internal/cache/store"
	"github.com/ccnq/ccnq/services/edge/internal/proxy"
)

// Reasons not to store that are not RFC 9111's.
const (
	eventStream rfc9111.NotStored = "event-stream"
	noMemory    rfc9111.NotStored = "no-memory" // as too many bodies were under way
	tooLarge    rfc9111.NotStored = "too-large"
)

// storable decides what to store of a response.
func (c *Cache) storable(
	r *http.Request, status int, h http.Header, o *proxy.Outcome, requested time.Time,
) (*rfc9111.Response, rfc9111.NotStored) {
	if o.Class != proxy.OK {
		return nil, rfc9111.NoStore // the proxy's own answer
	}
	if o.EventStream {
		return nil, eventStream
	}
	if n, ok := contentLength(h); ok && n > c.opts.MaxItemBytes {
		return nil, tooLarge
	}
	return c.policy.Store(r, status, h, requested, c.now())
}

// notStored counts why a response was not stored and, if that is likely to be so
// again for anybody who selects this variant, remembers it.
func (c *Cache) notStored(key store.Key, status int, reason rfc9111.NotStored) {
	c.metrics.notStored.WithLabelValues(string(reason)).Inc()
	switch reason {
	case rfc9111.AuthorizedRequest, rfc9111.Method, rfc9111.NoStoreRequest:
		return
	}
	if lasts(status) {
		c.uncacheable.set(rfc9111.Key(key), c.now().Add(uncacheableFor))
	}
}

// lasts reports whether a status says something about the resource. An error that
// may be the request's own fault does not, or whoever sends bad requests could keep
// others from sharing fetches; nor does one that the origin has in passing.
func lasts(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusGone:
		return true
	}
	return status < http.StatusBadRequest
}

// put stores a response whose body is complete, unless it is out of date by now.
// Where it cannot be stored, what had its key before goes too, as it has been
// replaced.
func (c *Cache) put(q *Request, land *landing, body [][]byte, since moment) {
	key := store.Key(q.key)
	if land.index != nil {
		key = store.Key(land.variant)
	}
	c.invalid.unlessSince(q.key, since.invalidations, func() {
		name := nameOf(land.res.Response)
		stored := c.store.Put(store.Entry[*head]{
			Key: key, Name: name, Since: since.purges, Head: land.res, Body: body, Until: land.res.UselessAfter(),
		})
		if !stored && !c.store.Purged(name, since.purges) { // or what is there now is newer
			c.store.Delete(key)
		}
	})
}

// Recording stores the response to a request that goes its way alone, as it
// passes, where that is allowed. Its client is not slowed down by it. Only the
// goroutine of the request uses it.
type Recording struct {
	http.ResponseWriter
	cache   *Cache
	q       *Request
	key     store.Key // under which it was looked up
	f       rfc9111.Forward
	o       *proxy.Outcome
	reason  Alone
	since   moment
	sent    time.Time
	began   bool
	land    *landing // nil when nothing is stored
	body    [][]byte
	size    int64
	charged int64
}

// Observe tells the recording where the proxy says what it does. Like End, it does
// nothing on nil.
func (rec *Recording) Observe(o *proxy.Outcome) {
	if rec != nil {
		rec.o = o
	}
}

// Unwrap lets [http.ResponseController] find the abilities of the server's
// writer.
func (rec *Recording) Unwrap() http.ResponseWriter { return rec.ResponseWriter }

// WriteHeader passes the head on, and decides whether to store.
func (rec *Recording) WriteHeader(status int) {
	if !rec.began && status >= 200 {
		rec.began = true
		rec.decide(status)
	}
	rec.ResponseWriter.WriteHeader(status)
}

func (rec *Recording) decide(status int) {
	c, q := rec.cache, rec.q
	h := rec.Header()
	others := h[cacheStatus]
	if n := len(others); n > 0 {
		others = others[: n-1 : n-1] // the last is this cache's own, of this response
	}
	res, reason := c.storable(q.R, status, h, rec.o, rec.sent)
	if reason == rfc9111.Stored {
		if delete(res.Header, cacheStatus); len(others) > 0 {
			res.Header[cacheStatus] = others
		}
		rec.land = &landing{status: status}
		reason = c.choose(q, rec.land, res, rec.since)
	}
	if reason != rfc9111.Stored {
		rec.land = nil
		if rec.reason == AloneUncacheable {
			c.notStored(rec.key, status, reason)
		}
		return
	}
	c.uncacheable.remove(rfc9111.Key(rec.key))
	status211 := rfc9111.CacheStatus{Forward: rec.f, Stored: true, TTL: res.FreshFor(res.Received())}
	h[cacheStatus] = behind(others, []string{status211.String()})
}

// Write passes a piece of the body on and keeps a copy.
func (rec *Recording) Write(p []byte) (int, error) {
	if !rec.began {
		rec.WriteHeader(http.StatusOK)
	}
	n, err := rec.ResponseWriter.Write(p)
	if rec.land != nil {
		rec.keep(p[:n])
	}
	return n, err
}

func (rec *Recording) keep(p []byte) {
	c := rec.cache
	n := int64(len(p))
	rec.size += n
	rec.charged += n
	total := c.recorded.Add(n)
	switch {
	case rec.size > c.opts.MaxItemBytes:
		c.notStored(rec.key, rec.land.status, tooLarge)
	case total <= fetchBudget:
		rec.body = append(rec.body, append([]byte(nil), p...))
		return
	default:
		c.metrics.notStored.WithLabelValues(string(noMemory)).Inc()
	}
	rec.forget()
}

func (rec *Recording) forget() {
	rec.land, rec.body = nil, nil
	rec.cache.recorded.Add(-rec.charged)
	rec.charged = 0
}

// End stores what has passed, if it was complete.
func (rec *Recording) End(complete bool) {
	if rec == nil {
		return
	}
	if rec.land != nil && complete {
		rec.cache.put(rec.q, rec.land, rec.body, rec.since)
	}
	rec.forget()
}

// goOnAlone sends a request in scope the rest of its way.
func (c *Cache) goOnAlone(q *Request, f *found, reason Alone) Result {
	c.metrics.alone(reason)
	why := forward(q, f)
	switch reason {
	case AloneNoStore, AloneCondition:
		why = rfc9111.ForwardRequest
	case AloneRange:
		why = rfc9111.ForwardPartial
	case AloneAuthorization, AloneHead, AloneUncacheable, AloneAfterAll:
	}
	setStatus(q.W, Miss, rfc9111.CacheStatus{Forward: why})
	result := Result{End: GoOn, Word: Miss, W: q.W}
	if reason == AloneNoStore || q.R.Method != http.MethodGet {
		return result
	}
	result.Recording = &Recording{
		ResponseWriter: q.W, cache: c, q: q, key: f.key, f: why, reason: reason, since: c.moment(q.key), sent: c.now(),
	}
	result.W = result.Recording
	return result
}

// goOnBypassing sends a request out of scope the rest of its way.
func (c *Cache) goOnBypassing(q *Request) Result {
	status := rfc9111.CacheStatus{Forward: rfc9111.ForwardBypass}
	result := Result{End: GoOn, Word: Bypass, W: q.W}
	if !rfc9111.Safe(q.R.Method) {
		status.Forward = rfc9111.ForwardMethod
		result.W = &invalidation{ResponseWriter: q.W, cache: c, q: q}
	}
	setStatus(q.W, Bypass, status)
	return result
}

// invalidation watches the response to an unsafe request (RFC 9111 section 4.4).
type invalidation struct {
	http.ResponseWriter
	cache *Cache
	q     *Request
	began bool
}

// Unwrap is that of [Recording].
func (i *invalidation) Unwrap() http.ResponseWriter { return i.ResponseWriter }

// WriteHeader passes the head on when what it makes invalid is gone.
func (i *invalidation) WriteHeader(status int) {
	if !i.began && status >= 200 {
		i.began = true
		c := i.cache
		for _, key := range c.policy.Invalidates(i.q.R, i.q.Trusted, status, i.Header()) {
			c.flights.Outdate(key)
			c.invalid.add(key, func() { c.store.Delete(store.Key(key)) })
			c.metrics.invalidations.Inc()
		}
	}
	i.ResponseWriter.WriteHeader(status)
}
