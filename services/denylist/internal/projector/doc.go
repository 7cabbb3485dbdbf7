// Package projector applies the stream of the denial events to the store, in
// its order, and makes the store's tables anew from the stream.
//
// # State
//
// The store has the checkpoint: which stream, and how far. A projector keeps
// nothing that matters over a failure: it reads the checkpoint, then the stream
// behind it, and applies what it read in batches, each of which names the
// checkpoint that it expects. So it may be killed, frozen and replaced at any
// point.
//
// A message that cannot be understood is kept aside in the same transaction. So
// is one that the store refuses for its content, once it has been tried alone:
// batches become smaller until it is found. They also become smaller when the
// store has not the time or the room for one, not when it cannot be reached.
//
// # Another stream
//
// If the stream was made at another time than the checkpoint says, or ends
// before it, what the checkpoint counted is gone from NATS. The projector then
// says so in an event, begins at the start of the new stream, keeps the tables,
// and has all blocks in force published again.
//
// # A store without a checkpoint
//
// It is new, or was lost. Then all events are replayed. Denials decide nothing
// anew up to the last lift in the stream, so that it stays one, and up to the
// place that the mark of the blocks names: what they decided is published. What
// came later is applied as ever, also where its decision is among the events:
// deciding twice only extends. In the memory of one process that is every start.
// A denial that came just before a lift, and was not applied before it, is
// counted, and decides with the next denial of its address or range.
package projector
