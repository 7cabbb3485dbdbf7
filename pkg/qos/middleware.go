package qos

import (
	"context"
	"net/http"
	"time"
)

// MaxDelayedResponses is how many refusals of one limiter are held back at once
// by Options.ErrorResponseDelay. Each holds a goroutine and a connection, so
// those beyond it are answered at once.
const MaxDelayedResponses = 1024

// Middleware refuses requests before next sees them: with the status
// Options.ErrorStatusCode and an empty body. All handlers that one limiter wraps
// share its histories.
//
// With Options.DestroySocket the answer closes the connection: HTTP/1 by
// "Connection: close", HTTP/2 by GOAWAY, after which net/http lets the other
// streams of the connection end; connect-qos cuts them.
//
// With Options.ErrorResponseDelay a refusal waits first. The wait ends early when
// the client is gone or the limiter is closed.
func (l *Limiter) Middleware(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := l.Actor(r)
		reason := l.decide(&a)
		if reason == Pass || l.beforeThrottle != nil && !l.beforeThrottle(l, r, reason) {
			next.ServeHTTP(w, r)
			return
		}
		l.refuse(w, r)
	})
}

func (l *Limiter) refuse(w http.ResponseWriter, r *http.Request) {
	l.Hold(r.Context())
	if l.settings.destroySocket {
		w.Header().Set("Connection", "close")
	}
	status := l.settings.status
	if !sendable(status) {
		status = http.StatusServiceUnavailable // with Compat any number is an option
	}
	w.WriteHeader(status)
}

// Hold waits for Options.ErrorResponseDelay, as Middleware does before a refusal,
// for a caller that writes refusals itself. It returns at once if there is no
// delay or MaxDelayedResponses wait already, and early when ctx ends or the
// limiter is closed.
func (l *Limiter) Hold(ctx context.Context) {
	if l.settings.delay == 0 {
		return
	}
	defer l.delayed.Add(-1)
	if l.delayed.Add(1) > MaxDelayedResponses {
		return
	}
	timer := time.NewTimer(l.settings.delay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-l.closed:
	}
}
