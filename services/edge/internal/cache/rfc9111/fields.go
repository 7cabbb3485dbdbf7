package rfc9111

import (
	"net/http"
	"strings"
)

// storedHeader returns a copy of the fields that may be stored (RFC 9111 section 3.1): without those that concern one
// connection, those that Connection names, what names in addition, and what this cache writes itself.
func storedHeader(h http.Header, names []string) http.Header {
	stored := make(http.Header, len(h))
	lines := 0
	for _, values := range h {
		lines += len(values)
	}
	room := make([]string, 0, lines) // for all fields
	for name, values := range h {
		if len(values) > 0 && !neverStored(name) {
			room = append(room, values...)
			stored[name] = room[len(room)-len(values) : len(room) : len(room)]
		}
	}
	for _, line := range h["Connection"] {
		for name := range strings.SplitSeq(line, ",") {
			delete(stored, http.CanonicalHeaderKey(trimSpace(name)))
		}
	}
	for _, name := range names {
		delete(stored, name)
	}
	return stored
}

func neverStored(name string) bool {
	switch name {
	case "Age", "Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authentication-Info", "Proxy-Authorization",
		"Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "X-Cache":
		return true
	}
	return false
}

// setByGate reports whether the proxy gives a request field another value than the client's for each client or request.
// What varies by it cannot be reused for anybody else.
func setByGate(name string) bool {
	switch name {
	case "X-Forwarded-For", "X-Request-Id":
		return true
	}
	return false
}

// ownedByBody reports whether a field describes the stored bytes, or names them, so that a 304 does not replace it
// (RFC 9111 section 3.2).
func ownedByBody(name string) bool {
	switch name {
	case "Content-Encoding", "Content-Length", "Content-Md5", "Content-Range", "Etag":
		return true
	}
	return false
}

// heuristic reports whether a status may be cached without explicit freshness (RFC 9110 section 15.1). 206 is left out,
// as it is never stored.
func heuristic(status int) bool {
	switch status {
	case 200, 203, 204, 300, 301, 308, 404, 405, 410, 414, 501:
		return true
	}
	return false
}

// unstorable reports whether responses with a status are never stored: interim ones, part of a body, 304 (which only
// updates), 412, 416 and 417 (which answer a field of one request that is no part of keys), and those of RFC 6585.
func unstorable(status int) bool {
	switch status {
	case 206, 304, 412, 416, 417, 428, 429, 431, 511:
		return true
	}
	return status < 200 || status > 999
}

// understood reports whether a status is one of RFC 9110 whose caching this package implements (RFC 9111 section 3).
func understood(status int) bool {
	switch {
	case unstorable(status):
		return false
	case status == 306, status == 418:
		return false
	}
	return http.StatusText(status) != ""
}
