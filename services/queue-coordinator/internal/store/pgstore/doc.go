// Package pgstore keeps the state of the admission queue in Postgres, for any
// number of coordinators. The logic is in the functions of
// db/migrations/00001_queue.sql and its successors, called through code that
// sqlc generated; this package batches, bounds and retries the calls.
//
// # Authority
//
// Postgres decides, and Postgres' clock is the time. This package remembers
// nothing about requests. It remembers which groups were locked by somebody
// else a moment ago (see below); a wrong memory costs some milliseconds.
//
// # One call, one round trip, one bound
//
// Each call is one pipelined round trip and one transaction: it sets
// lock_timeout and statement_timeout, then calls one function. The statement
// may take as long as the item with the least time left. If it takes longer,
// that item gets [store.ErrExpired] and the others are tried again. Items
// without a deadline, and calls without items, have [MaxCall].
//
// # Groups that somebody else has locked
//
// Coordinators hold a group's row for a millisecond or so. An operator's open
// transaction may hold it for minutes, and must stall nobody else:
//
//   - A call waits for locks no longer than 200 ms. Then it is made again in a
//     form that leaves out the groups that are locked.
//   - The items left out go to the slow lane: one goroutine that tries again
//     every 20 ms or so, never waiting for a lock for longer than that, until
//     the item's deadline ([store.ErrBusy]).
//   - While a group is known to be locked, its new items go there directly.
//
// # Failure
//
// A deadlock, a serialization failure, or a connection that turns out to be
// dead before anything was sent is tried once more. Every other error is
// reported for the items of the call. After an error it is not known whether
// the call took effect; every call can be repeated.
package pgstore
