package wire

import (
	"fmt"
	"net/url"
	"strings"
)

const (
	// SubjectPurge tells every edge to remove responses from its cache:
	// [PurgeRequest] → one [PurgeReply] of each edge.
	SubjectPurge = "ccnq.v1.cache.purge"
	// SubjectPurged is where the answers go: followed by a token of the purge
	// and the id of the edge.
	SubjectPurged = "ccnq.v1.cache.purged"
	// StreamPurges keeps the purges for a day, for edges that are away.
	StreamPurges = "CCNQ_PURGES"
)

const (
	// MaxPurges is the greatest number of targets in one purge.
	MaxPurges = 100
	// MaxPurgeTarget is the greatest length of one target in bytes.
	MaxPurgeTarget = 8 << 10
)

// PurgeScope is what a purge removes.
type PurgeScope string

// The scopes.
const (
	// PurgeURL removes one resource, with all its variants.
	PurgeURL PurgeScope = "url"
	// PurgePrefix removes all resources whose URL begins so.
	PurgePrefix PurgeScope = "prefix"
	// PurgeHost removes all resources of a host.
	PurgeHost PurgeScope = "host"
)

// PurgeTarget is one thing to remove.
type PurgeTarget struct {
	Scope PurgeScope `json:"scope"`
	// Target is an absolute http or https URL, or for PurgeHost a host name or
	// address with its port, which must not be 80 or 443: the default is left out. The scheme does not
	// matter otherwise. Path and query are compared byte by byte, in the form in
	// which clients send them.
	Target string `json:"target"`
}

// PurgeRequest removes responses. Those that were asked for before and arrive
// later are not stored either.
type PurgeRequest struct {
	// ID names the purge, 1 to 64 of the characters of an edge's id: the same id
	// is the same purge.
	ID      string        `json:"id"`
	Targets []PurgeTarget `json:"targets"`
	// By is the operator's word for himself.
	By string `json:"by,omitempty"`
}

// PurgeReply is the answer of one edge.
type PurgeReply struct {
	// Warning says what is not as it should be; the purge is in effect all the
	// same.
	Warning string `json:"warning,omitempty"`
}

// Validate checks the bounds stated at the fields.
func (m PurgeRequest) Validate() error {
	if err := CheckEdgeID(m.ID); err != nil {
		return fmt.Errorf("id: %w", err)
	}
	if len(m.Targets) == 0 || len(m.Targets) > MaxPurges {
		return fmt.Errorf("targets has %d entries, not 1..%d", len(m.Targets), MaxPurges)
	}
	for i, t := range m.Targets {
		if _, _, err := t.Resources(); err != nil {
			return fmt.Errorf("targets[%d]: %w", i, err)
		}
	}
	return checkWords(m.By)
}

// Validate checks the length of the warning.
func (m PurgeReply) Validate() error { return checkWords(m.Warning) }

// Resources returns the name of the resource that the target is, host and
// request target in one, or with prefix what the names of its resources begin
// with. The error says what is wrong with the target.
func (t PurgeTarget) Resources() (name string, prefix bool, err error) {
	if t.Target == "" || len(t.Target) > MaxPurgeTarget {
		return "", false, fmt.Errorf("target has %d bytes, not 1..%d", len(t.Target), MaxPurgeTarget)
	}
	for i := range len(t.Target) {
		if t.Target[i] <= ' ' || t.Target[i] == 0x7f {
			return "", false, fmt.Errorf("target %q has a blank or a control character", clip([]byte(t.Target)))
		}
	}
	switch t.Scope {
	case PurgeHost:
		host, ok := purgeHost("", t.Target)
		if !ok {
			return "", false, fmt.Errorf("target %q is not a host", clip([]byte(t.Target)))
		}
		if strings.HasSuffix(host, ":80") || strings.HasSuffix(host, ":443") {
			return "", false, fmt.Errorf("target %q has the default port of a scheme: leave it out", clip([]byte(t.Target)))
		}
		return host + "/", true, nil
	case PurgeURL, PurgePrefix:
	default:
		return "", false, fmt.Errorf("scope %q is not known", clip([]byte(t.Scope)))
	}
	scheme, rest, _ := strings.Cut(t.Target, "://")
	scheme = strings.ToLower(scheme)
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	host, ok := purgeHost(scheme, rest[:end])
	if !ok || scheme != "http" && scheme != "https" {
		return "", false, fmt.Errorf("target %q is not a URL such as https://example.org/a", clip([]byte(t.Target)))
	}
	path, _, _ := strings.Cut(rest[end:], "#")
	if !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	return host + path, t.Scope == PurgePrefix, nil
}

// purgeHost returns a host in lower case without its scheme's default port.
// Without a scheme no port is the default.
func purgeHost(scheme, text string) (string, bool) {
	u, err := url.Parse("//" + text)
	if err != nil || u.Host != text || u.Hostname() == "" || strings.HasSuffix(text, ":") {
		return "", false
	}
	host := strings.ToLower(text)
	switch scheme {
	case "http":
		host = strings.TrimSuffix(host, ":80")
	case "https":
		host = strings.TrimSuffix(host, ":443")
	}
	return host, true
}
