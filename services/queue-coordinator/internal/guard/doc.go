// Package guard keeps callers from waiting for a store that is away.
//
// # State
//
// A [Store] knows whether the store behind it can be reached. It learns of a
// loss from the calls themselves: one that fails because the connection does
// means down at once; one that ran out of time means a ping, and down if that
// fails too. While it is down every call fails at once with [ErrUnavailable],
// and one goroutine tries to restore the store, every quarter of a second at
// first and every two seconds later on. So what the guard says may be stale by
// the longest time that a call may take, and by two seconds after the return.
//
// It also measures how long the calls take.
package guard
