// Package rpc answers the edges: it serves the four subjects of the queue, which
// all coordinators share, and the same under its own id, gathers their requests into batches for the store, and answers each one.
//
// # State
//
// The package keeps requests that wait for the store, bounded in number, and
// nothing else; the store decides. A request is answered exactly once. It is
// answered with an error when it has waited past its budget ([bus.CodeExpired]),
// when too many wait or its group is locked by somebody else ([bus.CodeBusy]),
// when it breaks a rule ([bus.CodeInvalid]), and when the store cannot be
// reached ([bus.CodeUnavailable]). Then nobody decided, and the edge may ask
// again: every request is idempotent.
//
// A process that stood still finds messages that are as old as the gap and
// cannot tell them from new ones. For half a second it decides on no admit:
// most are of requests that ended long ago, and each would keep a place until
// its edge's next status frees it.
//
// # Order
//
// The store hands over promotions before the results of the call that caused
// them, and both leave through one connection; so an edge is sent a promotion
// before the reply to the request that freed the place.
package rpc
