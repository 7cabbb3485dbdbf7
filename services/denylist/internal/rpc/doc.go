// Package rpc answers the operators' requests: block, unblock, list, explain
// and rebuild.
//
// Every process of the service answers all of them but rebuild, which is the
// leader's alone. It keeps no state: an answer is what the store says at that
// moment, and an order is done when it is answered. The leader publishes it, at
// once if it is told of the change, and else within half a second.
//
// A request that breaks a bound is answered as invalid; while the store is away
// each is answered as unavailable at once.
package rpc
