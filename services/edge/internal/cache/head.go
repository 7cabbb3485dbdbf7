package cache

import (
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/ccnq/ccnq/services/edge/internal/cache/rfc9111"
	"github.com/ccnq/ccnq/services/edge/internal/cache/store"
)

// head is a response as it is stored, with its fields as a list too, which is
// quicker to write than a map. It does not change. There is one for each version of
// an item.
type head struct {
	*rfc9111.Response
	fields []field // but for those that each answer has its own of
	last   atomic.Pointer[ownFields]
}

// ownFields are the values of fields that each answer from the cache has its own
// of. They stay the same for the time between two changes of a number of seconds,
// in which all hits share them. They do not change.
type ownFields struct {
	ageSeconds, ttlSeconds int64

	age, status, length []string
}

// own returns the fields of an answer of an age, with a body of a size.
func (h *head) own(status rfc9111.CacheStatus, age time.Duration, size int64) *ownFields {
	hit := status == rfc9111.CacheStatus{TTL: status.TTL}
	ageSeconds, ttlSeconds := rfc9111.Seconds(age), rfc9111.Seconds(status.TTL)
	if own := h.last.Load(); hit && own != nil && own.ageSeconds == ageSeconds && own.ttlSeconds == ttlSeconds {
		return own
	}
	// One text holds all values.
	var space [128]byte
	b := rfc9111.AppendAge(space[:0], age)
	ageEnd := len(b)
	b = status.Append(b)
	statusEnd := len(b)
	b = strconv.AppendInt(b, size, 10)
	text := string(b)
	values := [...]string{text[:ageEnd], text[ageEnd:statusEnd], text[statusEnd:]}
	own := &ownFields{
		ageSeconds: ageSeconds, ttlSeconds: ttlSeconds,
		age: values[0:1:1], status: behind(h.Header[cacheStatus], values[1:2:2]), length: values[2:3:3],
	}
	if hit {
		h.last.Store(own)
	}
	return own
}

type field struct {
	name   string
	values []string
}

func newHead(res *rfc9111.Response) *head {
	h := &head{Response: res, fields: make([]field, 0, len(res.Header))}
	for name, values := range res.Header {
		if name == cacheStatus || name == "Content-Length" && bodyAllowed(res.Status) {
			continue
		}
		h.fields = append(h.fields, field{name: name, values: values})
	}
	return h
}

// write adds the fields to h.
func (h *head) write(to http.Header) {
	for i := range h.fields {
		f := &h.fields[i]
		to[f.name] = f.values
	}
}

// headOverhead is about what a head's own fields take in memory.
const headOverhead = 256

// codec stores heads by their responses.
var codec = store.Codec[*head]{
	Append: func(b []byte, h *head) []byte { return h.Response.Append(b) },
	Decode: func(b []byte) (*head, error) {
		res, err := rfc9111.Decode(b)
		if err != nil {
			return nil, err
		}
		return newHead(res), nil
	},
	Size: func(h *head) int { return h.Response.Size() + 40*len(h.fields) + headOverhead },
}
