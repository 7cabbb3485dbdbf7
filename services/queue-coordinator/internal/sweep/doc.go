// Package sweep frees what edges left behind: the places of an edge that died,
// and rows that nobody answers for.
//
// # State
//
// A [Sweeper] remembers when it last had reason to think that edges could not
// be heard. An edge whose lease has expired is taken for dead, and that is only
// true if its messages could have arrived. So nothing is taken away before one
// whole lease has passed since
//
//   - the start of this process,
//   - NATS was away, or did not answer a ping,
//   - the store was away, so that no lease could be renewed,
//   - this process itself stood still for a second or longer.
//
// In that time the places of a dead edge stay taken; that is all that a false
// alarm costs. Every coordinator judges for itself.
//
// The totals in the metrics are as old as their last sample, 5 s; all
// coordinators of one database show the same.
package sweep
