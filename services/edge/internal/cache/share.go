package cache

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/ccnq/ccnq/services/edge/internal/admission"
	"github.com/ccnq/ccnq/services/edge/internal/cache/flight"
	"github.com/ccnq/ccnq/services/edge/internal/cache/rfc9111"
	"github.com/ccnq/ccnq/services/edge/internal/proxy"
)

const (
	// maxJoins is how many flights a request joins before it goes on alone.
	maxJoins = 3
	// retryAfterFailure is how long a stored response is not validated in the
	// background after the queue had no place for it, or the origin no answer that
	// can be stored.
	retryAfterFailure = time.Second
)

// share waits for a fetch that everybody shares who asks for the same.
func (c *Cache) share(q *Request, f *found) Result {
	key := q.flightKey(f)
	for range maxJoins {
		a := &c.newFetch(q).Asker
		if !c.flights.Join(key, a) {
			break // the cache is being stopped
		}
		result, again := c.ride(q, f, a, &key)
		a.Leave()
		if !again {
			return result
		}
	}
	return c.goOnAlone(q, f, AloneAfterAll)
}

// ride waits for what a flight brings. It reports again if the request is to
// join another one, whose key it may set.
func (c *Cache) ride(q *Request, f *found, a *flight.Asker[*landing], key *flight.Key) (result Result, again bool) {
	for {
		news, err := a.Await(q.R.Context())
		if err != nil {
			return Result{End: Broken, Word: Miss, Err: err}, false
		}
		switch news {
		case flight.InterimCame:
			if land := a.Interim(); q.R.ProtoAtLeast(1, 1) { // HTTP/1.0 has no such responses
				writeInterim(q.W, land)
			}
		case flight.Refused:
			return c.refused(q, f, a.Seat())
		case flight.LetGo:
			return c.letGo(q, f, a)
		case flight.HeadCame:
			land := a.Head()
			if !a.Leads() && !land.isFor(q) {
				*key = land.keyFor(q)
				return Result{}, true
			}
			if !a.Leads() && land.item == nil && land.tooOldFor(q, c.now()) {
				if land.res.FreshFor(c.now()) <= 0 { // nor is it for anybody else who comes now
					c.flights.Outdate(q.key)
					return Result{}, true
				}
				return c.goOnAlone(q, f, AloneAfterAll), false
			}
			if land.hit && !a.Leads() && land.res.Decide(q.directives, c.now()) != rfc9111.Fresh {
				return c.goOnAlone(q, f, AloneAfterAll), false // it was fresh enough for the leader
			}
			return c.deliver(q, f, a, land)
		}
	}
}

// refused answers a request that the queue has refused: from what is stored, if
// that may be used, else not at all.
func (c *Cache) refused(q *Request, f *found, seat flight.Seat) (Result, bool) {
	if seat.Outcome.Reason == admission.ClientGone {
		return Result{End: Broken, Word: Miss}, false
	}
	if now := c.now(); q.mayBeStale() && f.item != nil && f.res.UsableOnRefusal(now) {
		c.metrics.revalidations.refused.Inc()
		if result, ok := c.answer(q, f, f.res, Stale, rfc9111.CacheStatus{TTL: f.res.FreshFor(now)}, now); ok {
			return result, false
		}
	}
	setStatus(q.W, Miss, rfc9111.CacheStatus{Forward: forward(q, f)})
	return Result{End: Refused, Word: Miss, Seat: seat}, false
}

// mayBeStale reports whether the client said nothing against a stale answer.
func (q *Request) mayBeStale() bool {
	return q.directives == rfc9111.Directives{} || q.directives == rfc9111.Directives{OnlyIfCached: true}
}

// originFailure is why a fetch brought nothing that can be shared: the origin's
// fault. It is no answer to anybody.
type originFailure struct {
	status int // what a client is told: 502, 504, or the origin's own 5xx
	class  proxy.Class
	err    error
	stored found // what the fetch would have validated, for the leader
}

// Error says what happened.
func (e *originFailure) Error() string {
	if e.err != nil {
		return e.err.Error()
	}
	return "the origin answered " + strconv.Itoa(e.status)
}

var errNotStorable = errors.New("the response is not for others")

// letGo goes on with a request whom a flight brings nothing.
func (c *Cache) letGo(q *Request, f *found, a *flight.Asker[*landing]) (Result, bool) {
	reason := a.Reason()
	var failure *originFailure
	switch {
	case errors.As(reason, &failure):
		now, stored := c.now(), *f
		if a.Leads() && failure.stored.item != nil { // maybe it came while the leader waited for its turn
			stored = failure.stored
		}
		stored.shared = true
		if q.mayBeStale() && stored.item != nil && stored.res.UsableOnError(now) {
			if result, ok := c.answer(q, &stored, stored.res, Stale, rfc9111.CacheStatus{TTL: stored.res.FreshFor(now)}, now); ok {
				result.Err = failure
				return result, false
			}
		}
		if failure.class == proxy.Unreachable || failure.class == proxy.Timeout {
			setStatus(q.W, Miss, rfc9111.CacheStatus{Forward: forward(q, f), Collapsed: !a.Leads()})
			return Result{End: Failed, Word: Miss, Status: failure.status, Seat: a.Seat(), Err: failure}, false
		}
	case errors.Is(reason, flight.ErrBroken):
		if a.Leads() { // its exchange was cut
			return Result{End: Broken, Word: Miss, Seat: a.Seat(), Err: reason}, false
		}
		return Result{}, true
	}
	return c.goOnAlone(q, f, AloneAfterAll), false
}

// deliver writes what a flight has brought.
func (c *Cache) deliver(q *Request, f *found, a *flight.Asker[*landing], land *landing) (Result, bool) {
	word, collapsed := Miss, !a.Leads()
	if collapsed {
		word = Collapsed
	}
	if land.item != nil {
		if !collapsed {
			word = Revalidated
		}
		status := rfc9111.CacheStatus{Forward: forward(q, f), Status: http.StatusNotModified, Collapsed: collapsed}
		now := c.now()
		if land.hit { // it had come while the request waited for its turn
			word, status = Hit, rfc9111.CacheStatus{TTL: land.res.FreshFor(now)}
		}
		if land.cookie != nil && !collapsed {
			q.W.Header()["Set-Cookie"] = land.cookie
		}
		stored := found{item: land.item, res: land.res, shared: true}
		result, ok := c.answer(q, &stored, land.res, word, status, now)
		result.Seat = a.Seat()
		return result, !ok
	}
	status := rfc9111.CacheStatus{Forward: forward(q, f), Collapsed: collapsed, Stored: land.res != nil}
	now := c.now()
	if land.res != nil {
		status.TTL = land.res.FreshFor(now)
	}
	setStatus(q.W, word, status)
	result := Result{End: Answered, Word: word, Status: land.status, Seat: a.Seat()}
	land.writeFields(q.W.Header(), collapsed, now)
	switch {
	case land.res != nil && land.res.Precondition(q.R.Header):
		a.Keep()
		notModified(q.W)
		result.Status = http.StatusNotModified
		return result, false
	case q.R.Method == http.MethodHead:
		if land.res != nil {
			a.Keep()
		}
		q.W.WriteHeader(land.status)
		return result, false
	}
	if err := c.copyBody(q, a, land); err != nil {
		result.End, result.Err = Broken, err
	}
	return result, false
}

// copyBody writes a body as it comes.
func (c *Cache) copyBody(q *Request, a *flight.Asker[*landing], land *landing) error {
	h := q.W.Header()
	if size, whole := a.Whole(); whole && h["Content-Length"] == nil && bodyAllowed(land.status) && len(land.trailer) == 0 {
		h["Content-Length"] = []string{strconv.FormatInt(size, 10)}
	}
	q.W.WriteHeader(land.status)
	flush := func() { _ = http.NewResponseController(q.W).Flush() } // a failure shows at the next write
	for {
		piece, err := a.Next(q.R.Context(), flush)
		if errors.Is(err, io.EOF) {
			land.writeTrailer(h)
			return nil
		}
		if errors.Is(err, flight.ErrBroken) && land.err != nil {
			return land.err
		}
		if err != nil {
			return err
		}
		if _, err := q.W.Write(piece); err != nil {
			return err
		}
	}
}

// writeInterim passes a 1xx response on.
func writeInterim(w http.ResponseWriter, land *landing) {
	h := w.Header()
	kept := make(http.Header, len(h))
	for name, values := range h {
		kept[name] = values
		delete(h, name)
	}
	for name, values := range land.live {
		h[name] = values
	}
	w.WriteHeader(land.status)
	clear(h)
	for name, values := range kept {
		h[name] = values
	}
}

// refresh validates what is stored in the background, in the client's group and
// without waiting for a place. A request whose answer most likely cannot be stored
// leaves that to others.
func (c *Cache) refresh(q *Request, f *found) {
	if q.directives.NoStore || q.R.Header["Authorization"] != nil {
		return
	}
	key, stored := q.flightKey(f), rfc9111.Key(f.key)
	if c.unrefreshed.has(stored, q.Arrived) || c.flights.Flying(key) {
		return
	}
	fetch := c.newFetch(q)
	fetch.impatient, fetch.q.directives = true, rfc9111.Directives{}
	a := &fetch.Asker
	a.Lane.Kind |= backgroundLane
	if !c.flights.Join(key, a) {
		return
	}
	a.Keep()
	ctx := context.WithoutCancel(q.R.Context())
	c.refreshing.Go(func() {
		defer a.Leave()
		for {
			news, err := a.Await(ctx)
			if err == nil && news == flight.InterimCame {
				continue
			}
			if err != nil {
				return
			}
			if news != flight.HeadCame || a.Head().res == nil {
				c.unrefreshed.set(stored, c.now().Add(retryAfterFailure))
			}
			if news == flight.Refused {
				c.metrics.revalidations.refused.Inc()
			}
			return
		}
	})
}

// backgroundLane marks the lane of those who do not wait for a place: they must
// not seek it for those who do.
const backgroundLane = 0x80
