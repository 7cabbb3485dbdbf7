// Package lead keeps one of several processes at work: whoever holds the lease in
// a store.
//
// # State
//
// The store decides who leads, by its own clock ([Lease]). A process
// that leads renews that each second; one that does not asks twice a second, so
// that a leader which says nothing more is replaced within five seconds. What
// this package knows may be late by one such call.
//
// # Failure
//
// A [Term] ends when the store says so, when it could not be renewed for its
// length, when the process loses NATS, or when the work ends. A process that was
// frozen finds its term no longer valid ([Term.Valid]) before it writes
// anything, and the store refuses its epoch.
//
// The same calls tell whether the store can be reached. While it cannot, it is
// made usable again before the next one ([Options.Prepare]), since it may come
// back as an empty database.
package lead
