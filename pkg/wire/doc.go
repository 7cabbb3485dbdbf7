// Package wire defines what the services of ccnq say to each other: subjects,
// messages and their limits. It imports only the standard library, keeps no
// state, and is safe for concurrent use.
//
// # Versions
//
// Every subject begins with ccnq.v1. Within a version a message may gain
// optional fields and nothing else: a reader ignores fields it does not know,
// and a missing field has its zero value. The files in testdata/v1 pin one
// example of each message and are never edited after a release.
//
// # Trust
//
// A message is input from outside. Decoding checks every bound that is stated
// at a field (see [Decode]); an invalid message is refused as a whole with one
// error that names the field.
//
// The identity of an edge is a token of the subject, never of the payload, so
// that a NATS permission can be written for each edge.
package wire
