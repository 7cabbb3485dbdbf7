package clientip

import (
	"net/http"
	"net/netip"
)

// MaxEntries is how many entries of a list are looked at, empty ones counted.
// What stands further left is not read.
const MaxEntries = 100

// Options configure a Resolver.
type Options struct {
	// Header names the header that holds the address of the client
	// (CCNQ_CLIENT_IP_HEADER), in any case. Empty: the socket peer is the
	// client and no header is read.
	Header string

	// Trusted are the proxies whose header is believed
	// (CCNQ_TRUSTED_PROXIES). Nil or empty: it is believed from anyone.
	Trusted *Set
}

// Source says where an address comes from.
type Source int

const (
	// Peer is the socket peer: no header is configured, the request has none,
	// or the peer is not trusted.
	Peer Source = iota
	// Header is the configured header.
	Header
	// Fallback is the socket peer, because the header was there and from a
	// peer that is believed, but held no usable address.
	Fallback
)

// String returns "peer", "header" or "fallback".
func (s Source) String() string {
	switch s {
	case Header:
		return "header"
	case Fallback:
		return "fallback"
	default:
		return "peer"
	}
}

// Resolver finds the address of the client of a request. It is safe for
// concurrent use.
type Resolver struct {
	header  string // canonical
	trusted *Set
	read    func(*Resolver, []string) netip.Addr
}

// NewResolver makes a Resolver. The name of the header is not checked; one that
// is no valid name is never found.
func NewResolver(o Options) *Resolver {
	r := &Resolver{header: http.CanonicalHeaderKey(o.Header), trusted: o.Trusted}
	switch r.header {
	case "X-Forwarded-For":
		r.read = (*Resolver).fromList
	case "Forwarded":
		r.read = (*Resolver).fromForwarded
	default:
		r.read = (*Resolver).fromSingle
	}
	return r
}

// Resolve returns the address of the client and where it comes from. It never
// returns an address that is neither the socket peer's nor written in the
// header.
//
// The address is the zero Addr if it would be the socket peer's and that has
// none, as on a Unix socket (RemoteAddr "@" or empty).
func (r *Resolver) Resolve(req *http.Request) (netip.Addr, Source) {
	peer, _ := parseNode(req.RemoteAddr)
	if r.header == "" {
		return peer, Peer
	}
	lines := req.Header[r.header]
	if len(lines) == 0 || !r.trusted.Empty() && !r.trusted.Contains(peer) {
		return peer, Peer
	}
	if addr := r.read(r, lines); addr.IsValid() {
		return addr, Header
	}
	return peer, Fallback
}

// PeerTrusted reports whether the socket peer is one of the trusted proxies. It
// is false when none are configured.
func (r *Resolver) PeerTrusted(req *http.Request) bool {
	if r.trusted.Empty() {
		return false
	}
	peer, _ := parseNode(req.RemoteAddr)
	return r.trusted.Contains(peer)
}
