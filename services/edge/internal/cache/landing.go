package cache

import (
	"net/http"
	"strings"
	"time"

	"github.com/ccnq/ccnq/services/edge/internal/cache/flight"
	"github.com/ccnq/ccnq/services/edge/internal/cache/rfc9111"
)

// landing is the head of what a fetch has brought. It does not change once it is
// handed on, but for the last two fields.
type landing struct {
	status int
	live   http.Header // as the origin sent it
	res    *head       // as it is stored; nil if it is for the leader alone
	item   *item       // with res: the body, if that is stored already
	hit    bool        // with item: nobody was asked
	cookie []string    // with item: what a 304 set, for the leader alone

	index   *rfc9111.Response // by which fields it varies; nil if it does not
	variant rfc9111.Key       // that it is

	// Set before the end of the body, and read after it.
	trailer http.Header
	err     error
}

// landStored lands what is stored already, with its head as it is now.
func (f *fetch) landStored(res *head) *landing {
	return &landing{
		status: res.Status, res: res, item: f.stored.item, index: f.stored.index, variant: rfc9111.Key(f.stored.key),
	}
}

// isFor reports whether a request selects this variant.
func (l *landing) isFor(q *Request) bool {
	return l.index == nil || l.index.Variant(q.key, q.R.Header) == l.variant
}

// keyFor is the flight that brings the variant that a request selects.
func (l *landing) keyFor(q *Request) flight.Key {
	return flight.Key{Primary: q.key, Variant: l.index.Variant(q.key, q.R.Header)}
}

// tooOldFor reports whether the body is still on its way to others and a request
// that came after the head may not be answered with it, just as if it were stored.
func (l *landing) tooOldFor(q *Request, now time.Time) bool {
	return q.Arrived.After(l.res.Received()) && l.res.Decide(q.directives, now) == rfc9111.Validate
}

// writeFields writes the fields for the leader, who gets all that the origin has
// sent, or for somebody else, who gets what is stored, with its age.
func (l *landing) writeFields(h http.Header, follows bool, now time.Time) {
	fields := l.live
	if follows {
		fields = l.res.Header
		if length := l.live["Content-Length"]; length != nil {
			h["Content-Length"] = length
		}
		h["Age"] = []string{string(rfc9111.AppendAge(nil, l.res.Age(now)))}
	}
	for name, values := range fields {
		switch name {
		case "X-Cache": // this cache's own
		case cacheStatus:
			h[name] = behind(values, h[name])
		default:
			h[name] = values
		}
	}
	guessNothing(h)
}

// writeTrailer writes the fields that came after the body. What was not announced
// in the head needs a prefix (see [http.TrailerPrefix]).
func (l *landing) writeTrailer(h http.Header) {
	for name, values := range l.trailer {
		if !strings.HasPrefix(name, http.TrailerPrefix) && !announced(h, name) {
			name = http.TrailerPrefix + name
		}
		h[name] = values
	}
}

// announced reports whether the Trailer field names a field.
func announced(h http.Header, name string) bool {
	for _, line := range h["Trailer"] {
		for part := range strings.SplitSeq(line, ",") {
			if http.CanonicalHeaderKey(strings.TrimSpace(part)) == name {
				return true
			}
		}
	}
	return false
}
