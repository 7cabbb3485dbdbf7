package cache

import (
	"context"
	"net/http"
	"time"

	"github.com/ccnq/ccnq/services/edge/internal/cache/flight"
	"github.com/ccnq/ccnq/services/edge/internal/cache/rfc9111"
	"github.com/ccnq/ccnq/services/edge/internal/proxy"
)

// Request is one request at the cache.
type Request struct {
	// W and R are the server's. X-Cache and Cache-Status are set on W by
	// [Cache.Serve].
	W http.ResponseWriter
	R *http.Request
	// Arrived is when it came.
	Arrived time.Time
	// Trusted says that it comes from a trusted proxy, see [rfc9111.Policy.Key].
	Trusted bool
	// Way is the rest of its way, should it have to go on.
	Way Way

	key        rfc9111.Key
	directives rfc9111.Directives
}

// Way is what lies behind the cache: the admission queue and the origin.
type Way interface {
	// Lane says whom the request shares a place in the queue with.
	Lane() flight.Lane
	// Keep returns the same way for other goroutines, and for when the request is
	// over. The methods below are called of that alone.
	Keep() Way
	// Board asks the queue for a place until ctx ends. Without patience it takes
	// a free one or none.
	Board(ctx context.Context, patience bool) flight.Seat
	// Fetch sends r to the origin and writes the answer to w. It does not panic.
	Fetch(w http.ResponseWriter, r *http.Request, seat flight.Seat, o *proxy.Outcome)
}

// Word says what the cache did for a request. Logs and metrics use the same
// words.
type Word string

// The words.
const (
	// Bypass is out of the cache's scope.
	Bypass Word = "bypass"
	// Hit was answered from what is stored and fresh.
	Hit Word = "hit"
	// Stale was answered from what is stored and stale.
	Stale Word = "stale"
	// Miss was, or would be, answered by the origin.
	Miss Word = "miss"
	// Collapsed shared the answer to somebody else's miss.
	Collapsed Word = "collapsed"
	// Revalidated was answered from what is stored, after the origin had confirmed
	// it.
	Revalidated Word = "revalidated"
)

// End says what is to be done with a request.
type End int

// The ends of [Cache.Serve].
const (
	// GoOn sends the request the rest of its way, with Result.W.
	GoOn End = iota
	// Answered means that the response is written.
	Answered
	// Refused means that the queue refused it, as Result.Seat says.
	Refused
	// Failed means that there is nothing to answer with but the error
	// Result.Status.
	Failed
	// Broken means that the response cannot be completed, or that nobody is there
	// to read it: the connection is to be cut.
	Broken
)

// Result is what became of a request.
type Result struct {
	End  End
	Word Word
	// Status is what was sent, or with Failed what is to be sent: 502 or 504.
	Status int
	// Seat is what the queue said to this request, if it was asked for it.
	Seat flight.Seat
	// Err is why the origin's answer did not come, or not whole. May be nil.
	Err error
	// W replaces the request's with GoOn.
	W http.ResponseWriter
	// Recording must be ended, with GoOn, when the request has gone its way. May
	// be nil.
	Recording *Recording
}

// Alone says why a request in scope goes the rest of its way by itself instead
// of sharing a fetch.
type Alone string

// The reasons.
const (
	// AloneAuthorization has credentials: most likely the answer is its own.
	AloneAuthorization Alone = "authorization"
	// AloneCondition has a condition that the origin must evaluate.
	AloneCondition Alone = "condition"
	// AloneHead is a HEAD for something that is not stored.
	AloneHead Alone = "head"
	// AloneNoStore asks that nothing be stored.
	AloneNoStore Alone = "no-store"
	// AloneRange asks for a part of something that is not stored.
	AloneRange Alone = "range"
	// AloneUncacheable is for a resource, or a variant of one, that was found to
	// be not storable.
	AloneUncacheable Alone = "uncacheable"
	// AloneAfterAll was let go by a fetch that it would have shared.
	AloneAfterAll Alone = "let-go"
)

// bypassReason says why a request is out of the cache's scope.
type bypassReason string

const (
	bypassMethod  bypassReason = "method"
	bypassRules   bypassReason = "rules"
	bypassBody    bypassReason = "body"
	bypassUpgrade bypassReason = "upgrade"
)

// Serve answers a request, or says how it is to go on.
func (c *Cache) Serve(q *Request) Result {
	if reason := c.bypass(q); reason != "" {
		c.metrics.bypassed(reason)
		return c.goOnBypassing(q)
	}
	q.key = c.policy.Key(q.R, q.Trusted)
	q.directives = rfc9111.RequestDirectives(q.R.Header)
	f := c.find(q)
	defer f.close()
	if f.item != nil && !rfc9111.ForOrigin(q.R.Header) {
		switch f.res.Decide(q.directives, q.Arrived) {
		case rfc9111.Fresh:
			if result, ok := c.hit(q, &f, Hit); ok {
				return result
			}
		case rfc9111.StaleAccepted:
			if result, ok := c.hit(q, &f, Stale); ok {
				return result
			}
		case rfc9111.StaleWhileRevalidate:
			c.refresh(q, &f)
			if result, ok := c.hit(q, &f, Stale); ok {
				return result
			}
		case rfc9111.Validate:
		}
	}
	if q.directives.OnlyIfCached {
		setStatus(q.W, Miss, rfc9111.CacheStatus{Forward: rfc9111.ForwardRequest})
		return Result{End: Failed, Word: Miss, Status: http.StatusGatewayTimeout}
	}
	if reason := c.alone(q, &f); reason != "" {
		return c.goOnAlone(q, &f, reason)
	}
	return c.share(q, &f)
}

// bypass says why a request is out of scope, if it is.
func (c *Cache) bypass(q *Request) bypassReason {
	r := q.R
	switch {
	case !c.inScope(q):
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			return bypassMethod
		}
		return bypassRules
	case r.Header["Upgrade"] != nil:
		return bypassUpgrade
	case r.ContentLength != 0 || len(r.TransferEncoding) > 0:
		return bypassBody
	}
	return ""
}

// alone says why a request does not share a fetch, if it does not.
func (c *Cache) alone(q *Request, f *found) Alone {
	h := q.R.Header
	switch {
	case q.directives.NoStore:
		return AloneNoStore
	case rfc9111.ForOrigin(h):
		return AloneCondition
	case h["Authorization"] != nil:
		return AloneAuthorization
	case c.uncacheable.has(rfc9111.Key(f.key), q.Arrived):
		return AloneUncacheable
	case f.item != nil:
		return ""
	case q.R.Method == http.MethodHead:
		return AloneHead
	case h["Range"] != nil:
		return AloneRange
	}
	return ""
}

// forward says why a request is passed on.
func forward(q *Request, f *found) rfc9111.Forward {
	switch {
	case f.item != nil && f.res.FreshFor(q.Arrived) > 0:
		return rfc9111.ForwardRequest
	case f.item != nil:
		return rfc9111.ForwardStale
	case f.index != nil:
		return rfc9111.ForwardVaryMiss
	}
	return rfc9111.ForwardURIMiss
}
