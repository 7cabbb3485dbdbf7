// Package bus is the one door to NATS: it dials, sends and answers the typed
// messages of package wire, and turns what NATS reports into four errors that a
// caller can act on. No other package handles a NATS message.
//
// # State
//
// The package keeps the connection and nothing else. A connection is kept up
// for ever: it is dialled in the background when the server is not there at
// first, and again whenever it breaks. While it is down nothing is buffered: a
// message handed in then fails at once with [ErrDisconnected], so that nobody
// waits for a server that is away and nothing stale is delivered when it
// returns. [Conn.Connected] may lag behind the truth by the time in which a
// silent server is noticed (see pingInterval).
//
// # Errors
//
// [ErrDisconnected], [ErrNoResponders] and [ErrTimeout] say that nobody
// decided; a [*RemoteError] is the answer of a service that did.
package bus
