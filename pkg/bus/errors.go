package bus

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
)

// What keeps a request from being answered.
var (
	// ErrDisconnected means that there is no connection to a NATS server.
	ErrDisconnected = errors.New("not connected to NATS")
	// ErrNoResponders means that no service listens on the subject.
	ErrNoResponders = errors.New("no service answers")
	// ErrTimeout means that no reply came within the caller's time.
	ErrTimeout = errors.New("no reply in time")
)

// Code is the kind of a [RemoteError].
type Code string

// Codes that services answer with.
const (
	// CodeInvalid means that the message broke a bound; asking again is no use.
	CodeInvalid Code = "invalid"
	// CodeExpired means that the request waited past its budget.
	CodeExpired Code = "expired"
	// CodeBusy means that this one item could not be served in time because
	// something holds it; others are not concerned.
	CodeBusy Code = "busy"
	// CodeUnavailable means that the service cannot reach its store.
	CodeUnavailable Code = "unavailable"
)

// errFromStream means that a message was not written where it arrived, see
// [fromStream].
var errFromStream = errors.New("it comes from a stream, by way of somebody who reads there")

// RemoteError is an error that a service answered with.
type RemoteError struct {
	Code    Code
	Message string
}

// Error returns the code and the service's own words.
func (e *RemoteError) Error() string { return fmt.Sprintf("%s: %s", e.Code, e.Message) }

// CodeOf returns the code of the [RemoteError] in err's chain, or "".
func CodeOf(err error) Code {
	if remote, ok := errors.AsType[*RemoteError](err); ok {
		return remote.Code
	}
	return ""
}

// translate turns the errors of the client library into those of this package.
func translate(operation string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, nats.ErrNoResponders):
		err = ErrNoResponders
	case errors.Is(err, nats.ErrTimeout), errors.Is(err, context.DeadlineExceeded):
		err = ErrTimeout
	case errors.Is(err, nats.ErrReconnectBufExceeded), errors.Is(err, nats.ErrConnectionClosed),
		errors.Is(err, nats.ErrDisconnected), errors.Is(err, nats.ErrInvalidConnection),
		errors.Is(err, nats.ErrConnectionReconnecting), errors.Is(err, nats.ErrConnectionDraining):
		err = ErrDisconnected
	}
	return fmt.Errorf("%s: %w", operation, err)
}
