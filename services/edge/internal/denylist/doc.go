// Package denylist answers whether an address is blocked, from memory.
//
// # Truth, and how far this table may be from it
//
// The tables of the denylist service are authoritative. It publishes them to
// the KV bucket of the blocks; a [List] keeps a copy of the bucket. Changes
// arrive live, typically within milliseconds. A change that was missed is found
// at the next mark, which the service writes every few seconds: it names the
// bucket's generation, the newest version and the numbers of blocks in force. A
// list that disagrees, that was disconnected, or that could not keep up reads
// all of the bucket into a new table, beside the old one, and swaps it in. So a
// lift that was missed ends a few seconds later, too.
//
// A block carries its end, and ends by the edge's clock without any message.
// Each change has a version; of two changes to one block the greater version
// counts, in whatever order they arrive.
//
// # Failures
//
// NATS away: the blocks that are known stay in force until they end.
//
// NATS back with an empty disk: there is no mark, so nothing is swapped in and
// the known blocks stay. While the bucket is being filled again it holds fewer
// blocks than its mark says; then what it holds is added and nothing is lifted.
//
// Never read: until the bucket has been read, or Options.ReadyWithin has passed,
// the list is not ready. After that it lets through what it does not know, and
// says that it is degraded.
// Blocks that it hears are counted and not enforced until the first mark says
// what the service does with them.
//
// # Readers and writers
//
// [Table.Check] takes no lock. Addresses are in one hash table for each family,
// ranges in one for each family and length. A look-up asks a small filter, which
// knows most addresses that are not blocked, and then reads one place of memory,
// which holds the exact key. One writer at a time changes the tables in
// place, one word for a block that is known; a table that is full is copied into
// a larger one and replaced. Ended blocks are taken out in the background, some
// minutes later, so that a late message about them is still known to be old.
package denylist
