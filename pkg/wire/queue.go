package wire

import (
	"fmt"
	"slices"
	"time"
	"unicode/utf8"
)

// Bounds of queue messages.
const (
	// MaxBudgetMS bounds every budget: one hour.
	MaxBudgetMS = 3_600_000
	// MaxKey is the greatest length of a bucket key in bytes.
	MaxKey = 128
	// MaxItems is the greatest number of items in one release.
	MaxItems = 2_000
	// MaxIDs is the greatest number of ids in one status message: what fits
	// into NATS' default payload of 1 MiB with room to spare.
	MaxIDs = 20_000
	// MaxParts is the greatest number of parts of one status.
	MaxParts = 64
)

// Kind is the kind of a bucket.
type Kind string

// KindGroup is the bucket of one client network; its key is the prefix in
// canonical text, such as 203.0.113.0/24. It is the only kind of this version.
const KindGroup Kind = "group"

// Bucket is what a request takes its place in: exactly one.
type Bucket struct {
	// Kind must be [KindGroup].
	Kind Kind `json:"kind"`
	// Key has 1 to [MaxKey] bytes of UTF-8 without control characters.
	Key string `json:"key"`
}

// Mode says how a request asks for a place.
type Mode string

// The modes of an [AdmitRequest].
const (
	// ModeWait takes a place or else waits in line; the default when empty.
	ModeWait Mode = "wait"
	// ModeNoWait takes a place or is rejected; it never waits.
	ModeNoWait Mode = "nowait"
	// ModeHeld asserts a place that the edge holds already and the store does
	// not know (it lost its tables, or the edge had to let the request pass).
	// It is admitted without regard to the limit.
	ModeHeld Mode = "held"
)

// AdmitRequest asks for a place. It is idempotent on RequestID: asked again it
// returns the decision in force.
type AdmitRequest struct {
	RequestID RequestID `json:"request_id"`
	Bucket    Bucket    `json:"bucket"`
	Mode      Mode      `json:"mode,omitempty"`
	// BudgetMS is the time in milliseconds that the edge still waits for the
	// reply when it sends this, 1 to [MaxBudgetMS]. It is relative, since
	// clocks differ.
	BudgetMS int64 `json:"budget_ms"`
}

// Decision is the answer to an [AdmitRequest].
type Decision string

// The decisions.
const (
	// Admitted means that the request holds a place.
	Admitted Decision = "admitted"
	// Queued means that the request waits in line and is told by a
	// [Promoted] message.
	Queued Decision = "queued"
	// Rejected means that the line is full, or that the mode forbids waiting.
	Rejected Decision = "rejected"
)

// Limits are the coordinator's caps, for an edge that must fall back to
// counting alone.
type Limits struct {
	// MaxServed is the number of requests of one bucket at the origin at once.
	MaxServed int `json:"max_served"`
	// MaxPending is the number of requests of one bucket that may wait.
	MaxPending int `json:"max_pending"`
}

// By says who answered.
type By struct {
	// Coordinator is the id of the coordinator, for [OwnSubject]; empty if it
	// takes no questions of its own.
	Coordinator string `json:"by,omitempty"`
}

// AnsweredBy returns the id of the coordinator.
func (b By) AnsweredBy() string { return b.Coordinator }

// validate refuses what would change the subject that it becomes a part of.
func (b By) validate() error {
	if b.Coordinator == "" {
		return nil
	}
	if err := CheckEdgeID(b.Coordinator); err != nil {
		return fmt.Errorf("by: the coordinator's id: %w", err)
	}
	return nil
}

// AdmitReply is the decision in force for one request.
type AdmitReply struct {
	By
	Decision Decision `json:"decision"`
	// RetryAfterMS is the advice for a client that is refused, in
	// milliseconds; 0 unless rejected.
	RetryAfterMS int64 `json:"retry_after_ms,omitempty"`
	// FullForMS is how long, in milliseconds, the edge may refuse this bucket
	// by itself; 0 when that is not known.
	FullForMS int64  `json:"full_for_ms,omitempty"`
	Limits    Limits `json:"limits"`
}

// Item names one request and its bucket.
type Item struct {
	RequestID RequestID `json:"request_id"`
	Bucket    Bucket    `json:"bucket"`
}

// ReleaseRequest gives places back. Releasing what is not held has no effect.
type ReleaseRequest struct {
	// Items has 1 to [MaxItems] entries.
	Items []Item `json:"items"`
}

// ReleaseReply acknowledges a release.
type ReleaseReply struct{ By }

// CancelRequest takes back a request that waits. A request that was promoted
// in the meantime keeps its place: the edge uses or releases it.
type CancelRequest struct {
	RequestID RequestID `json:"request_id"`
	Bucket    Bucket    `json:"bucket"`
}

// Was says what a cancelled request had been.
type Was string

// What a cancel can find.
const (
	// WasPending means that the request waited and no longer does.
	WasPending Was = "pending"
	// WasActive means that the request holds a place, and keeps it.
	WasActive Was = "active"
	// WasGone means that the store does not know the request.
	WasGone Was = "gone"
)

// CancelReply says what the request was.
type CancelReply struct {
	By
	Was Was `json:"was"`
}

// StatusRequest is sent by each edge every second, and oftener while requests
// wait. It renews the edge's lease, asks about waiting requests, and lists all
// that the edge has, so that the store can free what the edge does not know.
type StatusRequest struct {
	// Epoch grows with every status of one edge; an older one that arrives
	// late frees nothing.
	Epoch int64 `json:"epoch"`
	// LeaseMS is how long the edge's places outlive its last message, in
	// milliseconds; 0 means the coordinator's default.
	LeaseMS int64 `json:"lease_ms,omitempty"`
	// StaleMS is the age in milliseconds from which a request of this edge
	// that is not listed is freed: twice the admit timeout. 0 frees nothing.
	StaleMS int64 `json:"stale_ms,omitempty"`
	// Part and Parts split an edge's ids over several messages by
	// [RequestID.Part]. Parts 0 means 1.
	Part  int `json:"part,omitempty"`
	Parts int `json:"parts,omitempty"`
	// Waiting and Active have at most [MaxIDs] entries together.
	Waiting []RequestID `json:"waiting"`
	Active  []RequestID `json:"active"`
}

// StatusReply says how the store differs from what the edge listed.
type StatusReply struct {
	By
	// Promoted are listed as waiting and hold a place.
	Promoted []RequestID `json:"promoted"`
	// Unknown are listed, as waiting or active, and not in the store: the edge
	// asks anew for the waiting ones, and asserts the active ones
	// ([ModeHeld]).
	Unknown []RequestID `json:"unknown"`
}

// Promoted tells an edge that requests of its which waited hold a place now.
type Promoted struct {
	RequestIDs []RequestID `json:"request_ids"`
	// AgeUS is how long ago, in microseconds, the coordinator received the
	// message that freed the first of these places; 0 when no message did.
	AgeUS int64 `json:"age_us,omitempty"`
}

// Validate checks the bounds stated at the fields.
func (b Bucket) Validate() error {
	if b.Kind != KindGroup {
		return fmt.Errorf("bucket kind %q is not known", clip([]byte(b.Kind)))
	}
	if b.Key == "" || len(b.Key) > MaxKey || !utf8.ValidString(b.Key) {
		return fmt.Errorf("bucket key %q is not 1 to %d bytes of UTF-8", clip([]byte(b.Key)), MaxKey)
	}
	for i := range len(b.Key) {
		if b.Key[i] < 0x20 || b.Key[i] == 0x7f {
			return fmt.Errorf("bucket key %q has a control character", b.Key)
		}
	}
	return nil
}

// Budget returns BudgetMS as a duration.
func (m AdmitRequest) Budget() time.Duration { return time.Duration(m.BudgetMS) * time.Millisecond }

// Validate checks the bounds stated at the fields.
func (m AdmitRequest) Validate() error {
	switch m.Mode {
	case "", ModeWait, ModeNoWait, ModeHeld:
	default:
		return fmt.Errorf("mode %q is not known", clip([]byte(m.Mode)))
	}
	if m.BudgetMS < 1 || m.BudgetMS > MaxBudgetMS {
		return fmt.Errorf("budget_ms %d is not in 1..%d", m.BudgetMS, MaxBudgetMS)
	}
	return Item{m.RequestID, m.Bucket}.Validate()
}

// Validate checks that the reply is one of the known decisions.
func (m AdmitReply) Validate() error {
	switch m.Decision {
	case Admitted, Queued, Rejected:
	default:
		return fmt.Errorf("decision %q is not known", clip([]byte(m.Decision)))
	}
	if m.FullForMS < 0 || m.RetryAfterMS < 0 || m.FullForMS > MaxBudgetMS || m.RetryAfterMS > MaxBudgetMS {
		return fmt.Errorf("full_for_ms %d or retry_after_ms %d is not in 0..%d", m.FullForMS, m.RetryAfterMS, MaxBudgetMS)
	}
	if m.Limits.MaxServed < 0 || m.Limits.MaxPending < 0 {
		return fmt.Errorf("limits %d and %d: one is negative", m.Limits.MaxServed, m.Limits.MaxPending)
	}
	return m.validate()
}

// Validate checks the bounds stated at the fields.
func (m Item) Validate() error {
	if m.RequestID == (RequestID{}) {
		return fmt.Errorf("request_id is missing")
	}
	return m.Bucket.Validate()
}

// Validate checks the bounds stated at the fields.
func (m ReleaseRequest) Validate() error {
	if len(m.Items) < 1 || len(m.Items) > MaxItems {
		return fmt.Errorf("items has %d entries, not 1..%d", len(m.Items), MaxItems)
	}
	for i, item := range m.Items {
		if err := item.Validate(); err != nil {
			return fmt.Errorf("items[%d]: %w", i, err)
		}
	}
	return nil
}

// Validate checks the bounds of its fields.
func (m ReleaseReply) Validate() error { return m.validate() }

// Validate checks the bounds stated at the fields.
func (m CancelRequest) Validate() error { return Item(m).Validate() }

// Validate checks that Was is known.
func (m CancelReply) Validate() error {
	switch m.Was {
	case WasPending, WasActive, WasGone:
		return m.validate()
	}
	return fmt.Errorf("was %q is not known", clip([]byte(m.Was)))
}

// Validate checks the bounds stated at the fields.
func (m StatusRequest) Validate() error {
	if m.Epoch < 1 {
		return fmt.Errorf("epoch %d is not positive", m.Epoch)
	}
	if m.LeaseMS < 0 || m.LeaseMS > MaxBudgetMS {
		return fmt.Errorf("lease_ms %d is not in 0..%d", m.LeaseMS, MaxBudgetMS)
	}
	if m.StaleMS < 0 || m.StaleMS > 2*MaxBudgetMS {
		return fmt.Errorf("stale_ms %d is not in 0..%d", m.StaleMS, 2*MaxBudgetMS)
	}
	if m.Parts < 0 || m.Parts > MaxParts || m.Part < 0 || m.Part >= max(m.Parts, 1) {
		return fmt.Errorf("part %d of parts %d is not possible", m.Part, m.Parts)
	}
	return checkIDs(m.Waiting, m.Active)
}

// Validate checks that there are not more ids than a request can list.
func (m StatusReply) Validate() error {
	if err := m.validate(); err != nil {
		return err
	}
	return checkIDs(m.Promoted, m.Unknown)
}

// Validate checks the age, and that there are not more ids than a status can
// list.
func (m Promoted) Validate() error {
	if m.AgeUS < 0 || m.AgeUS > MaxBudgetMS*1000 {
		return fmt.Errorf("age_us %d is not in 0..%d", m.AgeUS, MaxBudgetMS*1000)
	}
	return checkIDs(m.RequestIDs)
}

// checkIDs bounds lists together, and refuses what is no id: JSON's null comes
// out as the zero one.
func checkIDs(lists ...[]RequestID) error {
	n := 0
	for _, ids := range lists {
		n += len(ids)
		if slices.Contains(ids, RequestID{}) {
			return fmt.Errorf("a request id is missing")
		}
	}
	if n > MaxIDs {
		return fmt.Errorf("%d ids are more than %d", n, MaxIDs)
	}
	return nil
}
