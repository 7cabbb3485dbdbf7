// Package faults breaks what the gate depends on, with every part a process of
// its own: edges, coordinators, NATS and Postgres are stopped, frozen, killed
// and started again while visitors go on asking.
//
// What is required each time: nobody waits longer than the gate promises,
// nobody is refused because of the outage alone, the limits hold again by
// themselves, and no place stays taken.
package faults
