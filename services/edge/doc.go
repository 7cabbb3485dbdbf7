// Package edge is the service that clients see: a reverse proxy that lets a
// request pass, makes it wait, or refuses it, before the origin is asked.
//
// # State
//
// An edge keeps nothing that outlives it. Who holds a place in the queue is
// decided by the coordinators (see package admission for what the edge
// believes and for how long). What the load-aware limits count is in memory, and
// adds up over edges elsewhere if that is wanted (see package qoscluster). Edges do
// not talk to each other.
//
// # Failure
//
// Without NATS or without coordinators, requests pass undecided, or counted by
// this edge alone, as CCNQ_QUEUE_FALLBACK says. The load-aware limits of this edge
// go on whatever else fails. Without the origin, clients
// get 502 or 504.
package edge
