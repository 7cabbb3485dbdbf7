// Package tally is the arithmetic of the projection: from a batch of denied
// events and what was counted before, it works out what is counted after, and
// which blocks that makes. It does no I/O and keeps nothing between batches.
//
// A store uses it in four steps: [Collect] sums the batch up; the store fills
// in what it has ([Address.Days], [Batch.Ranges]); [Batch.Decide] goes through
// the events in order; the store writes rows and extends blocks ([Extend]).
// The outcome is that of the events one by one: only sums are handed over, but
// every decision is made at its event, with the counts of that moment.
package tally
