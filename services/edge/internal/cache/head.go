package cache

import (
	"net/http"

	"github.com/ccnq/ccnq/services/edge/internal/cache/rfc9111"
	"github.com/ccnq/ccnq/services/edge/internal/cache/store"
)

// head is a response as it is stored, with its fields as a list too, which is
// quicker to write than a map. It does not change.
type head struct {
	*rfc9111.Response
	fields []field
}

type field struct {
	name   string
	values []string
}

func newHead(res *rfc9111.Response) *head {
	h := &head{Response: res, fields: make([]field, 0, len(res.Header))}
	for name, values := range res.Header {
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
	Size: func(h *head) int { return h.Response.Size() + 40*len(h.fields) },
}
