// Package clusterqos adds up what the edges track for the load-aware limits (see
// package qos), finds who is above the limits of the cluster, and publishes that.
// It needs NATS and nothing else: no Postgres, no denylist.
//
// # Way of a hit
//
// An edge publishes what it tracked, every few seconds, to a stream in memory
// ([wire.StreamQoSHits]). Every process of the denylist service reads all of it and
// keeps the counts of two windows. A message counts in the window in which the
// stream took it: the clocks of the edges do not matter. An edge sends a message
// again until it is acknowledged; a number in it shows that it has been counted.
//
// One process, which holds a lease in NATS ([lead.Candidate]; another one than that
// of the denylist), compares the counts with the limits when there are new ones, and
// twice a second, and writes the lists to a second stream
// ([wire.StreamQoSLists]): pieces when they have changed, then a mark. Edges hear
// them at once; an edge that is new reads the stream.
//
// # State
//
// The stream of hits is authoritative for the last windows, the counts are made of
// it, the lists of the counts. All of it is in memory and is worth nothing after two
// windows. A process that starts reads the stream from its beginning, and leads
// only when it has read all there is.
//
// # Failure
//
// A leader that is killed or frozen is replaced within five seconds; one that wakes
// up finds its term over before it writes, and edges ignore the lists of an older
// term. While nobody publishes lists, those that edges have stay in force.
//
// A NATS server that restarts has lost the streams in memory. They are made anew, the
// processes keep their counts, and edges send again what was not acknowledged. What
// was acknowledged and not yet read by any process is lost.
//
// # Time
//
// The windows are those of the server's clock. What time it is there is estimated
// from messages that the server stamped, see clock.
package clusterqos
