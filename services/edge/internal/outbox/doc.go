// Package outbox tells the denylist service which requests were refused, and
// loses none of it when NATS is away.
//
// # Way of a denial
//
// [Outbox.Record] adds the request to what its address has collected in the
// current interval: a counter in memory, no allocation, no system call. Every
// [Interval] the interval is cut. What counts towards blocks (queue-full,
// queue-timeout and qos-counted) becomes one message for each reason and UTC day, split at
// [wire.MaxAddresses] and [wire.MaxDeniedBytes], is written to a bbolt file in
// one transaction, and sent from there: one message at a time, in order, again
// until a stream acknowledges it.
//
// # Exactly once in effect
//
// A message carries the id of its outbox and a number that grows by one. A
// message whose acknowledgement was lost is sent again, unchanged; the reader
// skips what it has applied. The id lives in the file: whoever holds the file
// goes on with its numbers. A file is sent by one process at a time, which the
// lock of its slot ensures. A file made anew gets a new id.
//
// # Slots
//
// The folder may be shared by several edges of one machine, and outlives them.
// A file is named by its slot, outbox-0.db and so on; beside it lies the file
// that is locked. An edge takes the first slot that is free, without waiting.
// Every minute it looks for slots that nobody holds (their edge is gone), sends
// what they hold under their own outbox id, and removes the file. The subject
// names the edge that sends, as NATS permissions need it; the event's source
// names the edge that refused.
//
// # What is authoritative, and what may be lost
//
// The file is the truth about what has not been acknowledged; memory holds the
// current interval. A process that is killed loses its last interval, and sends
// again what was acknowledged in it.
//
// The file is bounded: when what it holds would exceed Options.MaxBytes, the
// oldest messages are dropped and counted. Pages of messages that are gone are
// used again, so the file levels off below twice the bound plus 4 MiB. When
// everything has been sent, a file larger than 4 MiB is replaced by a small
// one: to get the space back, let it be sent. Deleting the file of a stopped
// edge loses what was not sent, and nothing else.
//
// # Failures
//
// Disk full or not writable: messages wait in memory instead, up to 16 MiB,
// under an outbox id of their own; the fault is logged once, counted, and heals
// by itself. A corrupt file is moved aside (one, with .corrupt at its end),
// counted and logged, and a new one begun. No folder at all: memory only.
//
// # Refusals
//
// Refusals by a block or by qos, and what monitor mode would have refused, count
// towards nothing and serve alerting and statistics. They are cut once a second,
// for at most 5,000 addresses, wait in 4 MiB of memory and never on disk, and
// have a sender of their own: a flood of refused requests delays no denial.
// What exceeds these bounds is counted and dropped, the oldest first.
package outbox
