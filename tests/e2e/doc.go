// Package e2e tests the gate from outside, with everything in one process: real
// edges and coordinators, a real NATS server, a real Postgres. A test holds
// both ends: the visitors and the origin.
package e2e
