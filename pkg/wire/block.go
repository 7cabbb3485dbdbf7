package wire

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"
	"time"
)

// The KV bucket of the blocks, as the stream behind it.
const (
	BucketBlocks = "CCNQ_BLOCKS"
	// StreamBlocks is the stream of the bucket.
	StreamBlocks = "KV_" + BucketBlocks
	// SubjectBlocks are the subjects of its keys.
	SubjectBlocks = "$KV." + BucketBlocks + ".>"
	// KeyMark is the key of the [Mark].
	KeyMark = "mark"

	blockPrefix = "$KV." + BucketBlocks + "."
)

// KVSubject is the subject of a key of the bucket.
func KVSubject(key string) string { return blockPrefix + key }

// KVKey is the key of a subject of the bucket, or "".
func KVKey(subject string) string {
	key, ok := strings.CutPrefix(subject, blockPrefix)
	if !ok {
		return ""
	}
	return key
}

// BlockKey is the key of a block: ip. or range. and the canonical text, with
// the dots of IPv4 as hyphens and the colons of IPv6 as underscores.
func BlockKey(scope Scope, target string) string {
	return string(scope) + "." + keyText.Replace(target)
}

var keyText = strings.NewReplacer(".", "-", ":", "_")

// ParseBlockKey is the inverse of [BlockKey]; an address comes back as the
// prefix of its full length.
func ParseBlockKey(key string) (Scope, netip.Prefix, error) {
	scope, text, ok := strings.Cut(key, ".")
	if !ok || len(text) > MaxKey || strings.ContainsAny(text, ".:") {
		return "", netip.Prefix{}, fmt.Errorf("key %q is not one of a block", clip([]byte(key)))
	}
	if strings.Contains(text, "_") {
		text = strings.ReplaceAll(text, "_", ":")
	} else {
		text = strings.ReplaceAll(text, "-", ".")
	}
	p, err := ParseTarget(Scope(scope), text)
	if err != nil {
		return "", netip.Prefix{}, fmt.Errorf("key %q: %w", clip([]byte(key)), err)
	}
	return Scope(scope), p, nil
}

// Block is the value of a block's key. BlockedUntil decides; that a key is
// there says nothing.
type Block struct {
	BlockedUntil time.Time `json:"blocked_until"`
	// Version is that of the change; a reader ignores an older one.
	Version int64     `json:"version"`
	Reason  string    `json:"reason,omitempty"`
	Since   time.Time `json:"since"`
}

// Validate checks the version and the words.
func (b Block) Validate() error {
	if b.Version < 1 {
		return fmt.Errorf("version %d is not positive", b.Version)
	}
	return checkWords(b.Reason)
}

// DecodeBlock is [Decode] of a block, several times as fast for what
// [json.Marshal] makes of one: an edge reads all of them when it starts.
func DecodeBlock(data []byte) (Block, error) {
	if b, ok := readBlock(data); ok && b.Validate() == nil {
		return b, nil
	}
	return Decode[Block](data)
}

// readBlock reads a block as this package writes it: all fields in their order,
// without spaces and escapes. Of anything else it reports false.
func readBlock(data []byte) (b Block, ok bool) {
	if b.BlockedUntil, data, ok = readTime(data, `{"blocked_until":"`); !ok {
		return Block{}, false
	}
	if data, ok = bytes.CutPrefix(data, []byte(`,"version":`)); !ok {
		return Block{}, false
	}
	digits := 0
	for digits < len(data) && '0' <= data[digits] && data[digits] <= '9' {
		b.Version = 10*b.Version + int64(data[digits]-'0')
		digits++
	}
	if digits == 0 || digits > 18 || data[0] == '0' { // 18 digits fit
		return Block{}, false
	}
	data = data[digits:]
	if rest, found := bytes.CutPrefix(data, []byte(`,"reason":"`)); found {
		end := bytes.IndexByte(rest, '"')
		if end < 0 || !plain(rest[:end]) {
			return Block{}, false
		}
		if b.Reason = "denials"; string(rest[:end]) != b.Reason { // most often it is, and costs no memory
			b.Reason = string(rest[:end])
		}
		data = rest[end+1:]
	}
	if b.Since, data, ok = readTime(data, `,"since":"`); !ok || string(data) != "}" {
		return Block{}, false
	}
	return b, true
}

// readTime reads a time in quotes behind a prefix that ends with the first
// quote.
func readTime(data []byte, prefix string) (t time.Time, rest []byte, ok bool) {
	data, ok = bytes.CutPrefix(data, []byte(prefix))
	end := bytes.IndexByte(data, '"')
	if !ok || end < 0 || t.UnmarshalText(data[:end]) != nil {
		return time.Time{}, nil, false
	}
	return t, data[end+1:], true
}

// plain reports whether a text in JSON stands for itself.
func plain(text []byte) bool {
	for _, c := range text {
		if c < ' ' || c > '~' || c == '\\' {
			return false
		}
	}
	return true
}

// Mark is written to [KeyMark] every few seconds by the denylist service. A
// reader whose own view differs from it reads everything again.
type Mark struct {
	// Generation tells one life of the bucket from another.
	Generation string `json:"generation"`
	// Version is that of the newest change that has been written to the
	// bucket.
	Version int64 `json:"version"`
	// IPs and Ranges are the numbers of blocks in force.
	IPs    int `json:"ips"`
	Ranges int `json:"ranges"`
	// Monitor says that the blocks are to be counted and not enforced.
	Monitor bool `json:"monitor,omitempty"`
	// Written is the service's time.
	Written time.Time `json:"written"`
	// Stream is when the event stream was made, and Applied a place in it:
	// whatever the denials up to there decided has been published, to the bucket
	// and as events. Both are zero while that is not known.
	Stream  time.Time `json:"stream,omitzero"`
	Applied uint64    `json:"applied,omitempty"`
}

// Validate checks that there is a generation.
func (m Mark) Validate() error {
	if m.Generation == "" || len(m.Generation) > MaxKey {
		return fmt.Errorf("generation has %d bytes, not 1..%d", len(m.Generation), MaxKey)
	}
	return nil
}
