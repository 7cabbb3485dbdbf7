package wire

import (
	"fmt"
	"net/netip"
	"time"
)

// Subjects of the denylist service's requests.
const (
	// SubjectBlock blocks an address or range: [BlockRequest] → [BlockReply].
	SubjectBlock = "ccnq.v1.denylist.block"
	// SubjectUnblock lifts a block: [UnblockRequest] → [UnblockReply].
	SubjectUnblock = "ccnq.v1.denylist.unblock"
	// SubjectList lists blocks: [ListRequest] → [ListReply].
	SubjectList = "ccnq.v1.denylist.list"
	// SubjectExplain says why an address is refused: [ExplainRequest] →
	// [ExplainReply].
	SubjectExplain = "ccnq.v1.denylist.explain"
	// SubjectRebuild makes the tables anew from the stream: [RebuildRequest] →
	// [RebuildReply].
	SubjectRebuild = "ccnq.v1.denylist.rebuild"
)

// Bounds of the denylist's requests.
const (
	// MaxBlock is the longest block: ten years.
	MaxBlock = 10 * 365 * 24 * time.Hour
	// MaxList is the greatest number of blocks in one reply.
	MaxList = 1_000
)

// BlockRequest blocks an address or a range. A block in force is extended, never
// shortened: to shorten one, lift it first.
type BlockRequest struct {
	// Target is an address or a CIDR range.
	Target string `json:"target"`
	// Seconds is the duration from now, 1 to [MaxBlock].
	Seconds int64 `json:"seconds"`
	// Reason and By are the operator's words.
	Reason string `json:"reason,omitempty"`
	By     string `json:"by,omitempty"`
	// Force allows a block that covers a trusted proxy or very many addresses.
	Force bool `json:"force,omitempty"`
}

// BlockReply tells the block in force.
type BlockReply struct {
	Scope        Scope     `json:"scope"`
	Target       string    `json:"target"`
	BlockedUntil time.Time `json:"blocked_until"`
	Version      int64     `json:"version"`
	// Warning is for the operator, such as that no edge enforces blocks now.
	Warning string `json:"warning,omitempty"`
}

// UnblockRequest lifts the block on exactly this address or range.
type UnblockRequest struct {
	Target string `json:"target"`
	Reason string `json:"reason,omitempty"`
	By     string `json:"by,omitempty"`
	// KeepCounts keeps the denials before now, so that the next one blocks
	// again; by default they are forgiven.
	KeepCounts bool `json:"keep_counts,omitempty"`
}

// UnblockReply tells what was lifted.
type UnblockReply struct {
	// Lifted is false if there was no such block in force.
	Lifted bool `json:"lifted"`
	// Forgiven is the number of day counts that were removed.
	Forgiven int `json:"forgiven"`
	// StillBlockedBy lists other blocks that hold the target.
	StillBlockedBy []string `json:"still_blocked_by,omitempty"`
	// Warning is for the operator, such as that the lift does not outlive a
	// restart.
	Warning string `json:"warning,omitempty"`
}

// ListRequest asks for blocks in the order of their targets.
type ListRequest struct {
	// Scope limits the list; empty is both.
	Scope Scope `json:"scope,omitempty"`
	// After continues behind a previous reply's Next.
	After string `json:"after,omitempty"`
	// Limit is 1 to [MaxList]; 0 is 100.
	Limit int `json:"limit,omitempty"`
	// Expired includes blocks that are over.
	Expired bool `json:"expired,omitempty"`
}

// ListReply is one page.
type ListReply struct {
	Blocks []BlockChange `json:"blocks"`
	// Next is empty on the last page.
	Next string `json:"next,omitempty"`
}

// ExplainRequest asks about one address.
type ExplainRequest struct {
	IP netip.Addr `json:"ip"`
}

// ExplainReply lists every block that holds the address, and what was counted.
type ExplainReply struct {
	// Blocked says whether any block is in force.
	Blocked bool `json:"blocked"`
	// BlockedUntil is the latest end.
	BlockedUntil time.Time     `json:"blocked_until,omitzero"`
	Blocks       []BlockChange `json:"blocks"`
	Days         []DenialDay   `json:"days"`
	// Warning is for the operator, such as that no edge enforces blocks now, or
	// none for this address.
	Warning string `json:"warning,omitempty"`
}

// DenialDay is one address's denials of one day in UTC.
type DenialDay struct {
	IP    netip.Addr `json:"ip"`
	Group string     `json:"ip_group"`
	Day   string     `json:"day"`
	Count int64      `json:"count"`
	// FirstSeq and LastSeq are places in the event stream.
	FirstSeq uint64 `json:"first_seq"`
	LastSeq  uint64 `json:"last_seq"`
	// Samples are some of the denials.
	Samples []DenialSample `json:"samples,omitempty"`
}

// DenialSample is one counted denial.
type DenialSample struct {
	At     time.Time    `json:"at"`
	Reason DenialReason `json:"reason"`
	Path   string       `json:"path,omitempty"`
	Edge   string       `json:"edge,omitempty"`
}

// RebuildRequest asks to make the tables anew.
type RebuildRequest struct {
	By string `json:"by,omitempty"`
}

// RebuildReply tells that a rebuild has begun.
type RebuildReply struct {
	// Events is the number of events that will be read.
	Events uint64 `json:"events"`
}

// ParseTargetText reads an address or a range in any usual text, unmapped and
// masked, and returns its scope and canonical text.
func ParseTargetText(text string) (Scope, netip.Prefix, error) {
	if addr, err := netip.ParseAddr(text); err == nil && addr.Zone() == "" {
		addr = addr.Unmap()
		return ScopeIP, netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return "", p, fmt.Errorf("target %q is neither an address nor a CIDR range", clip([]byte(text)))
	}
	if p.Addr().Is4In6() {
		if p.Bits() < 96 {
			return "", p, fmt.Errorf("target %q is an IPv4-mapped range shorter than /96", clip([]byte(text)))
		}
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	p = p.Masked()
	if p.IsSingleIP() {
		return ScopeIP, p, nil
	}
	return ScopeRange, p, nil
}

// TargetText is the canonical text of a target.
func TargetText(scope Scope, p netip.Prefix) string {
	if scope == ScopeIP {
		return p.Addr().String()
	}
	return p.String()
}

// Validate checks the bounds stated at the fields.
func (m BlockRequest) Validate() error {
	if _, _, err := ParseTargetText(m.Target); err != nil {
		return err
	}
	if m.Seconds < 1 || m.Seconds > int64(MaxBlock/time.Second) {
		return fmt.Errorf("seconds %d is not in 1..%d", m.Seconds, int64(MaxBlock/time.Second))
	}
	return checkWords(m.Reason, m.By)
}

// Validate accepts every reply with a version.
func (m BlockReply) Validate() error { return nil }

// Validate checks the target and the words.
func (m UnblockRequest) Validate() error {
	if _, _, err := ParseTargetText(m.Target); err != nil {
		return err
	}
	return checkWords(m.Reason, m.By)
}

// Validate accepts every reply.
func (m UnblockReply) Validate() error { return nil }

// Validate checks the bounds stated at the fields.
func (m ListRequest) Validate() error {
	switch m.Scope {
	case "", ScopeIP, ScopeRange:
	default:
		return fmt.Errorf("scope %q is not known", clip([]byte(m.Scope)))
	}
	if m.Limit < 0 || m.Limit > MaxList {
		return fmt.Errorf("limit %d is not in 0..%d", m.Limit, MaxList)
	}
	if len(m.After) > MaxKey {
		return fmt.Errorf("after has more than %d bytes", MaxKey)
	}
	return nil
}

// Validate checks the number of blocks.
func (m ListReply) Validate() error {
	if len(m.Blocks) > MaxList {
		return fmt.Errorf("%d blocks are more than %d", len(m.Blocks), MaxList)
	}
	return nil
}

// Validate checks the address.
func (m ExplainRequest) Validate() error {
	if !m.IP.IsValid() || m.IP.Zone() != "" {
		return fmt.Errorf("ip is missing, or has a zone")
	}
	return nil
}

// Validate accepts every reply.
func (m ExplainReply) Validate() error { return nil }

// Validate checks the words.
func (m RebuildRequest) Validate() error { return checkWords(m.By) }

// Validate accepts every reply.
func (m RebuildReply) Validate() error { return nil }
