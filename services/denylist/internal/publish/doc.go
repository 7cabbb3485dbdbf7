// Package publish tells the world what the tables say: it writes the blocks to
// the KV bucket that edges read, and the changes of blocks as events.
//
// # State
//
// The tables decide. Every change of a block is a row with a version; a leader
// goes through them in that order, once for the bucket and once for the events,
// until NATS has acknowledged each, and then notes how far both are
// (store.Store.SetPublished). What was written and not noted is written again by
// the next one: events under the same id, keys only if what is there is older.
// A key carries the version of its change, and is written only over the value
// that was seen, so that nobody, not even a leader that was frozen, puts an
// older state over a newer one.
//
// The bucket may lag behind the tables by half a second if nobody says that
// something changed, and else by a few milliseconds.
//
// # The mark
//
// Every few seconds the mark says which version the bucket has and how many
// blocks are in force. It is written when exactly that version has been
// written, and only once bucket and tables have been compared since the bucket
// was made: whoever reads a mark of this bucket may trust what is in it.
//
// # Comparing
//
// When a leader begins, when the bucket is another one, after a rebuild, and
// from time to time, all keys are compared with the tables, and the tables win.
// A key that has no block in force behind it is lifted.
//
// # Failure
//
// Each of the two goes on without the other: a full event stream keeps no
// block from the edges.
package publish
