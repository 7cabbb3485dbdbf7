package rfc9111

import (
	"net/http"
	"strings"
	"time"
)

// ForOrigin reports whether a request with the fields h holds a condition that only the origin can evaluate: If-Match
// or If-Unmodified-Since. A cache must not answer such a request (RFC 9111 section 4.3.2).
func ForOrigin(h http.Header) bool {
	return len(h["If-Match"]) > 0 || len(h["If-Unmodified-Since"]) > 0
}

// Precondition reports whether a GET or HEAD request with the fields h is answered with 304 by this response: its
// If-None-Match lists the ETag or, without If-None-Match, nothing changed since If-Modified-Since (RFC 9110 section
// 13.2, RFC 9111 section 4.3.2). Only responses with a 2xx status have conditions evaluated. It does not allocate for a
// request without conditions.
func (res *Response) Precondition(h http.Header) bool {
	if res.Status < 200 || res.Status > 299 {
		return false
	}
	if lines := h["If-None-Match"]; len(lines) > 0 {
		return res.matchesAny(lines)
	}
	lines := h["If-Modified-Since"]
	if len(lines) == 0 {
		return false
	}
	since, ok := parseDate(lines)
	return ok && !res.lastModified().After(since)
}

// lastModified returns the time of the last change or, as section 4.3.2 says, the Date if it is not known.
func (res *Response) lastModified() time.Time {
	if !res.modified.IsZero() {
		return res.modified
	}
	if date, ok := parseDate(res.Header["Date"]); ok {
		return date
	}
	return res.received
}

// matchesAny compares the stored ETag weakly with the lines of If-None-Match (RFC 9110 sections 8.8.3.2 and 13.1.2). A
// stored tag that is not well-formed matches only its exact copy.
func (res *Response) matchesAny(lines []string) bool {
	stored := res.Header["Etag"]
	var tag string
	if len(stored) == 1 {
		tag = trimSpace(stored[0])
	}
	opaque, wellFormed := opaqueTag(tag)
	for _, line := range lines {
		line = trimSpace(line)
		if line == "*" || tag != "" && line == tag {
			return true
		}
		for line != "" && wellFormed {
			var element string
			element, line = cutTag(line)
			if other, ok := opaqueTag(trimSpace(element)); ok && other == opaque {
				return true
			}
		}
	}
	return false
}

// cutTag splits the first entity tag off a list. A tag may hold commas but no escapes (RFC 9110 section 8.8.3).
func cutTag(list string) (element, rest string) {
	quoted := false
	for i := range len(list) {
		switch c := list[i]; {
		case c == '"':
			quoted = !quoted
		case c == ',' && !quoted:
			return list[:i], list[i+1:]
		}
	}
	return list, ""
}

// opaqueTag returns the part of an entity tag in quotes, or false if it is no entity tag.
func opaqueTag(tag string) (string, bool) {
	tag = strings.TrimPrefix(tag, "W/")
	if len(tag) < 2 || tag[0] != '"' || tag[len(tag)-1] != '"' {
		return "", false
	}
	opaque := tag[1 : len(tag)-1]
	for i := range len(opaque) {
		if c := opaque[i]; c <= ' ' || c == '"' || c == 0x7f {
			return "", false
		}
	}
	return opaque, true
}

// IfRange reports whether the Range of a request with the fields h is to be honoured with this response: there is no
// If-Range, or it holds exactly the stored strong validator (RFC 9110 section 13.1.5).
func (res *Response) IfRange(h http.Header) bool {
	lines := h["If-Range"]
	if len(lines) == 0 {
		return true
	}
	if len(lines) > 1 {
		return false
	}
	value := trimSpace(lines[0])
	if strings.HasPrefix(value, `"`) {
		_, ok := opaqueTag(value)
		etag := res.Header["Etag"]
		return ok && len(etag) == 1 && trimSpace(etag[0]) == value
	}
	since, ok := parseDate(lines)
	if !ok || res.modified.IsZero() || !since.Equal(res.modified) {
		return false
	}
	// A date is a strong validator only if the response was made at least a second after it (section 8.8.2.2).
	date, ok := parseDate(res.Header["Date"])
	return ok && !date.Before(res.modified.Add(time.Second))
}
