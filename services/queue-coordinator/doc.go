// Package coordinator is the queue-coordinator service: it decides, for all
// edges, who may go on to the origin and who waits. Any number of coordinators
// share the work as one queue group of NATS; none is special, and none knows
// the others.
//
// # State
//
// The store has it all (see internal/store): Postgres, or the memory of this
// process for the standalone program. A coordinator can be stopped, killed and
// added at any time. What it had taken and not answered is asked again by the
// edge, under the same id.
//
// # Start and failure
//
// A coordinator starts whatever is away. It dials NATS and Postgres for ever,
// wrong credentials included, runs the migrations as soon as Postgres answers,
// and then begins to serve. Until then it is not ready, and /readyz says which
// part is missing. NATS tells edges at once that nobody serves.
//
// If Postgres is lost later, requests are answered as unavailable at once, and
// edges let their clients pass; serving goes on within two seconds of its
// return. If NATS is lost, nothing is decided, and nothing is taken away from
// edges that may only have been cut off (see internal/sweep).
package coordinator
