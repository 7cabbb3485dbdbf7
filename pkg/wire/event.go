package wire

import (
	"fmt"
	"net/netip"
	"strings"
	"time"
	"unicode/utf8"
)

// Subjects of events. Whoever subscribes to SubjectEvents sees everything.
const (
	SubjectEvents = "ccnq.v1.events.>"
	// SubjectDenied is completed by a [DenialReason] and the id of an edge.
	SubjectDenied = "ccnq.v1.events.denied.%s.%s"
	// SubjectWouldDeny likewise, for what monitor mode let pass.
	SubjectWouldDeny = "ccnq.v1.events.would-deny.%s.%s"
	// SubjectBlocked, SubjectUnblocked and SubjectWouldBlock are completed by
	// a [Scope].
	SubjectBlocked    = "ccnq.v1.events.blocked.%s"
	SubjectUnblocked  = "ccnq.v1.events.unblocked.%s"
	SubjectWouldBlock = "ccnq.v1.events.would-block.%s"
	// SubjectStreamReset tells that the projection began anew.
	SubjectStreamReset = "ccnq.v1.events.stream-reset"
)

// Streams that hold events.
const (
	// StreamEvents holds what blocks are made of, and the blocks.
	StreamEvents = "CCNQ_EVENTS"
	// StreamRefusals holds the rest, for a day.
	StreamRefusals = "CCNQ_REFUSALS"
)

// Types of events, as CloudEvents name them.
const (
	TypeDenied      = "ccnq.v1.denied"
	TypeWouldDeny   = "ccnq.v1.would-deny"
	TypeBlocked     = "ccnq.v1.blocked"
	TypeUnblocked   = "ccnq.v1.unblocked"
	TypeWouldBlock  = "ccnq.v1.would-block"
	TypeStreamReset = "ccnq.v1.stream-reset"
)

// Bounds of events.
const (
	// MaxAddresses is the greatest number of addresses in one denied event.
	MaxAddresses = 1_000
	// MaxDeniedBytes is the greatest size of a denied event in bytes.
	MaxDeniedBytes = 256 << 10
	// MaxPath is the greatest length of a path in an event, in bytes.
	MaxPath = 256
	// MaxWords bounds an operator's name or reason, in bytes.
	MaxWords = 256
	// maxID bounds ids and sources of events.
	maxID = 256
)

// DenialReason is why requests were refused.
type DenialReason string

// The reasons. DeniedByQoSCounted is DeniedByQoS at an edge that is told to make
// it count (CCNQ_QOS_FEEDS_DENYLIST).
const (
	DeniedQueueFull    DenialReason = "queue-full"
	DeniedQueueTimeout DenialReason = "queue-timeout"
	DeniedByDenylist   DenialReason = "denylist"
	DeniedByQoS        DenialReason = "qos"
	DeniedByQoSCounted DenialReason = "qos-counted"
)

// Counts reports whether denials of this reason count towards blocks.
func (r DenialReason) Counts() bool {
	return r == DeniedQueueFull || r == DeniedQueueTimeout || r == DeniedByQoSCounted
}

// Scope is what a block is on.
type Scope string

// The scopes.
const (
	ScopeIP    Scope = "ip"
	ScopeRange Scope = "range"
)

// Event is a CloudEvent of version 1.0 in JSON.
type Event[D Message] struct {
	SpecVersion string `json:"specversion"`
	// ID is unique for the source; the same event sent again has the same id.
	ID string `json:"id"`
	// Source is /ccnq/edge/<edge id> or /ccnq/denylist.
	Source string `json:"source"`
	Type   string `json:"type"`
	// Subject is the reason of a denial, or the address or range of a block.
	Subject         string    `json:"subject,omitempty"`
	Time            time.Time `json:"time"`
	DataContentType string    `json:"datacontenttype"`
	Data            D         `json:"data"`
}

// NewEvent returns an event of now.
func NewEvent[D Message](id, source, typ, subject string, at time.Time, data D) Event[D] {
	return Event[D]{
		SpecVersion: "1.0", ID: id, Source: source, Type: typ, Subject: subject,
		Time: at.UTC(), DataContentType: "application/json", Data: data,
	}
}

// EdgeSource is the source of an edge's events; DenylistSource that of the
// denylist service's.
func EdgeSource(edgeID string) string { return "/ccnq/edge/" + edgeID }

// DenylistSource is the source of the events of the denylist service.
const DenylistSource = "/ccnq/denylist"

// Validate checks the attributes that CloudEvents requires, and the data.
func (e Event[D]) Validate() error {
	switch {
	case e.SpecVersion != "1.0":
		return fmt.Errorf("specversion %q is not 1.0", clip([]byte(e.SpecVersion)))
	case e.ID == "" || len(e.ID) > maxID:
		return fmt.Errorf("id has %d bytes, not 1..%d", len(e.ID), maxID)
	case e.Source == "" || len(e.Source) > maxID:
		return fmt.Errorf("source has %d bytes, not 1..%d", len(e.Source), maxID)
	case !strings.HasPrefix(e.Type, "ccnq.v1."):
		return fmt.Errorf("type %q is not known", clip([]byte(e.Type)))
	case e.Time.IsZero():
		return fmt.Errorf("time is missing")
	}
	if err := e.Data.Validate(); err != nil {
		return fmt.Errorf("data: %w", err)
	}
	return nil
}

// Denied is the data of denied and would-deny events: the requests of one
// interval at one edge that were refused for one reason, by address.
type Denied struct {
	// OutboxID and Seq name the record in the edge's outbox: the same pair is
	// the same record, however often it is sent. Seq grows from 1.
	OutboxID string       `json:"outbox_id"`
	Seq      uint64       `json:"seq"`
	Reason   DenialReason `json:"reason"`
	// Addresses has 1 to [MaxAddresses] entries, each address once.
	Addresses []DeniedAddress `json:"addresses"`
}

// DeniedAddress sums up the refused requests of one address.
type DeniedAddress struct {
	IP netip.Addr `json:"ip"`
	// Group is the network that the edge puts the address into.
	Group netip.Prefix `json:"ip_group"`
	// Count is at least 1.
	Count int `json:"count"`
	// First and Last are the times of the first and the last request, on one
	// day in UTC.
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
	// Path is one of the paths, without the query, [MaxPath] bytes at most.
	Path string `json:"path,omitempty"`
}

// Validate checks the bounds stated at the fields.
func (d Denied) Validate() error {
	switch d.Reason {
	case DeniedQueueFull, DeniedQueueTimeout, DeniedByDenylist, DeniedByQoS, DeniedByQoSCounted:
	default:
		return fmt.Errorf("reason %q is not known", clip([]byte(d.Reason)))
	}
	if d.OutboxID == "" || len(d.OutboxID) > MaxEdgeID || d.Seq == 0 || d.Seq > 1<<62 {
		return fmt.Errorf("outbox_id %q or seq %d is not valid", clip([]byte(d.OutboxID)), d.Seq)
	}
	if n := len(d.Addresses); n < 1 || n > MaxAddresses {
		return fmt.Errorf("addresses has %d entries, not 1..%d", n, MaxAddresses)
	}
	for i, a := range d.Addresses {
		if err := a.validate(); err != nil {
			return fmt.Errorf("addresses[%d]: %w", i, err)
		}
	}
	return nil
}

func (a DeniedAddress) validate() error {
	switch {
	case !a.IP.IsValid() || a.IP.Is4In6() || a.IP.Zone() != "":
		return fmt.Errorf("ip %q is not a plain address", a.IP)
	case !a.Group.IsValid() || a.Group != a.Group.Masked() || !a.Group.Contains(a.IP):
		return fmt.Errorf("ip_group %q does not hold %s", a.Group, a.IP)
	case a.Count < 1 || a.Count > 1<<30:
		return fmt.Errorf("count %d is not in 1..%d", a.Count, 1<<30)
	case a.First.IsZero() || a.Last.Before(a.First):
		return fmt.Errorf("last is before first")
	case a.First.UTC().Truncate(24*time.Hour) != a.Last.UTC().Truncate(24*time.Hour):
		return fmt.Errorf("first and last are not on one day in UTC")
	case len(a.Path) > MaxPath || !utf8.ValidString(a.Path):
		return fmt.Errorf("path is not up to %d bytes of UTF-8", MaxPath)
	}
	return nil
}

// BlockChange is the data of blocked, unblocked and would-block events.
type BlockChange struct {
	Scope Scope `json:"scope"`
	// Target is the address or the range in canonical text.
	Target string `json:"target"`
	// BlockedUntil is when the block ends; of an unblocked event, when it did.
	BlockedUntil time.Time `json:"blocked_until"`
	// Since is when the block began.
	Since time.Time `json:"since"`
	// Version grows with every change of any block.
	Version int64 `json:"version"`
	// Reason is denials, or an operator's words.
	Reason string `json:"reason,omitempty"`
	// By is who changed it: the service, or an operator.
	By string `json:"by,omitempty"`
	// KeepCounts of an unblocked event says that the denials before it still
	// count.
	KeepCounts bool `json:"keep_counts,omitempty"`
}

// Validate checks the bounds stated at the fields.
func (b BlockChange) Validate() error {
	if _, err := ParseTarget(b.Scope, b.Target); err != nil {
		return err
	}
	if b.Version < 1 {
		return fmt.Errorf("version %d is not positive", b.Version)
	}
	return checkWords(b.Reason, b.By)
}

// StreamReset is the data of a stream-reset event.
type StreamReset struct {
	// Created is when the stream that is read from now on was made.
	Created time.Time `json:"created"`
	// Why says how the old stream is known to be gone.
	Why string `json:"why"`
}

// Validate checks the words.
func (s StreamReset) Validate() error { return checkWords(s.Why) }

// ParseTarget reads the canonical text of what a block is on; an address comes
// back as the prefix of its full length.
func ParseTarget(scope Scope, target string) (netip.Prefix, error) {
	var p netip.Prefix
	switch scope {
	case ScopeIP:
		addr, err := netip.ParseAddr(target)
		if err != nil || addr.Zone() != "" || addr.Is4In6() || addr.String() != target {
			return p, fmt.Errorf("%q is not an address in canonical text", clip([]byte(target)))
		}
		return netip.PrefixFrom(addr, addr.BitLen()), nil
	case ScopeRange:
		p, err := netip.ParsePrefix(target)
		if err != nil || p.Masked() != p || p.Addr().Is4In6() || p.String() != target {
			return p, fmt.Errorf("%q is not a range in canonical text", clip([]byte(target)))
		}
		return p, nil
	}
	return p, fmt.Errorf("scope %q is not known", clip([]byte(scope)))
}

func checkWords(words ...string) error {
	for _, w := range words {
		if len(w) > MaxWords || !utf8.ValidString(w) {
			return fmt.Errorf("%q is not up to %d bytes of UTF-8", clip([]byte(w)), MaxWords)
		}
	}
	return nil
}
