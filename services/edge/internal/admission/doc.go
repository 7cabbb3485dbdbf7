// Package admission is the edge's half of the admission queue: it asks the
// coordinators for a place, waits for the turn, gives the place back, and lets
// requests pass when nobody can decide.
//
// # States of a request
//
//	            ask                 queued                promoted
//	(arrives) ──────▶ asking ────────────────▶ waiting ────────────▶ held ──▶ done
//	                    │ admitted                │ timeout,           ▲       (release)
//	                    ├─────────────────────────┼────────────────────┘
//	                    │ rejected                │ client gone
//	                    ├──────▶ done             ├──────▶ done (cancel)
//	                    │ unanswered              │ nobody decides any more
//	                    └──────▶ passing ◀────────┘ (cancel; may become held)
//
// A request in monitor mode is proxied while it is waiting. One that waited too
// long is asking again until its cancel is answered. One whose client leaves
// while it asks ends with the answer, or after the admit timeout. Status
// messages list the requests that ask, wait and hold a place.
//
// # Full groups
//
// What a coordinator said of a full group is believed for as long as it said,
// for 100 ms at most, and not beyond the next place that this edge sees getting
// free. After a rejection one request of the group asks at a time, until one is
// admitted; the others await its answer, for one admit timeout at most, and
// share a rejection or a failure.
//
// # Authority
//
// Who holds a place is decided by the coordinators' store alone. What this
// package keeps is stale by the time of a message, and is compared with the
// store by every status message: once a second, and once in each poll interval
// while requests wait. A place that the edge holds and the store has lost is
// asserted again, before those that wait ask anew; a place that the store holds
// and the edge does not know is freed by the store after twice the admit
// timeout.
//
// # Failure
//
// Nobody is refused because nobody could decide. An ask that fails lets its
// request pass. After three failures in a row, if no coordinator has answered
// anything for half a second, a circuit breaker opens: requests pass without
// asking, those that ask and wait included, and nothing is sent but a probe a
// second or two. The outage ends when a status has been answered and the places
// that it found lost are asserted again. With the local fallback this edge
// counts alone during an outage, by the limits last seen: in its own line
// requests wait, are refused, and time out, and at the end of the outage those
// that wait ask a coordinator. A single failure while others are answered lets
// its request pass, with the fallback too.
//
// A question goes to any coordinator. If that one is silent, it goes once more to
// the one that was heard last, by its id, and then to whoever was heard since, or
// to any: NATS needs up to 15 s to notice that one was frozen or cut off, and hands
// it its share until then.
//
// Releases and cancels are sent until they are acknowledged. They do not count
// for the breaker, since a group that somebody has locked in the store delays
// them.
//
// The longest that the queue can hold up a request is the pending timeout plus
// two admit timeouts; with a pending timeout shorter than one admit timeout,
// three admit timeouts.
package admission
