// Package proxy sends one request to the origin and its answer back to the client.
//
// [Proxy.Serve] is the whole surface: the pipeline calls it for every request that was let through, and reads from an
// [Outcome] what became of it. How the request travels is hidden behind it. Today every request takes one way, the
// standard library's ReverseProxy over a pooled HTTP/1.1 transport (exchange.go); a leaner way for plain requests can
// be put beside it without a change for callers.
//
// # What the origin sees
//
// The request target is the client's, byte for byte, behind the base path of the upstream URL if it has one
// (target.go). A target in absolute form decides the Host (RFC 9112 section 3.2.2) and is sent in origin form;
// whatever it names, only the configured origin is ever contacted. Targets of no valid form are answered with 400,
// CONNECT with 405.
//
// Hop-by-hop fields, and every field that any Connection line names, are removed first; only then are
// X-Forwarded-For, X-Forwarded-Proto, X-Forwarded-Host and X-Request-Id set, so no client can remove or forge them
// (forwarded.go). A body is sent with exactly one framing, chosen here anew: Content-Length or chunked.
//
// # What the client sees
//
// Bodies stream both ways. A response of unknown length, or of type text/event-stream, is flushed after every piece;
// one of known length is flushed whenever the origin pauses in its body, so its head leaves together with the first
// piece of its body. A chunk of chunked framing is passed on once it is complete or fills a buffer of 32 KiB; a chunk
// in front of it whose bytes came together with the beginning of this one may wait with it. 1xx responses, trailers
// and protocol upgrades pass. Content coding is never touched. A missing Date is added, as RFC 9110 section 6.6.1
// demands of a gateway; Server, Content-Type and User-Agent are never invented.
//
// Fields that stand in the ResponseWriter's header before Serve are the gate's own: they replace the origin's fields
// of the same name in the final response (Cache-Status comes behind them), are left out of 1xx responses, and also go
// out with the answers that Serve writes itself.
//
// # Failures
//
// Nothing is kept between requests but idle connections. When the origin cannot be reached the client gets 502, when
// it is too slow 504. When an answer breaks off in the middle, the client's connection is broken too, never ended
// cleanly: Serve panics with [net/http.ErrAbortHandler], which the HTTP server expects. Deferred functions of the
// callers run, and the Outcome is complete by then.
//
// # Repeated requests
//
// An idle connection may be closed by the origin just as a request is sent on it. The transport then sends the
// request again on another connection if nothing of it was written yet, or if it has no body and its method is
// idempotent (GET, HEAD, OPTIONS, TRACE, or any method with an Idempotency-Key field). A POST that was already partly
// written is not repeated: the client gets 502.
package proxy
