package wire

import (
	"fmt"
	"net/netip"
	"strings"
	"time"
)

// Subjects of the load-aware limits that hold over all edges.
const (
	// SubjectQoSHits tells what one edge tracked: [QoSHits], stored in
	// [StreamQoSHits]. It ends in the id of an edge.
	SubjectQoSHits = "ccnq.v1.qos.hits.*"
	// SubjectQoSLists are the pieces of the blocklists, and the mark that says
	// which of them belong together; stored in [StreamQoSLists].
	SubjectQoSLists = "ccnq.v1.qos.lists.*"
	// SubjectQoSMark is where the [QoSMark] is, after the pieces.
	SubjectQoSMark = "ccnq.v1.qos.lists.mark"

	qosPiecePrefix = "ccnq.v1.qos.lists."
)

// Streams of the load-aware limits. The denylist service makes them, in memory:
// all that they hold is of a few seconds.
const (
	StreamQoSHits  = "CCNQ_QOS_HITS"
	StreamQoSLists = "CCNQ_QOS_LISTS"
	// StreamQoSLease is the stream of a KV bucket with one key, at
	// SubjectQoSLease: the [QoSLease] of the process that publishes the lists.
	StreamQoSLease  = "KV_CCNQ_QOS"
	SubjectQoSLease = "$KV.CCNQ_QOS.lease"
)

// Bounds of the messages of the load-aware limits.
const (
	// MaxQoSBytes is the size in bytes up to which a sender fills a message.
	MaxQoSBytes = 256 << 10
	// MaxQoSKeys is the greatest number of keys of one kind in a message.
	MaxQoSKeys = 50_000
	// MaxQoSKey is the greatest length of a key in bytes.
	MaxQoSKey = 256
	// MaxQoSPieces is the greatest number of pieces of the lists.
	MaxQoSPieces = 1_024
	// maxQoSCount bounds a number of requests.
	maxQoSCount = 1 << 40
	// maxWindowsAgo bounds QoSHits.UniqueWindowsAgo: older windows count no more.
	maxWindowsAgo = 1 << 20
)

// QoSPieceSubject is the subject of a piece of the lists, from 0.
func QoSPieceSubject(piece int) string { return fmt.Sprintf("%s%d", qosPiecePrefix, piece) }

// QoSHits is what one edge tracked since its last message, or a part of that. It
// counts in the window in which the stream takes it.
type QoSHits struct {
	// Source names one life of an edge, and Seq grows from 1 with each of its
	// messages: a reader skips what it has counted.
	Source string `json:"source"`
	Seq    uint64 `json:"seq"`
	// IPs, Subnets and Hosts have requests by key, each key once: an address, the
	// first address of a subnet, a host.
	IPs     QoSCounts `json:"ips,omitempty"`
	Subnets QoSCounts `json:"subnets,omitempty"`
	Hosts   QoSCounts `json:"hosts,omitempty"`
	// Total is the requests to all hosts, also to those that are not listed.
	Total int64 `json:"total,omitempty"`
	// UniqueIPs is how many addresses of a subnet the edge has tracked in one
	// window: that of the message, or the one UniqueWindowsAgo before.
	UniqueIPs        QoSCounts `json:"unique_ips,omitempty"`
	UniqueWindowsAgo int64     `json:"unique_windows_ago,omitempty"`
}

// Validate checks the bounds stated at the fields.
func (h QoSHits) Validate() error {
	switch {
	case h.Source == "" || len(h.Source) > MaxEdgeID:
		return fmt.Errorf("source has %d bytes, not 1..%d", len(h.Source), MaxEdgeID)
	case h.Seq < 1 || h.Seq > 1<<62:
		return fmt.Errorf("seq %d is not in 1..%d", h.Seq, uint64(1)<<62)
	case h.Total < 0 || h.Total > maxQoSCount:
		return fmt.Errorf("total %d is not in 0..%d", h.Total, int64(maxQoSCount))
	case h.UniqueWindowsAgo < 0 || h.UniqueWindowsAgo > maxWindowsAgo:
		return fmt.Errorf("unique_windows_ago %d is not in 0..%d", h.UniqueWindowsAgo, maxWindowsAgo)
	}
	if err := h.IPs.validate("ips", checkAddressKey); err != nil {
		return err
	}
	if err := h.Subnets.validate("subnets", checkAddressKey); err != nil {
		return err
	}
	if err := h.Hosts.validate("hosts", CheckQoSHost); err != nil {
		return err
	}
	return h.UniqueIPs.validate("unique_ips", checkAddressKey)
}

// QoSLists is one piece of the blocklists.
type QoSLists struct {
	// Term and Version name the lists that this is a piece of, see [QoSMark].
	Term    int64 `json:"term"`
	Version int64 `json:"version"`
	// IPs and Subnets are blocked, Hosts are in violation.
	IPs     []string `json:"ips,omitempty"`
	Subnets []string `json:"subnets,omitempty"`
	Hosts   []string `json:"hosts,omitempty"`
}

// Validate checks the bounds stated at the fields.
func (l QoSLists) Validate() error {
	if err := checkVersion(l.Term, l.Version); err != nil {
		return err
	}
	if err := checkKeys("ips", l.IPs, checkAddressKey); err != nil {
		return err
	}
	if err := checkKeys("subnets", l.Subnets, checkAddressKey); err != nil {
		return err
	}
	return checkKeys("hosts", l.Hosts, CheckQoSHost)
}

// QoSMark says which lists are in force. It is written anew every few seconds,
// after the pieces of the lists if they have changed.
type QoSMark struct {
	// Term grows with each process that publishes lists, Version with each change
	// within its time. Of two marks the one with the greater term, then with the
	// greater version, is newer.
	Term    int64 `json:"term"`
	Version int64 `json:"version"`
	// Pieces is how many pieces the lists have, 0 if they are empty.
	Pieces int `json:"pieces"`
	// Written is the service's time.
	Written time.Time `json:"written"`
}

// Validate checks the bounds stated at the fields.
func (m QoSMark) Validate() error {
	if m.Pieces < 0 || m.Pieces > MaxQoSPieces {
		return fmt.Errorf("pieces %d is not in 0..%d", m.Pieces, MaxQoSPieces)
	}
	return checkVersion(m.Term, m.Version)
}

// Newer reports whether m came after the other.
func (m QoSMark) Newer(other QoSMark) bool {
	if m.Term != other.Term {
		return m.Term > other.Term
	}
	return m.Version > other.Version
}

// QoSLease names the process that publishes the lists, for as long as the message
// lives.
type QoSLease struct {
	// Holder is empty when the lease was given back.
	Holder string `json:"holder"`
}

// Validate checks the name.
func (l QoSLease) Validate() error { return checkWords(l.Holder) }

func checkVersion(term, version int64) error {
	if term < 1 || version < 1 {
		return fmt.Errorf("term %d or version %d is not positive", term, version)
	}
	return nil
}

func checkKeys(name string, keys []string, check func(string) error) error {
	if len(keys) > MaxQoSKeys {
		return fmt.Errorf("%s has %d keys, more than %d", name, len(keys), MaxQoSKeys)
	}
	for _, key := range keys {
		if err := check(key); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// checkAddressKey takes an address in canonical text.
func checkAddressKey(key string) error {
	addr, err := netip.ParseAddr(key)
	if err == nil && addr.Zone() == "" {
		var canonical [64]byte
		if string(addr.AppendTo(canonical[:0])) == key {
			return nil
		}
	}
	return fmt.Errorf("key %q is not an address in canonical text", clip([]byte(key)))
}

// CheckQoSHost reports whether a host can be a key: 1 to [MaxQoSKey] bytes of what
// an HTTP server accepts in a Host header, without the ampersand, which JSON
// encoders may write in another way.
func CheckQoSHost(key string) error {
	if key == "" || len(key) > MaxQoSKey {
		return fmt.Errorf("a key has %d bytes, not 1..%d", len(key), MaxQoSKey)
	}
	for i := range len(key) {
		c := key[i]
		if c <= ' ' || c > '~' || strings.IndexByte(`"\<>&`, c) >= 0 {
			return fmt.Errorf("key %q is not a host", clip([]byte(key)))
		}
	}
	return nil
}
