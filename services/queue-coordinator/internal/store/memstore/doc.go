// Package memstore keeps the state of the admission queue in the memory of one
// process, for the standalone program and for tests.
//
// # Authority and failure
//
// The maps behind one mutex are the only truth. They are gone when the process
// ends, and so are the edges that it served; nothing needs to be repaired.
// Nothing is ever locked by somebody else, so no item waits and [store.ErrBusy]
// does not occur. Every result is reported before the method returns.
//
// # Cost
//
// Each item costs a few map operations, whatever the number of groups, waiting
// requests or edges. Status costs as much as the edge has requests. Sweeps look
// at every group or edge under the mutex.
package memstore
