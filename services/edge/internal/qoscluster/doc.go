// Package qoscluster makes the load-aware limits of several edges one, by way of NATS:
// [Store] hands what this edge tracked to the denylist service, and the blocklists
// that the service makes of it to the limiter.
//
// # Way of a hit
//
// Package qos makes a batch every few seconds. The store publishes it in messages of
// bounded size, one after the other, each with the next number of this store, and
// again and again until a stream has acknowledged it. The message stays the same,
// and so does its number: whoever reads skips what it has counted. So a hit counts
// once, however long NATS is away; it counts in the window in which the stream takes
// it.
//
// # State
//
// The streams are authoritative, see package clusterqos of the denylist service. The
// store keeps the messages that are not acknowledged, and the lists that it heard of
// last. Those may be as old as a sync interval. No request waits for any of it.
//
// # Failure
//
// While NATS or the denylist service is away, the lists stay in force that were heard
// last, and this edge's own limits go on. Hits of that time are kept by package qos,
// within its bound. After a reconnection the lists are read from the stream; where that
// fails it is tried again, less and less often down to every eight seconds, and said
// once.
package qoscluster
