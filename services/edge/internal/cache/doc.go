// Package cache answers requests from stored responses, and lets requests that
// miss share one fetch.
//
// # A request's way
//
// [Cache.Serve] looks a request up by its resource and the variant that its
// fields select. What package rfc9111 allows to be used is answered at once. For
// anything else the request joins a flight (package flight): one of those who ask
// for the same thing goes the rest of the way, through the admission queue to the
// origin, with the validators of what is stored, and all get what comes, while it
// comes. Some requests go the rest of the way by themselves, see [Alone].
//
// # State
//
// The origin is authoritative. What is stored (package store) may be stale as far
// as the origin's fields and RFC 9111 allow, and no longer than that; it can be
// lost at any time, and then is fetched again. A purge, and what an unsafe request
// invalidates, is gone at once for requests that come after it: a fetch that was
// under way is neither stored nor joined by newcomers.
//
// Resources whose responses turn out not to be storable are remembered for a short
// time, so that requests for them do not wait for each other. The memory is bounded,
// and is only about speed.
//
// # Failure
//
// When the store has a fault, it is as if nothing were stored. When the origin
// fails or the queue refuses, a stale response is used where its fields allow. A
// body that broke off at the origin breaks off for every client that was reading
// it, and is never stored.
package cache
