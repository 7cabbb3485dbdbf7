package rfc9111

import (
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// validatorKept is how long a stale response with a validator is kept, as it saves the origin sending it again.
const validatorKept = 24 * time.Hour

// Response is the head of a stored response with all that decides about its use worked out, or an index of variants
// (see [NewIndex]). It is immutable and safe for concurrent use.
type Response struct {
	// Status is the status code, 200 to 999; 0 for an index.
	Status int
	// Header holds the end-to-end fields, Date always among them, Age never. It must not be changed.
	Header http.Header
	// URL is the identity that purging goes by: scheme, host in lower case without the scheme's default port, and the
	// target as the client sent it, without the query if that is no part of the key.
	URL string

	received        time.Time
	modified        time.Time // Last-Modified; zero if there is none
	age             time.Duration
	lifetime        time.Duration
	whileRevalidate time.Duration
	ifError         time.Duration
	strict          bool // must-revalidate or proxy-revalidate
	shared          bool // s-maxage
	vary            []string
	epoch           uint64    // of an index
	end             time.Time // of an index
}

// Decision says what to do with a stored response.
type Decision uint8

// Decisions. The order is from the best to the worst for the client.
const (
	// Fresh: answer with it.
	Fresh Decision = iota + 1
	// StaleAccepted: it is stale, but the client's max-stale accepts that; answer with it.
	StaleAccepted
	// StaleWhileRevalidate: answer with it, and validate it in the background (RFC 5861 section 3).
	StaleWhileRevalidate
	// Validate: ask the origin before it may be used.
	Validate
)

// String returns a word for logs.
func (d Decision) String() string {
	switch d {
	case Fresh:
		return "fresh"
	case StaleAccepted:
		return "stale-accepted"
	case StaleWhileRevalidate:
		return "stale-while-revalidate"
	case Validate:
		return "validate"
	}
	return "decision " + strconv.Itoa(int(d))
}

// Decide says whether the response may answer a request with the directives d at the time now (RFC 9111 section 4). It
// does not allocate. The response must be the variant that the request selects.
func (res *Response) Decide(d Directives, now time.Time) Decision {
	age := res.Age(now)
	if d.noCache || d.hasMaxAge && age > d.maxAge {
		return Validate
	}
	left := res.lifetime - age
	switch {
	case left > 0 && left >= d.minFresh:
		return Fresh
	case d.minFresh > 0 || res.strict:
		return Validate
	case -left < res.whileRevalidate:
		return StaleWhileRevalidate
	case d.hasMaxStale && -left <= d.maxStale && !res.shared:
		return StaleAccepted
	}
	return Validate
}

// Age returns the current age (RFC 9111 section 4.2.3), never negative. A clock that was set back since the response
// came makes it older, not younger: how far is unknown, so the distance counts.
func (res *Response) Age(now time.Time) time.Duration {
	resident := now.Sub(res.received)
	if resident < 0 {
		resident = -max(resident, -maxDelta*time.Second)
	}
	return res.age + min(resident, maxDelta*time.Second)
}

// FreshFor returns how much longer the response is fresh; how long it has been stale, if negative.
func (res *Response) FreshFor(now time.Time) time.Duration { return res.lifetime - res.Age(now) }

// Received returns when the response came, or was last confirmed by a 304.
func (res *Response) Received() time.Time { return res.received }

// UsableOnError reports whether the response may be sent, at the time now, instead of an error of the origin: it is
// fresh, or stale-if-error allows it (RFC 5861 section 4) and no directive demands validation.
func (res *Response) UsableOnError(now time.Time) bool { return res.usableFor(now, res.ifError) }

// UsableOnRefusal reports whether the response may be sent, at the time now, instead of refusing a request that would
// have validated it: as [Response.UsableOnError], or if stale-while-revalidate allows it.
func (res *Response) UsableOnRefusal(now time.Time) bool { return res.usableFor(now, res.grace()) }

func (res *Response) usableFor(now time.Time, grace time.Duration) bool {
	if res.strict {
		grace = 0
	}
	return res.Age(now) < res.lifetime+grace
}

// grace is the longest that the response may be used after it has become stale.
func (res *Response) grace() time.Duration {
	if res.strict {
		return 0
	}
	return max(res.whileRevalidate, res.ifError)
}

// UselessAfter returns when the response can no longer be used in any way: neither fresh, nor stale, nor validated, for
// which a stale one with a validator is kept a day. That of an index is what [Response.Lasting] was told.
func (res *Response) UselessAfter() time.Time {
	if res.IsIndex() {
		return res.end
	}
	kept := res.grace()
	if res.hasValidator() {
		kept = max(kept, validatorKept)
	}
	return res.received.Add(res.lifetime - res.age + kept)
}

// hasValidator reports whether a request can be made conditional on the response.
func (res *Response) hasValidator() bool {
	return !res.modified.IsZero() || len(res.Header["Etag"]) == 1
}

// AddValidators makes the request whose fields are out conditional on the response (RFC 9111 section 4.3.1), instead of
// on what the client holds: its own conditions and Range are removed, so that the answer is either 304 or whole. It
// reports false if the response has no validator; then the request is not conditional.
func (res *Response) AddValidators(out http.Header) bool {
	for _, name := range []string{"If-Match", "If-Modified-Since", "If-None-Match", "If-Range", "If-Unmodified-Since", "Range"} {
		delete(out, name)
	}
	if etag := res.Header["Etag"]; len(etag) == 1 {
		out["If-None-Match"] = etag[:1:1]
	}
	if !res.modified.IsZero() {
		out["If-Modified-Since"] = res.Header["Last-Modified"][:1:1]
	}
	return res.hasValidator()
}

// Freshen returns res as a 304 with the fields h updates it (RFC 9111 sections 3.2 and 4.3.4), for the request r that
// [Response.AddValidators] made conditional. The result may answer the request in any case; if the reason is not
// Stored, it must be dropped afterwards. Set-Cookie of the 304 never gets into the result: it is the client's alone.
//
// A 304 answers the one validator that was sent, so another ETag in it does not replace the stored one.
func (p *Policy) Freshen(
	res *Response, r *http.Request, h http.Header, requested, received time.Time,
) (*Response, NotStored) {
	fresh := *res
	fresh.Header, fresh.received = merge(res.Header, h), received
	setDate(fresh.Header, received)
	deciding := fresh.Header
	if len(h["Age"]) > 0 { // never stored, but it counts
		deciding = maps.Clone(fresh.Header)
		deciding["Age"] = h["Age"]
	}
	c, targeted := responseControl(deciding)
	for _, name := range p.dropped(&c) {
		delete(fresh.Header, name)
	}
	if headTooLarge(fresh.Header) {
		return &fresh, HeadTooLarge
	}
	if RequestDirectives(r.Header).NoStore {
		return &fresh, NoStoreRequest
	}
	reason := p.assess(&fresh, r, &c, targeted, deciding, requested)
	if reason == Stored && !slices.Equal(fresh.vary, res.vary) {
		reason = VaryChanged
	}
	return &fresh, reason
}

// merge returns the stored fields with those of a 304 in place of the ones of the same name (RFC 9111 section 3.2). Date
// is the 304's or the time when it came, never the stored one.
func merge(stored, update http.Header) http.Header {
	merged := maps.Clone(stored)
	delete(merged, "Date")
	for name, values := range storedHeader(update, nil) {
		if !ownedByBody(name) {
			merged[name] = values
		}
	}
	return merged
}

// Size returns about how many bytes the response takes in memory.
func (res *Response) Size() int {
	size := 320 + len(res.URL) // the struct, the map and its first group
	for name, values := range res.Header {
		size += 64 + len(name)
		for _, v := range values {
			size += 16 + len(v)
		}
	}
	for _, name := range res.vary {
		size += 16 + len(name)
	}
	return size
}
