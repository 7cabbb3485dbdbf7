// Package store is the state of the admission queue: who holds a place, who
// waits, and which edge answers for them. It holds the [Store] interface and
// its types. Package pgstore keeps the state in Postgres for any number of
// coordinators, package memstore in the memory of one process, and package
// storetest is the one suite that both of them pass.
//
// # States of a request
//
//	             admit, a place is free and nobody waits
//	    ┌────────────────────────────────────────────────┐
//	    │                                                ▼
//	(unknown) ──admit, the line has room──▶ pending ─promotion─▶ active
//	 ▲  │  ▲                                  │                  │
//	 │  └──│── admit, the line is full: rejected, no row         │
//	 │     └── cancel, release, or the edge is gone ┘            │
//	 └──────────── release, or the edge is gone ─────────────────┘
//
// A promotion is the only way from pending to active, but for an edge that
// asserts a place which it holds already ([wire.ModeHeld]).
//
// # Rules that hold after every call
//
//   - A group has at most MaxServed active requests, unless edges asserted more.
//   - A group has at most MaxPending pending requests.
//   - Nobody of a group waits while one of its places is free. Every path that
//     frees a place promotes in the same transaction: release, cancel, status,
//     reclaim of a dead edge, the sweep, a raised limit. (A group that somebody
//     else has locked is left to the next sweep.)
//   - Promotion is in the order of arrival, and a newcomer never overtakes.
//   - A lowered limit evicts nobody.
//   - A request belongs to one edge. No other edge can see or change it.
//
// # Authority and staleness
//
// The store alone decides who holds a place; what an edge remembers is a copy.
// Counts are exact after every call. The lease of an edge may be up to a tenth
// of its length shorter than "since the last message", since not every message
// writes it. FullFor in a rejection is an estimate.
//
// Time is the store's own clock (that of the database in pgstore), so the
// clocks of coordinators and edges do not matter.
//
// # Failure
//
// The state does not outlive a crash of its keeper: tables are UNLOGGED, memory
// is memory. Nothing is lost that the edges do not know: a status reports
// unknown requests, and the edge asks anew or asserts what it holds. A call
// that failed may have taken effect; every call may be repeated.
package store
