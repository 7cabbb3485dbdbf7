// Package rfc9111 decides what a shared cache may store, reuse, validate and invalidate (RFC 9111, with the parts of
// RFC 9110 on validators, preconditions and ranges that a cache needs, RFC 5861 for stale answers, RFC 9211 for
// Cache-Status and RFC 9213 for CDN-Cache-Control). It is restricted further by the options of cork-cache-n-queue,
// which [Policy] holds.
//
// The package does no I/O and has no clock: every function that needs the time takes it. It keeps no state, so nothing
// in it can be stale, and all of it is safe for concurrent use as long as nobody changes a [Policy] or a [Response].
//
// # How the pieces fit
//
//   - [Policy.Key] names a resource. An entry under that key is either a stored [Response] or, where responses vary, an
//     index ([NewIndex]) that says by which request fields; [Response.Variant] then gives the key of the variant.
//   - [Policy.Store] turns an answer of the origin into a [Response], or says why it must not be stored.
//   - [Response.Decide] says whether the response may answer a request now. When it must be validated first,
//     [Response.AddValidators] makes the request conditional, and [Policy.Freshen] takes a 304 into account.
//   - [Response.Precondition], [Response.IfRange] and [ParseRange] choose between 200, 206, 304 and 416.
//   - [Policy.Invalidates] names what an unsafe request makes invalid.
//
// # What is stricter than the RFC
//
// In doubt a response counts as stale or is not stored: an unqualified no-cache keeps a response out of the cache
// altogether, as in cork-cache-n-queue; so does any Set-Cookie unless the operator has it stripped; no-store always wins
// over must-understand; two values for one directive, or one that is no number, make the response stale; and 206
// answers are never stored.
package rfc9111
