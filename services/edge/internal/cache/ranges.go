package cache

import (
	"encoding/hex"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"

	"github.com/ccnq/ccnq/services/edge/internal/cache/rfc9111"
)

// answerRanges answers with parts of a stored body (RFC 9110 section 14), or
// with 416 if there are none.
func (c *Cache) answerRanges(
	q *Request, f *found, res *head, result Result, ranges []rfc9111.Range,
) (Result, bool) {
	h := q.W.Header()
	size := f.item.Size()
	if len(ranges) == 0 {
		for _, name := range []string{"Content-Encoding", "Content-Language", "Content-Type", "Etag", "Last-Modified"} {
			delete(h, name)
		}
		h["Content-Range"] = []string{"bytes */" + strconv.FormatInt(size, 10)}
		h["Content-Length"] = []string{"0"}
		result.Status = http.StatusRequestedRangeNotSatisfiable
		guessNothing(h)
		q.W.WriteHeader(result.Status)
		return result, true
	}
	result.Status = http.StatusPartialContent
	out := &bodyWriter{w: q.W, status: result.Status}
	if len(ranges) == 1 {
		r := ranges[0]
		h["Content-Range"] = []string{contentRange(r, size)}
		h["Content-Length"] = []string{strconv.FormatInt(r.Length, 10)}
		guessNothing(h)
		_, err := f.item.WriteRange(out, r.Start, r.Length)
		return c.written(q, f, result, out, err)
	}
	delete(h, "Content-Range") // each part has its own
	parts := newParts(res, ranges, size)
	h["Content-Type"] = []string{"multipart/byteranges; boundary=" + parts.boundary}
	h["Content-Length"] = []string{strconv.FormatInt(parts.length(), 10)}
	err := parts.write(out, f.item)
	return c.written(q, f, result, out, err)
}

func contentRange(r rfc9111.Range, size int64) string {
	b := append(make([]byte, 0, 64), "bytes "...)
	b = strconv.AppendInt(b, r.Start, 10)
	b = append(b, '-')
	b = strconv.AppendInt(b, r.Start+r.Length-1, 10)
	b = append(b, '/')
	return string(strconv.AppendInt(b, size, 10))
}

// parts is a body of type multipart/byteranges (RFC 9110 section 14.6).
type parts struct {
	boundary string
	heads    []string // ahead of each range
	ranges   []rfc9111.Range
	tail     string
}

func newParts(res *head, ranges []rfc9111.Range, size int64) *parts {
	var random [16]byte
	for i := range random {
		random[i] = byte(rand.Uint32()) // it only must not be in the body by chance
	}
	p := &parts{boundary: hex.EncodeToString(random[:]), ranges: ranges}
	for i, r := range ranges {
		head := "--" + p.boundary + "\r\n"
		if i > 0 {
			head = "\r\n" + head
		}
		for _, kind := range res.Header["Content-Type"] {
			head += "Content-Type: " + kind + "\r\n"
		}
		p.heads = append(p.heads, head+"Content-Range: "+contentRange(r, size)+"\r\n\r\n")
	}
	p.tail = "\r\n--" + p.boundary + "--\r\n"
	return p
}

func (p *parts) length() int64 {
	n := int64(len(p.tail))
	for i, r := range p.ranges {
		n += int64(len(p.heads[i])) + r.Length
	}
	return n
}

// rangeWriter is the part of an item that is needed.
type rangeWriter interface {
	WriteRange(w io.Writer, offset, n int64) (int64, error)
}

func (p *parts) write(w io.Writer, body rangeWriter) error {
	for i, r := range p.ranges {
		if _, err := io.WriteString(w, p.heads[i]); err != nil {
			return err
		}
		if _, err := body.WriteRange(w, r.Start, r.Length); err != nil {
			return err
		}
	}
	_, err := io.WriteString(w, p.tail)
	return err
}
