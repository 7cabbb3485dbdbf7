package rfc9111

import (
	"crypto/sha256"
	"encoding/binary"
	"net/http"
	"slices"
	"strings"
)

// Key identifies a resource, or a variant of it: the first 16 bytes of a SHA-256, so that nobody can make two of them
// meet. Keys are the same on every instance and after a restart.
type Key [16]byte

// Key returns the key of the resource that r asks for. GET and HEAD share it. It covers what the origin can tell
// resources apart by: the scheme, the host without regard to case, default port and empty port, and the target, byte for byte as the
// client sent it, with the query unless IgnoreQuery. Nothing is decoded or tidied, as the origin gets those bytes too:
// /a?b and /a%3Fb are two resources, and so are /a and //a.
//
// trusted says that r comes from a trusted proxy, whose forwarding fields reach the origin. It may build its pages from
// them, so they belong to the key, except for the addresses in them.
func (p *Policy) Key(r *http.Request, trusted bool) Key {
	return p.keyOf(r, p.target(r), trusted)
}

// keyOf returns the key of another target on the same host, in the form of [Policy.target].
func (p *Policy) keyOf(r *http.Request, target string, trusted bool) Key {
	var space [512]byte
	b := append(space[:0], "ccnq 1"...)
	b = appendHost(append(b, scheme(r)...), r)
	b = appendText(b, target)
	if trusted {
		b = appendForwarded(b, r.Header)
	}
	return sum(b)
}

func sum(b []byte) Key {
	s := sha256.Sum256(b)
	return Key(s[:16])
}

// appendText appends s with its length in front, so that no two lists of texts give the same bytes.
func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func scheme(r *http.Request) string {
	if r.TLS != nil {
		return "https"
	}
	return "http"
}

// host returns the host of r without the default port of its scheme, and without a colon that no port follows (RFC 3986
// section 6.2.3), in the client's case.
func host(r *http.Request) string {
	port := ":80"
	if r.TLS != nil {
		port = ":443"
	}
	if h, ok := strings.CutSuffix(r.Host, port); ok {
		return h
	}
	if h, ok := strings.CutSuffix(r.Host, ":"); ok && !strings.HasSuffix(h, ":") {
		return h
	}
	return r.Host
}

func appendHost(b []byte, r *http.Request) []byte {
	h := host(r)
	b = binary.AppendUvarint(b, uint64(len(h)))
	start := len(b)
	b = append(b, h...)
	for i, c := range b[start:] {
		b[start+i] = lower(c)
	}
	return b
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		c |= 0x20
	}
	return c
}

// target returns the request target in origin form (RFC 9112 section 3.2.1), without the query if it is no part of keys.
func (p *Policy) target(r *http.Request) string {
	target := r.RequestURI
	if !strings.HasPrefix(target, "/") {
		_, rest, absolute := strings.Cut(target, "://")
		switch end := strings.IndexAny(rest, "/?"); {
		case !absolute:
			target = r.URL.RequestURI()
		case end < 0:
			target = "/"
		case rest[end] == '?':
			target = "/" + rest[end:]
		default:
			target = rest[end:]
		}
	}
	return p.withoutQuery(target)
}

func (p *Policy) withoutQuery(target string) string {
	if p.IgnoreQuery {
		target, _, _ = strings.Cut(target, "?")
	}
	return target
}

func (p *Policy) url(r *http.Request) string {
	return scheme(r) + "://" + strings.ToLower(host(r)) + p.target(r)
}

// appendForwarded appends the forwarding fields except for those that hold addresses, sorted by name.
func appendForwarded(b []byte, h http.Header) []byte {
	var space [8]string
	names := space[:0]
	for name := range h {
		folded := name
		if strings.Contains(name, "_") { // many origins take it for a hyphen
			folded = http.CanonicalHeaderKey(strings.ReplaceAll(name, "_", "-"))
		}
		if folded != "X-Forwarded-For" && (folded == "Forwarded" || strings.HasPrefix(folded, "X-Forwarded")) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		for _, line := range h[name] {
			if name == "Forwarded" {
				b = appendForwardedHosts(b, line)
			} else {
				b = appendText(appendText(b, name), line)
			}
		}
	}
	return b
}

// appendForwardedHosts appends the parameters of Forwarded (RFC 7239) other than the addresses.
func appendForwardedHosts(b []byte, line string) []byte {
	for line != "" {
		var element string
		element, line = cutElement(line)
		for pair := range strings.SplitSeq(element, ";") {
			name, _, _ := strings.Cut(trimSpace(pair), "=")
			if !strings.EqualFold(name, "for") && !strings.EqualFold(name, "by") {
				b = appendText(appendText(b, "Forwarded"), pair)
			}
		}
	}
	return b
}
