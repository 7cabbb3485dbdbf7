package cache

import (
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/ccnq/ccnq/services/edge/internal/cache/rfc9111"
	"github.com/ccnq/ccnq/services/edge/internal/cache/store"
)

// Values of X-Cache. They are never changed.
var (
	xHit    = []string{"HIT"}
	xMiss   = []string{"MISS"}
	xBypass = []string{"BYPASS"}
)

// cacheStatus is a list: every cache on the way adds to it, the one next to the
// client last (RFC 9211 section 2).
const cacheStatus = "Cache-Status"

// behind returns the members that other caches have added, and then this one's.
func behind(others, own []string) []string {
	if len(others) == 0 {
		return own
	}
	return append(slices.Clip(others), own...)
}

// fieldOf returns the value of X-Cache for a word.
func (w Word) field() []string {
	switch w {
	case Hit, Stale:
		return xHit
	case Bypass:
		return xBypass
	case Miss, Collapsed, Revalidated:
	}
	return xMiss
}

// setStatus says what the cache did: X-Cache is the seed's, Cache-Status that of
// RFC 9211.
func setStatus(w http.ResponseWriter, word Word, status rfc9111.CacheStatus) {
	h := w.Header()
	h["X-Cache"] = word.field()
	h[cacheStatus] = []string{status.String()}
}

// hit answers from what is stored, without asking anybody.
func (c *Cache) hit(q *Request, f *found, word Word) (Result, bool) {
	return c.answer(q, f, f.res, word, rfc9111.CacheStatus{TTL: f.res.FreshFor(q.Arrived)}, q.Arrived)
}

// answer writes a response from what is stored, with the head res, which may be
// newer than the item's. It reports false if the body could not be read and
// nothing was sent: then the item is gone.
func (c *Cache) answer(
	q *Request, f *found, res *head, word Word, status rfc9111.CacheStatus, now time.Time,
) (Result, bool) {
	h := q.W.Header()
	res.write(h)
	own := res.own(status, res.Age(now), f.item.Size())
	h["Age"], h[cacheStatus] = own.age, own.status
	h["X-Cache"] = word.field()

	result := Result{End: Answered, Word: word, Status: res.Status}
	r := q.R
	switch {
	case res.Precondition(r.Header):
		notModified(q.W)
		result.Status = http.StatusNotModified
		return result, true
	case res.Status == http.StatusOK && r.Method == http.MethodGet && r.Header["Range"] != nil && res.IfRange(r.Header):
		if ranges, what := rfc9111.ParseRange(r.Header["Range"], f.item.Size()); what != rfc9111.WholeBody {
			return c.answerRanges(q, f, res, result, ranges)
		}
	}
	if bodyAllowed(res.Status) {
		h["Content-Length"] = own.length
	}
	guessNothing(h)
	if r.Method == http.MethodHead || f.item.Size() == 0 {
		q.W.WriteHeader(res.Status)
		return result, true
	}
	if body := f.item.Body(); body != nil {
		q.W.WriteHeader(res.Status)
		if _, err := q.W.Write(body); err != nil {
			result.End, result.Err = Broken, err
		}
		return result, true
	}
	out := &bodyWriter{w: q.W, status: res.Status}
	_, err := f.item.WriteTo(out)
	return c.written(q, f, result, out, err)
}

// written says what became of a body that was written in pieces.
func (c *Cache) written(q *Request, f *found, result Result, out *bodyWriter, err error) (Result, bool) {
	if err == nil {
		return result, true
	}
	if errors.Is(err, store.ErrCorrupt) && !out.began {
		h := q.W.Header()
		for name := range f.res.Header {
			delete(h, name)
		}
		for _, name := range []string{"Age", "Content-Length", "Content-Range", "Content-Type"} {
			delete(h, name)
		}
		f.close()
		return Result{}, false
	}
	result.End, result.Err = Broken, err
	return result, true
}

// bodyWriter writes the head of a response with the first piece of its body.
type bodyWriter struct {
	w      http.ResponseWriter
	status int
	began  bool
}

// Write writes a piece of the body.
func (b *bodyWriter) Write(p []byte) (int, error) {
	if !b.began {
		b.began = true
		b.w.WriteHeader(b.status)
	}
	return b.w.Write(p)
}

// bodyAllowed reports whether responses with a status have a body (RFC 9110
// section 6.4.1).
func bodyAllowed(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}

// guessNothing keeps net/http from guessing a Content-Type.
func guessNothing(h http.Header) {
	if h["Content-Type"] == nil {
		h["Content-Type"] = nil
	}
}

// notModified answers with 304: without the fields that describe a body, as the
// client has them (RFC 9110 section 15.4.5).
func notModified(w http.ResponseWriter) {
	h := w.Header()
	for _, name := range []string{"Content-Encoding", "Content-Language", "Content-Length", "Content-Range", "Content-Type", "Last-Modified"} {
		if name != "Last-Modified" || h["Etag"] != nil {
			delete(h, name)
		}
	}
	w.WriteHeader(http.StatusNotModified)
}
