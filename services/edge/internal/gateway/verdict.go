package gateway

import (
	"net/http"
	"time"
)

// Reason says in one word what became of a request. Logs, metrics and tests
// use the same word. The reasons of package admission are used as they are.
type Reason string

// Reasons of the gateway's own.
const (
	// Proxied went to the origin without being limited: out of every scope.
	Proxied Reason = "proxied"
	// Allowlisted went to the origin because its address is on the list.
	Allowlisted Reason = "allowlisted"
	// Hit was answered by the cache.
	Hit Reason = "hit"
	// Stale was answered by the cache with what is stale and may be used so.
	Stale Reason = "stale"
	// Collapsed was answered with the origin's answer to another request.
	Collapsed Reason = "collapsed"
	// NotCached asked for what is stored (only-if-cached), and nothing is.
	NotCached Reason = "not-cached"
	// OriginTimeout and OriginUnreachable waited for a fetch that others shared,
	// and that failed.
	OriginTimeout     Reason = "origin-timeout"
	OriginUnreachable Reason = "origin-unreachable"
	// WouldDeny went to the origin in monitor mode and would have been refused
	// otherwise.
	WouldDeny Reason = "would-deny"
	// Blocked is on the denylist, by its address or its network.
	Blocked Reason = "blocked"
	// Throttled is above a load-aware limit.
	Throttled Reason = "qos"
	// BadRequest is malformed, or asks for what a reverse proxy does not do.
	BadRequest Reason = "bad-request"
)

// Verdict is what a stage decides. The zero value lets the request go on.
type Verdict struct {
	// Reason ends the request's way when it is set.
	Reason Reason
	// Status is what the client is answered; 0 when there is nobody to answer,
	// or when the stage has answered by itself.
	Status int
	// RetryAfter is told to the client when it is positive.
	RetryAfter time.Duration
	// Close ends the connection with the answer.
	Close bool
	// Abort cuts the connection: there is nobody to answer, or the answer broke
	// off.
	Abort bool
}

// goOn lets a request pass to the next stage.
var goOn = Verdict{}

func refuse(reason Reason, status int, retryAfter time.Duration) Verdict {
	return Verdict{Reason: reason, Status: status, RetryAfter: retryAfter}
}

// answered ends the way of a request whose answer is written, or needs none.
func answered(reason Reason) Verdict { return Verdict{Reason: reason} }

// abort ends the way of a request whose connection is to be cut.
func abort(reason Reason) Verdict { return Verdict{Reason: reason, Abort: true} }

// badRequest is the verdict on what no stage can handle.
func badRequest() Verdict { return refuse(BadRequest, http.StatusBadRequest, 0) }
