package proxy

import (
	"encoding/binary"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"
	"golang.org/x/net/http/httpguts"
)

// maxRequestIDLength bounds an X-Request-Id that a trusted proxy sends, in bytes.
const maxRequestIDLength = 128

// setForwarded sets the proxy's own fields in out, from which hop-by-hop fields have been removed already.
//
// From a trusted peer the incoming values are kept, unless its Connection field names them: X-Forwarded-For becomes
// one list in one line with the peer at its end (RFC 9110 section 5.3), the others stay. From anybody else every
// forwarding field is dropped and the values say what this proxy itself saw. It returns the request id.
func setForwarded(out http.Header, in *http.Request, trusted bool, id string, now time.Time) string {
	peer := peerAddress(in.RemoteAddr)
	values := [...]string{peer, in.Host, "http", id}
	if in.TLS != nil {
		values[2] = "https"
	}
	if trusted {
		keepForwarded(out, in.Header, &values)
	} else {
		for name := range out {
			if isForwardingField(name) {
				delete(out, name)
			}
		}
	}
	if values[3] == "" {
		values[3] = newRequestID(now)
	}
	setOne(out, "X-Forwarded-For", values[0:1:1])
	setOne(out, "X-Forwarded-Host", values[1:2:2])
	setOne(out, "X-Forwarded-Proto", values[2:3:3])
	setOne(out, "X-Request-Id", values[3:4:4])
	return values[3]
}

func setOne(h http.Header, name string, value []string) {
	if value[0] == "" {
		delete(h, name)
		return
	}
	h[name] = value
}

// keepForwarded merges what a trusted peer said into values (For, Host, Proto, request id) and out.
func keepForwarded(out, in http.Header, values *[4]string) {
	if prior := endToEnd(in, "X-Forwarded-For"); len(prior) > 0 {
		list := strings.Join(prior, ", ")
		if values[0] != "" {
			list += ", " + values[0]
		}
		values[0] = list
	}
	if host := endToEnd(in, "X-Forwarded-Host"); len(host) > 0 && host[0] != "" {
		values[1] = strings.Join(host, ", ")
	}
	if proto := endToEnd(in, "X-Forwarded-Proto"); len(proto) > 0 && proto[0] != "" {
		values[2] = strings.Join(proto, ", ")
	}
	if forwarded := endToEnd(in, "Forwarded"); len(forwarded) > 0 {
		out["Forwarded"] = forwarded
	}
	if id := endToEnd(in, "X-Request-Id"); values[3] == "" && len(id) == 1 && validRequestID(id[0]) {
		values[3] = id[0]
	}
}

// endToEnd returns the lines of a field, or nil if Connection names it and so limits it to the previous hop.
func endToEnd(h http.Header, name string) []string {
	if connection := h["Connection"]; connection != nil && httpguts.HeaderValuesContainsToken(connection, name) {
		return nil
	}
	return h[name]
}

// isForwardingField reports whether a field says where a request came from: Forwarded, X-Forwarded and everything
// that begins with X-Forwarded-. Underscores count as hyphens, as many origins (CGI, WSGI) cannot tell them apart.
func isForwardingField(name string) bool {
	const prefix = "x-forwarded"
	if len(name) < len(prefix) || name[0]|0x20 != 'x' {
		return strings.EqualFold(name, "Forwarded")
	}
	for i := range len(prefix) {
		c := name[i]
		switch {
		case c == '_':
			c = '-'
		case 'A' <= c && c <= 'Z':
			c |= 0x20
		}
		if c != prefix[i] {
			return false
		}
	}
	return len(name) == len(prefix) || name[len(prefix)] == '-' || name[len(prefix)] == '_'
}

// peerAddress returns the socket peer's address without port and zone, or "" if there is none (a unix socket).
func peerAddress(remote string) string {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		return ""
	}
	host, _, _ = strings.Cut(host, "%")
	return host
}

// validRequestID accepts 1 to 128 bytes of letters, digits and the marks that common id formats use.
func validRequestID(id string) bool {
	if id == "" || len(id) > maxRequestIDLength {
		return false
	}
	for i := range len(id) {
		c := id[i]
		switch {
		case '0' <= c && c <= '9', 'A' <= c && c <= 'Z', 'a' <= c && c <= 'z':
		case strings.IndexByte("-_.~:=+/@", c) >= 0:
		default:
			return false
		}
	}
	return true
}

// newRequestID returns a UUID of version 7 (RFC 9562 section 5.7): unique, and sorted by time to the millisecond. It
// names a request in logs and is no secret, so its random bits come from the fast generator.
func newRequestID(now time.Time) string {
	var id uuid.UUID
	binary.BigEndian.PutUint64(id[:8], uint64(now.UnixMilli())<<16|7<<12|rand.Uint64()&0xfff)
	binary.BigEndian.PutUint64(id[8:], 2<<62|rand.Uint64()>>2)
	return id.String()
}
