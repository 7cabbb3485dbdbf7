// Package store is the projection of the denial events: how often each address
// was denied on each day, which addresses and ranges are blocked until when,
// and every change of a block in order. It holds the [Store] interface and its
// types. Package pgstore keeps the projection in Postgres, package memstore in
// the memory of one process, package tally is the arithmetic that both of them
// share, and package storetest is the one suite that both of them pass.
//
// # Rules
//
// They are those of cork-cache-n-queue, with the time of the event in the
// place of the clock. For each denied address of an event, in the order of the
// stream:
//
//   - The count of the address for the event's day (UTC) grows by the number of
//     denials. If at least ExceedThreshold days, of the WindowDays that end with
//     the event's day, have DailyThreshold denials or more, the address is
//     blocked until BlockDays after the event.
//   - If more than RangeIPThreshold addresses of the range have a count for that
//     day, the range is blocked until RangeBlockHours after the event.
//   - A denial only ever extends a block. Operators may end one.
//
// An event that sums up several denials counts them all at the time of the
// last. A time more than [MaxAhead] ahead of the stream's own is taken for that
// bound. An address belongs, for one day, to the range that it was first denied
// in on that day, also if an edge's prefix length changes.
//
// # Authority and staleness
//
// What is counted and what denials block is a pure function of the stream's
// order and the settings: how the stream is cut into batches, when they are
// applied and how often an event is delivered make no difference. The stream is
// the authority for them, and the tables can be made anew from it. The tables
// are the authority for what operators changed, until those changes are
// published as events. Nothing here is cached: every answer is as of the last
// commit.
//
// # Exactly once
//
// A batch is one transaction: counts, blocks, the last applied number of each
// outbox, and the checkpoint. It is refused if another process leads
// ([ErrNotLeader]) or the checkpoint is not the expected one ([ErrCheckpoint]).
// An event whose number in its outbox has been applied is skipped. So a batch
// may be tried again after any failure, and a leader that was frozen and wakes
// changes nothing.
//
// # Versions
//
// Each change of a block has a version, from one sequence for all blocks.
// Versions become visible in their order: who has seen one has seen all before
// it. There may be gaps.
//
// # Failure
//
// A method that failed may have taken effect; each may be called again. The
// memory store forgets everything with its process and is rebuilt from the
// stream at the next start.
package store
