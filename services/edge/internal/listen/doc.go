// Package listen is the edge's HTTP server: the sockets, TLS, limits against slow and oversized requests, and the
// three steps of a shutdown.
//
// A plain listener speaks HTTP/1.1 and HTTP/2 with prior knowledge (h2c); with a certificate it speaks HTTP/1.1 and
// HTTP/2 over TLS. The certificate is read again when its files change; until a new pair can be read the old one is
// used.
//
// # Limits
//
// The head of a request must arrive within ReadHeaderTimeout and be no larger than MaxHeaderBytes (431). Bodies and
// responses may take as long as they like, since streams do; a dead peer is found by TCP keep-alive, in HTTP/2 by
// ping frames.
//
// # Framing
//
// Behind a request whose end two servers may see in different places, nothing on the same connection is read as
// another request. net/http refuses most of them with 400 before a handler runs: different Content-Length values,
// codings other than one "chunked", white space before a colon; broken chunks fail the reading of the body. Three
// kinds it repairs:
//
//   - Content-Length with Transfer-Encoding: the latter counts and the former is removed (RFC 9112 section 6.1). A
//     handler cannot tell such a request from a clean chunked one, so every connection on which a chunked request
//     came is closed after its response.
//   - Transfer-Encoding in HTTP/1.0, which it ignores: connections of HTTP/1.0 are closed after every response.
//   - Folded header lines and lines that end with a bare LF: answered with 400 here, on plain listeners, by a look at
//     the bytes (head.go). Under TLS, where no server in front shares the connection among its clients, they are
//     read as RFC 9112 sections 2.2 and 5.2 allow.
//
// # Shutdown
//
// [Server.Drain] stops accepting and lets requests finish, [Server.Cut] ends the rest. Upgraded connections and event
// streams have no end of their own, so Drain does not wait for them, and they are counted apart. The state is this
// process's alone.
package listen
