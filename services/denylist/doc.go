// Package denylist is the denylist service: it counts the denials that edges
// report, decides who is blocked and for how long, and publishes that. One
// process leads and does so; others stand by and take over within five seconds.
// All of them answer the operators' requests.
//
// # State
//
// The event stream has the denials and the changes of blocks. The store (see
// internal/store) is a projection of it, in Postgres, or in the memory of this
// process for the standalone program. The KV bucket is a copy of the blocks for
// the edges, at most a second behind. Tables and bucket can be dropped: they are
// made anew.
//
// The leader's work is in three parts, each of which may fail and catch up by
// itself: internal/projector applies the stream to the store, internal/publish
// writes what changed to the bucket and the stream, internal/upkeep removes what
// is old. internal/lead says who leads, internal/streams makes the streams and
// the bucket, internal/rpc answers requests.
//
// # Start and failure
//
// A process starts whatever is away, and joins by itself. While Postgres or
// NATS is away nothing is counted, decided or published; denials wait in the
// stream or at the edges, which go on refusing what they know to be blocked. A
// process that is killed or frozen at any point loses nothing and counts
// nothing twice; what a frozen one does when it wakes has no effect.
package denylist
