// Package pgstore keeps the projection in Postgres. Tables, triggers and the
// functions that they call are in db/migrations/00002_denylist.sql; queries go
// through code that sqlc generated. What a batch means is worked out in package
// tally, with sums going to the database and back.
//
// # Authority
//
// The tables decide, and Postgres' clock is the time of leases, of an
// operator's orders and of pruning. Nothing is cached here. Triggers write a
// change for whatever is done to a block, by this package or by an operator's
// SQL.
//
// # Locks
//
// The row of denylist_checkpoint is the mutex of the counts: Apply, Unblock,
// Prune and the rebuild take it first. Whoever changes blocks holds
// lock_blocks() from the first change to the commit. So an operator's open
// transaction that changed a block holds up batches that block somebody, until
// he commits or the statement_timeout of the pool's connections ends the
// attempt; the batch is then tried again. A deadlock with such a transaction is
// tried again here.
//
// # Failure
//
// A failed call may have taken effect if the connection broke at the commit.
// Apply then returns [store.ErrCheckpoint] when it is called again, and the
// checkpoint tells.
package pgstore
