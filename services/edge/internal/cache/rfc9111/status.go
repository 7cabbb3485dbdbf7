package rfc9111

import (
	"strconv"
	"time"
)

// Forward says why a request was passed on to the origin (RFC 9211 section 2.2).
type Forward string

// Reasons to pass a request on.
const (
	ForwardBypass   Forward = "bypass"    // the cache is off, or the request out of its scope
	ForwardMethod   Forward = "method"    // the method is never answered from the cache
	ForwardPartial  Forward = "partial"   // a range was asked for, and nothing is stored
	ForwardRequest  Forward = "request"   // the request's directives or conditions demand it
	ForwardStale    Forward = "stale"     // what is stored has to be validated
	ForwardURIMiss  Forward = "uri-miss"  // nothing is stored for the URL
	ForwardVaryMiss Forward = "vary-miss" // only other variants are stored
)

// cacheName is how this cache calls itself.
const cacheName = "ccnq"

// CacheStatus is the value of a Cache-Status field (RFC 9211) that this cache adds.
type CacheStatus struct {
	// Collapsed says that the request got the answer to another one.
	Collapsed bool
	// Forward is the reason why the request was passed on; empty for a hit.
	Forward Forward
	// Status is the status code of the origin's answer if that is not the one that is sent on; 0 leaves it out.
	Status int
	// Stored says that the origin's answer was stored.
	Stored bool
	// TTL is the remaining freshness lifetime of a stored response, negative if it is stale. It is written in whole
	// seconds for hits, and with Stored.
	TTL time.Duration
}

// String returns the field's value.
func (s CacheStatus) String() string {
	var space [96]byte
	return string(s.Append(space[:0]))
}

// Append appends the field's value to b and returns the longer slice.
func (s CacheStatus) Append(b []byte) []byte {
	b = append(b, cacheName...)
	if s.Forward == "" {
		b = append(b, "; hit"...)
	} else {
		b = append(append(b, "; fwd="...), s.Forward...)
	}
	if s.Status != 0 {
		b = strconv.AppendInt(append(b, "; fwd-status="...), int64(s.Status), 10)
	}
	if s.Stored || s.Forward == "" {
		b = strconv.AppendInt(append(b, "; ttl="...), Seconds(s.TTL), 10)
	}
	if s.Stored {
		b = append(b, "; stored"...)
	}
	if s.Collapsed {
		b = append(b, "; collapsed"...)
	}
	return b
}

// Seconds returns the whole seconds of d, rounded down.
func Seconds(d time.Duration) int64 {
	n := int64(d / time.Second)
	if d%time.Second < 0 {
		n--
	}
	return n
}

// AppendAge appends the value of Age for a response that is d old, in whole seconds (RFC 9111 section 5.1).
func AppendAge(b []byte, d time.Duration) []byte {
	return strconv.AppendInt(b, int64(min(max(d, 0), maxDelta*time.Second)/time.Second), 10)
}
