package proxy

import (
	"context"
	"errors"
	"net"
	"time"
)

// ErrDurationLimit is the cause with which a caller cancels a request's context when the request has been active for
// too long. The outcome is then [DurationLimit].
var ErrDurationLimit = errors.New("the request exceeded its maximum active duration")

// Class says how an exchange with the origin ended. The zero value is OK.
type Class uint8

const (
	// OK means that the origin's answer was passed on completely, whatever its status.
	OK Class = iota
	// Unreachable means that no connection to the origin could be made (502).
	Unreachable
	// Timeout means that connecting, or waiting for the head of the answer, took too long (504).
	Timeout
	// Reset means that the connection to the origin broke, or that what came was not valid HTTP: 502 before the head
	// of the answer was sent to the client, a broken response after.
	Reset
	// ClientGone means that the client hung up, or stopped reading or sending.
	ClientGone
	// DurationLimit means that the caller cancelled the request with [ErrDurationLimit].
	DurationLimit
	// Cut means that the caller cancelled the request with another cause, such as a shutdown; Outcome.Err is that
	// cause.
	Cut
	// BadRequest means that the request was refused here and the origin has not seen it whole: a target of no valid
	// form, CONNECT (405), or a body whose framing is broken.
	BadRequest
)

var classNames = [...]string{"ok", "unreachable", "timeout", "reset", "client-gone", "duration-limit", "cut", "bad-request"}

// String returns the name used in logs and metrics: "ok", "unreachable", "timeout", "reset", "client-gone",
// "duration-limit", "cut" or "bad-request".
func (c Class) String() string {
	if int(c) >= len(classNames) {
		return "unknown"
	}
	return classNames[c]
}

// Outcome is what became of one exchange. [Proxy.Serve] fills it in before it returns or panics; it is not safe to
// read before that from another goroutine.
type Outcome struct {
	// Class says how the exchange ended.
	Class Class
	// Status is the status sent to the client; 0 if none was sent. 101 for an upgraded connection.
	Status int
	// RequestID is the value of X-Request-Id that the origin got. A caller may set it before Serve to choose the
	// value; otherwise Serve chooses one.
	RequestID string
	// Reached says that the origin answered with a head or that a connection to it was in use when the exchange
	// failed.
	Reached bool
	// Upgraded says that the connection was handed over to another protocol (101).
	Upgraded bool
	// EventStream says that the answer was of type text/event-stream.
	EventStream bool
	// FirstByte is the time from the call of Serve to the head of the origin's answer; 0 if none came.
	FirstByte time.Duration
	// Err is the cause when Class is not OK. Its text may quote what the client or the origin sent.
	Err error
}

// dialError marks an error that happened before a connection to the origin was there.
type dialError struct{ err error }

func (e *dialError) Error() string { return e.err.Error() }
func (e *dialError) Unwrap() error { return e.err }

// classify names the end of an exchange from the request's context and the error that the transport, the copying of a
// body, or nothing (nil: the client stopped reading) gave. The returned error is never nil.
func classify(ctx context.Context, err error) (Class, error) {
	if cause := context.Cause(ctx); cause != nil {
		switch {
		case errors.Is(cause, ErrDurationLimit):
			return DurationLimit, cause
		case errors.Is(cause, context.Canceled):
			return ClientGone, cause
		default:
			return Cut, cause
		}
	}
	if err == nil {
		return ClientGone, errClientStoppedReading
	}
	var netErr net.Error
	if errors.As(err, &netErr) && netErr.Timeout() {
		return Timeout, err
	}
	var dialErr *dialError
	if errors.As(err, &dialErr) {
		return Unreachable, err
	}
	return Reset, err
}

var errClientStoppedReading = errors.New("the client stopped reading the response")
