package rfc9111

import (
	"net/http"
	"slices"
	"time"
)

// Limits of what is stored.
const (
	// maxHeadBytes bounds the fields of a stored response, names and values together.
	maxHeadBytes = 128 << 10
	// maxFields bounds the number of field lines of a stored response.
	maxFields = 1000
	// maxVaryNames bounds by how many request fields the responses of one resource may vary.
	maxVaryNames = 16
	// maxHeuristic bounds a lifetime that is worked out from Last-Modified: one minute, the fallback's default.
	maxHeuristic = time.Minute
)

// Policy holds what an operator decides. It must not be changed while it is used.
type Policy struct {
	// TTL is the lifetime of responses that state none (CCNQ_CACHE_TTL_MS), if their status may be cached without
	// (RFC 9110 section 15.1) and is below 500. 0 means none: then a response without explicit freshness is stored only
	// if it has a Last-Modified, for a tenth of the time since then (RFC 9111 section 4.2.2) but at most a minute.
	TTL time.Duration
	// IgnoreCacheControl (CCNQ_CACHE_RESPECT_CACHE_CONTROL=false) lets TTL replace max-age, s-maxage, Expires, no-cache,
	// no-store and private of the origin.
	IgnoreCacheControl bool
	// IgnoreQuery (CCNQ_CACHE_KEY_INCLUDE_QUERY=false) leaves the query out of keys.
	IgnoreQuery bool
	// StripSetCookie (CCNQ_CACHE_STRIP_SET_COOKIE) stores responses with Set-Cookie, without it. Otherwise such
	// responses are not stored.
	StripSetCookie bool
	// VaryHeaders (CCNQ_CACHE_VARY_HEADERS) are request fields by which every response is taken to vary, in any case.
	VaryHeaders []string
}

// NotStored says why a response is not stored. The values are words for logs and metrics; empty means it is stored.
type NotStored string

// Reasons not to store a response.
const (
	Stored            NotStored = ""
	AuthorizedRequest NotStored = "authorization"   // RFC 9111 section 3.5
	HeadTooLarge      NotStored = "head-too-large"  // more than 128 KiB or 1,000 lines
	Method            NotStored = "method"          // anything but GET
	MustUnderstand    NotStored = "must-understand" // and the status is unknown
	NoCache           NotStored = "no-cache"
	NoFreshness       NotStored = "no-freshness" // none stated, and none assumed for this status
	NoStore           NotStored = "no-store"
	NoStoreRequest    NotStored = "no-store-request"
	Private           NotStored = "private"
	SetCookie         NotStored = "set-cookie"
	Stale             NotStored = "stale" // on arrival, and no permission to use it stale
	Status            NotStored = "status"
	VaryChanged       NotStored = "vary-changed" // by a 304
	VaryStar          NotStored = "vary"         // "*", no list of names, too many, or one that the client cannot know
)

// Store returns what to store of an answer to r, or the reason not to. requested and received are the times when r was
// sent to the origin and when the head of the answer came. The header is copied.
//
// It follows RFC 9111 section 3 for a shared cache. The body must be complete before the result is used.
func (p *Policy) Store(r *http.Request, status int, h http.Header, requested, received time.Time) (*Response, NotStored) {
	switch {
	case r.Method != http.MethodGet:
		return nil, Method
	case unstorable(status):
		return nil, Status
	case RequestDirectives(r.Header).NoStore:
		return nil, NoStoreRequest
	case len(h["Set-Cookie"]) > 0 && !p.StripSetCookie:
		return nil, SetCookie
	}
	c, targeted := responseControl(h)
	res := &Response{Status: status, Header: storedHeader(h, p.dropped(&c)), URL: p.url(r), received: received}
	if headTooLarge(res.Header) {
		return nil, HeadTooLarge
	}
	if reason := p.assess(res, r, &c, targeted, h, requested); reason != Stored {
		return nil, reason
	}
	return res, Stored
}

// dropped returns the fields that are not stored because no-cache, private or the operator says so.
func (p *Policy) dropped(c *control) []string {
	if p.IgnoreCacheControl {
		return []string{"Set-Cookie"}
	}
	return append(c.fields, "Set-Cookie")
}

func headTooLarge(h http.Header) bool {
	size, lines := 0, 0
	for name, values := range h {
		for _, v := range values {
			size += len(name) + len(v)
			lines++
		}
	}
	return size > maxHeadBytes || lines > maxFields
}

// assess works out how long res may be used and by what it varies. h are the fields that decide.
func (p *Policy) assess(
	res *Response, r *http.Request, c *control, targeted bool, h http.Header, requested time.Time,
) NotStored {
	date := setDate(res.Header, res.received)
	if reason := p.forbidden(res.Status, c, r); reason != Stored {
		return reason
	}
	var ok bool
	if res.vary, ok = p.varyNames(h); !ok {
		return VaryStar
	}
	res.modified, ok = parseDate(h["Last-Modified"])
	if !ok {
		res.modified = time.Time{}
	}
	res.age = initialAge(h, date, requested, res.received)
	lifetime, ok := p.lifetime(res, c, targeted, h, date)
	if !ok {
		return NoFreshness
	}
	res.lifetime = lifetime
	res.strict, res.shared, res.whileRevalidate, res.ifError = false, false, 0, 0
	if !p.IgnoreCacheControl {
		res.strict = c.mustRevalidate || c.proxyRevalidate
		res.shared = c.sMaxAge.set
		res.whileRevalidate, res.ifError = c.whileRevalidate.lifetime(), c.ifError.lifetime()
	}
	if res.age >= res.lifetime+res.grace() {
		return Stale
	}
	return Stored
}

// setDate returns the Date of h, which becomes the time when h came if it is missing or invalid (RFC 9110 section 6.6.1).
func setDate(h http.Header, received time.Time) time.Time {
	date, ok := parseDate(h["Date"])
	if !ok {
		date = received
		h["Date"] = []string{date.UTC().Format(http.TimeFormat)}
	}
	return date
}

// forbidden applies the directives that keep a response out of the cache.
func (p *Policy) forbidden(status int, c *control, r *http.Request) NotStored {
	if !p.IgnoreCacheControl {
		switch {
		case c.noStore:
			return NoStore
		case c.private:
			return Private
		case c.noCache:
			return NoCache
		case c.mustUnderstand && !understood(status):
			return MustUnderstand
		}
	}
	if len(r.Header["Authorization"]) > 0 && !c.public && !c.mustRevalidate && !c.sMaxAge.set {
		return AuthorizedRequest
	}
	return Stored
}

// lifetime returns the freshness lifetime (RFC 9111 section 4.2.1): what is stated, else what is assumed. It reports
// false if nothing is stated and nothing may be assumed.
func (p *Policy) lifetime(
	res *Response, c *control, targeted bool, h http.Header, date time.Time,
) (time.Duration, bool) {
	switch {
	case p.IgnoreCacheControl:
		return p.fallback(res.Status)
	case c.sMaxAge.set:
		return c.sMaxAge.lifetime(), true
	case c.maxAge.set:
		return c.maxAge.lifetime(), true
	case !targeted && len(h["Expires"]) > 0:
		expires, ok := parseDate(h["Expires"])
		if !ok {
			return 0, true // an invalid date is one in the past (section 5.3)
		}
		return min(max(expires.Sub(date), 0), maxDelta*time.Second), true
	case pragmaNoCache(h):
		return 0, false
	case p.TTL > 0:
		return p.fallback(res.Status)
	case res.modified.IsZero() || !heuristic(res.Status) && !c.public:
		return 0, false
	}
	return min(max(date.Sub(res.modified)/10, 0), maxHeuristic), true
}

func (p *Policy) fallback(status int) (time.Duration, bool) {
	return p.TTL, p.TTL > 0 && heuristic(status) && status < 500
}

// pragmaNoCache reports whether an origin that states no freshness says Pragma: no-cache, as many did to HTTP/1.0.
func pragmaNoCache(h http.Header) bool {
	for name := range directives(h["Pragma"]) {
		if len(name) == len("no-cache") && http.CanonicalHeaderKey(name) == "No-Cache" {
			return true
		}
	}
	return false
}

// initialAge returns the age of a response when it came (RFC 9111 section 4.2.3).
func initialAge(h http.Header, date, requested, received time.Time) time.Duration {
	apparent := max(received.Sub(date), 0)
	corrected := ageValue(h["Age"]) + max(received.Sub(requested), 0)
	return min(max(apparent, corrected), maxDelta*time.Second)
}

// ageValue reads Age as RFC 9111 section 5.1 asks: the first of several values counts, and one that is no number of
// seconds is ignored. Parameters, which the field does not have, are skipped.
func ageValue(lines []string) time.Duration {
	if len(lines) == 0 {
		return 0
	}
	first, _ := cutElement(lines[0])
	for i := range len(first) {
		if first[i] == ';' {
			first = first[:i]
			break
		}
	}
	n, _ := deltaSeconds(trimSpace(first))
	return time.Duration(n) * time.Second
}

// varyNames returns the names by which a response varies, the operator's included, sorted and in canonical form, or
// false if it cannot be reused (RFC 9111 section 4.1).
func (p *Policy) varyNames(h http.Header) ([]string, bool) {
	names, ok := appendVary(nil, h["Vary"])
	if !ok {
		return nil, false
	}
	for _, name := range p.VaryHeaders {
		names = append(names, http.CanonicalHeaderKey(name))
	}
	return tidyNames(names)
}

// appendVary adds the names of all lines of Vary to names. It reports false for "*" and for what comes to the same.
func appendVary(names, lines []string) ([]string, bool) {
	for _, line := range lines {
		for line != "" {
			var name string
			name, line = cutElement(line)
			if name = trimSpace(name); name == "" {
				continue
			}
			canonical := http.CanonicalHeaderKey(name)
			if name == "*" || !isToken(name) || setByGate(canonical) || len(names) >= maxFields {
				return nil, false
			}
			names = append(names, canonical)
		}
	}
	return names, true
}

func tidyNames(names []string) ([]string, bool) {
	slices.Sort(names)
	names = slices.Compact(names)
	return names, len(names) <= maxVaryNames
}
