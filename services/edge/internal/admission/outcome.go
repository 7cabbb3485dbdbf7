package admission

import "time"

// Reason says in one word how the queue decided. Logs, metrics and tests use
// the same word.
type Reason string

// The reasons of an [Outcome].
const (
	// Admitted took a free place at once.
	Admitted Reason = "admitted"
	// Promoted took a place after waiting.
	Promoted Reason = "promoted"
	// WouldWait passes in monitor mode where it would have had to wait.
	WouldWait Reason = "would-wait"
	// Local took a place counted by this edge alone.
	Local Reason = "local"
	// FailOpen passes because nobody could decide.
	FailOpen Reason = "fail-open"
	// QueueFull is refused, or would be: all places and the line are taken.
	QueueFull Reason = "queue-full"
	// QueueTimeout is refused: it waited for the pending timeout.
	QueueTimeout Reason = "queue-timeout"
	// ClientGone left while waiting; nobody is there to be answered.
	ClientGone Reason = "client-gone"
)

// Cause says why a request passed undecided.
type Cause string

// The causes of [FailOpen].
const (
	CauseBreakerOpen  Cause = "breaker-open"
	CauseBusy         Cause = "busy"
	CauseDisconnected Cause = "disconnected"
	CauseError        Cause = "error"
	CauseForgotten    Cause = "forgotten"
	CauseNoResponders Cause = "no-responders"
	CauseTimeout      Cause = "timeout"
	CauseUnavailable  Cause = "unavailable"
)

// Outcome is the queue's decision on one request.
type Outcome struct {
	Reason Reason
	// Cause is set for [FailOpen] alone.
	Cause Cause
	// Pass says that the request goes on. In monitor mode it does whatever the
	// reason.
	Pass bool
	// RetryAfter is the advice for a client that is refused.
	RetryAfter time.Duration
	// Waited is the time spent in line.
	Waited time.Duration
}
