// Package flight lets everybody who asks for the same thing at the same time
// share one fetch of it. It knows nothing of HTTP: a flight has a key, a head of
// any type, and a body that is read while it is written.
//
// # A flight's life
//
//	          first asker                 one is admitted             head: Share
//	(nothing) ───────────▶ boarding ─────────────────────▶ fetching ─────────────▶ shared ──▶ ended
//	                         │ all refused or left             │ head: Alone
//	                         ▼                                 ▼
//	                      (nothing)                    the leader's alone ──▶ ended
//
// While a flight is boarding, its askers stand in lanes: those who share a place
// in the admission queue are one lane. In each lane one asker seeks admission at
// a time, in the order of arrival. The first who is admitted, in whatever lane,
// leads: the fetch is made with its request, the searches of the other lanes are
// cancelled, and everybody else follows. So nobody waits for a lane that is not
// his own. Who is refused is told so, and the next of the lane seeks.
//
// The fetch runs in a goroutine of its own and does not depend on its leader: it
// goes on while anybody follows, and is cancelled when nobody does, unless
// [Asker.Keep] was called.
//
// # Pace and memory
//
// A body is kept while the flight lasts, so that a newcomer reads it from the
// beginning. The fetch is ahead of the fastest reader by a window at most. Beyond
// the limit of an item, or when all flights together hold too much, a flight is
// closed: nobody new joins, and what everybody has read is let go. From then on the
// slowest reader sets the pace; one that reads nothing for a while as others wait
// for more is cut loose.
//
// # State
//
// Nothing outlives the process, and nothing here is authoritative: a flight that
// fails is made again by whoever asks next.
package flight
