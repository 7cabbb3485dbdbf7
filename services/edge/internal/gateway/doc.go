// Package gateway is the way of a request through the edge: a list of stages
// in order ([Gateway] pipeline), a verdict that each of them gives, and one
// responder that writes every refusal.
//
// Requests flow down the list; the first verdict that is not to go on ends the
// way. What a stage has taken (a place in the queue) is given back when the
// request is over, however it ends.
//
// The package keeps no state but metrics. Decisions are those of the stages'
// own packages.
package gateway
