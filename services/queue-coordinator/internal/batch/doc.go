// Package batch gathers items that arrive one by one into batches, so that one
// round trip to a store serves many of them.
//
// There is no delay: an item that finds a free call goes at once, alone; those
// that arrive while all calls are in flight form the next batch. So an idle
// system has the latency of a single call, and the busier the system the
// larger the batches.
//
// # State
//
// A [Batcher] keeps the items that wait, at most as many as its options say,
// and nothing about those it has handed over. Each item is handed over exactly
// once: to Run, or to Drop together with the reason. Nothing outlives Stop.
package batch
