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
// A request in monitor mode is proxied while it is waiting.
//
// # Authority
//
// Who holds a place is decided by the coordinators' store alone. What this
// package keeps is stale by the time of a message, and is compared with the
// store by every status message: once a second, and once in each poll interval
// while requests wait. A place that the edge holds and the store has lost is
// asserted again; a place that the store holds and the edge does not know is
// freed by the store after twice the admit timeout. A memo of a full group is
// believed for 100 ms at most.
//
// # Failure
//
// Nobody is refused because nobody could decide. An ask that fails lets its
// request pass; after a few failures in a row a circuit breaker opens, and
// until a background probe succeeds requests pass without asking, those that
// wait included. With the local fallback they are counted by this edge alone
// instead. The longest that the queue can hold up a request is the pending
// timeout plus two admit timeouts.
package admission
