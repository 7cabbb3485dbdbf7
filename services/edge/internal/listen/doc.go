// Package listen is the edge's HTTP server: the sockets, TLS, limits against slow and oversized requests, and the three
// steps of a shutdown.
//
// A plain listener speaks HTTP/1.1 and HTTP/2 with prior knowledge (h2c); with a certificate it speaks HTTP/1.1 and HTTP/2
// over TLS. The certificate is read again when its files change; until a new pair can be read the old one is used.
//
// # Limits
//
// The head of a request must arrive within ReadHeaderTimeout and be no larger than MaxHeaderBytes (431). Bodies and responses
// may take as long as they like, since streams do; a dead peer is found by TCP keep-alive, in HTTP/2 by ping frames.
//
// # Framing
//
// net/http refuses most ambiguous requests with 400 before a handler runs: different Content-Length values, codings other
// than one "chunked", broken chunks. One it repairs: of Content-Length with Transfer-Encoding, the latter counts and the former is removed
// (RFC 9112 section 6.1). A handler cannot tell such a request from a clean chunked one. So every HTTP/1.1 connection on which
// a chunked request came is closed after its response: whatever stands behind that request is never read as another. The same
// holds for all of HTTP/1.0, where net/http ignores Transfer-Encoding.
//
// # Shutdown
//
// [Server.Drain] stops accepting and lets requests finish, [Server.Cut] ends the rest. Upgraded connections and event streams
// have no end of their own, so Drain does not wait for them, and they are counted apart. The state is this process's alone.
package listen
