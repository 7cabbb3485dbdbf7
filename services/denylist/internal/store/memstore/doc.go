// Package memstore keeps the projection in the memory of one process, for the
// standalone program and for tests.
//
// # Authority and failure
//
// The maps behind one mutex are the only copy. They are gone when the process
// ends. At the next start the service rebuilds them from the stream
// (BeginRebuild, Replay, FinishRebuild), blocks by operators included, since
// these are events too; a change that had not been published is lost.
//
// # Cost
//
// A denial costs some map operations. Prune looks at everything, and Totals at
// all blocks, under the mutex. Pages of blocks are cut from a sorted list of
// targets, which is sorted again only when blocks were added or removed.
package memstore
