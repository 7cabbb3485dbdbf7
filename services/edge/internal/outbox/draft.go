package outbox

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ccnq/ccnq/pkg/wire"
)

const (
	// envelopeBytes is the most that an event takes beside its addresses, and
	// addressBytes the most that an address takes beside its path: two
	// addresses, two times, a number and the names of the fields.
	envelopeBytes = 2_048
	addressBytes  = 288
)

// draft is a message without its place in an outbox.
type draft struct {
	kind      Kind
	addresses []wire.DeniedAddress
	requests  int // refused, of all addresses
	last      time.Time
	bytes     int // no less than the encoded size
}

// drafts cuts the collector's interval into messages: one for each kind and
// day, split where a message would exceed the bounds of package wire.
func drafts(c *collector) []draft {
	type series struct {
		kind Kind
		day  int32
	}
	var done []draft
	open := map[series]*draft{}
	c.cut(func(e *entry, path []byte) {
		a := wire.DeniedAddress{
			IP: e.addr, Group: e.group.Masked(), Count: e.count,
			First: time.Unix(0, e.first).UTC(), Last: time.Unix(0, e.last).UTC(), Path: cleanPath(path),
		}
		size := addressBytes + quotedBytes(a.Path)
		s := series{e.kind, e.day}
		d := open[s]
		if d != nil && (len(d.addresses) == wire.MaxAddresses || d.bytes+size > wire.MaxDeniedBytes) {
			done = append(done, *d)
			d = nil
		}
		if d == nil {
			d = &draft{kind: e.kind, bytes: envelopeBytes}
			open[s] = d
		}
		d.addresses = append(d.addresses, a)
		d.requests += a.Count
		d.bytes += size
		if a.Last.After(d.last) {
			d.last = a.Last
		}
	})
	for _, d := range open {
		done = append(done, *d)
	}
	return done
}

// encode returns the event as it is sent.
func (d *draft) encode(source, outboxID string, seq uint64) ([]byte, error) {
	data := wire.Denied{OutboxID: outboxID, Seq: seq, Reason: reasons[d.kind], Addresses: d.addresses}
	return json.Marshal(wire.NewEvent(eventID(outboxID, seq), source, d.kind.eventType(), string(data.Reason), d.last, data))
}

func eventID(outboxID string, seq uint64) string { return fmt.Sprintf("%s-%d", outboxID, seq) }

// cleanPath makes UTF-8 of a path that may have been cut within a character, or
// never was UTF-8.
func cleanPath(path []byte) string {
	for i := 1; i < utf8.UTFMax && i <= len(path); i++ {
		if tail := path[len(path)-i:]; utf8.RuneStart(tail[0]) {
			if !utf8.FullRune(tail) {
				path = path[:len(path)-i]
			}
			break
		}
	}
	return strings.ToValidUTF8(string(path), "?")
}

// quotedBytes is no less than the length of s as JSON.
func quotedBytes(s string) int {
	n := len(s) + 2
	for i := range len(s) {
		switch c := s[i]; {
		case c < ' ' || c == 0x7f || c >= utf8.RuneSelf || c == '<' || c == '>' || c == '&':
			n += 5
		case c == '"' || c == '\\':
			n++
		}
	}
	return n
}
