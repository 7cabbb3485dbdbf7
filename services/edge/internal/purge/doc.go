// Package purge removes responses from an edge's cache when an operator says
// so: over NATS, which reaches all edges, or at this edge's admin listener.
//
// # Way of a purge
//
// An operator asks on [wire.SubjectPurge]. Every edge that is connected applies
// it at once and answers. The stream [wire.StreamPurges], which the denylist
// service makes, keeps it for a day. Every few seconds an edge looks whether
// the stream holds what it has not applied: so it catches up after it was away
// from NATS, after a restart, and when a message to it was lost.
//
// # What is authoritative
//
// The stream says what was purged. The edge's place in it lies in a file beside
// the cache, written after the purges up to it have been written to the cache.
// When the stream does not hold all that the edge has missed (it was away for
// more than a day, the stream was made anew, or the place is not known and the
// edge began with something stored), the whole cache is emptied. An entry that a purge hits
// may be served by an edge that is cut off from NATS, until it is back; an edge
// that asks every few seconds is never behind for longer than that otherwise.
//
// # Failures
//
// No NATS, no stream: the cache is served as it is, purges at the admin listener
// work, and live ones where NATS is there. A purge that could not be written to
// disk is in effect, and its answer carries a warning.
package purge
