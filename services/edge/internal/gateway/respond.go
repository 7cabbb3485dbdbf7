package gateway

import (
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/ccnq/ccnq/services/edge/internal/admission"
)

// Field values that are the same in many responses. They are never changed.
var (
	cacheBypass = []string{"BYPASS"}
	statusOfUs  = []string{"ccnq; fwd=bypass"} // RFC 9211
	noStore     = []string{"no-store"}
	noSniff     = []string{"nosniff"}
	closing     = []string{"close"} // over HTTP/2, net/http makes a GOAWAY of it
	jsonType    = []string{"application/json"}
	textType    = []string{"text/plain; charset=utf-8"}
)

// referenceField carries the id that a refused client can quote; it also
// stands in the log line of the refusal.
const referenceField = "Ccnq-Reference"

// respond writes every answer of the edge's own. It is never to be stored (RFC
// 6585 section 4), and is JSON for clients that ask for it. A flood costs the
// edge this and little else, so it makes few allocations.
func (g *Gateway) respond(x *exchange, v Verdict) {
	x.status = v.Status
	x.reference = newReference()
	if x.cached == "" {
		x.bypassed()
	}
	h := x.w.Header()
	h["Cache-Control"] = noStore
	h["X-Content-Type-Options"] = noSniff
	if v.Close {
		h["Connection"] = closing
	}
	retry := ""
	if v.RetryAfter > 0 {
		retry = strconv.FormatInt(retrySeconds(v.RetryAfter), 10)
	}
	body := make([]byte, 0, 256)
	if wantsJSON(x.r.Header) {
		h["Content-Type"] = jsonType
		body = appendJSON(body, v, retry, x.reference)
	} else {
		h["Content-Type"] = textType
		body = appendText(body, v, retry, x.reference)
	}
	values := [...]string{x.reference, strconv.Itoa(len(body)), retry}
	h[referenceField] = values[0:1:1]
	h["Content-Length"] = values[1:2:2]
	if retry != "" {
		h["Retry-After"] = values[2:3:3]
	}
	x.w.WriteHeader(v.Status)
	if x.r.Method != http.MethodHead {
		_, _ = x.w.Write(body) // nothing can be done for a client that is gone
	}
}

// bypassed says in the response that the cache did nothing; every response says
// what it did.
func (x *exchange) bypassed() {
	h := x.w.Header()
	h["X-Cache"] = cacheBypass
	h["Cache-Status"] = statusOfUs
}

// newReference returns 16 random hexadecimal digits.
func newReference() string {
	var id [8]byte
	var text [16]byte
	binary.BigEndian.PutUint64(id[:], rand.Uint64())
	hex.Encode(text[:], id[:])
	return string(text[:])
}

// retrySeconds is a delay as Retry-After wants it: whole seconds, rounded up,
// at least 1 (RFC 9110 section 10.2.3).
func retrySeconds(d time.Duration) int64 {
	return max(int64((d+time.Second-1)/time.Second), 1)
}

func message(reason Reason) string {
	switch reason {
	case Blocked:
		return "Your address, or your network, is blocked after too many refused requests."
	case Throttled:
		return "The site is busy, and too many requests came from your network or to this host."
	}
	switch admission.Reason(reason) {
	case admission.QueueFull:
		return "Too many requests from your network are being served or waiting."
	case admission.QueueTimeout:
		return "Too many requests from your network: yours waited for its turn too long."
	}
	switch reason {
	case NotCached:
		return "The request asks for what is stored, and nothing is."
	case OriginTimeout:
		return "The origin did not answer in time."
	case OriginUnreachable:
		return "The origin is unreachable."
	}
	return "The request cannot be served."
}

func appendText(b []byte, v Verdict, retry, reference string) []byte {
	b = strconv.AppendInt(b, int64(v.Status), 10)
	b = append(b, ' ')
	b = append(b, http.StatusText(v.Status)...)
	b = append(b, "\n\n"...)
	b = append(b, message(v.Reason)...)
	if retry != "" {
		b = append(b, "\nPlease try again in "...)
		b = append(b, retry...)
		b = append(b, " s."...)
	}
	b = append(b, "\nReference: "...)
	b = append(b, reference...)
	return append(b, '\n')
}

// appendJSON needs no escaping: none of its parts comes from outside.
func appendJSON(b []byte, v Verdict, retry, reference string) []byte {
	b = append(b, `{"status":`...)
	b = strconv.AppendInt(b, int64(v.Status), 10)
	b = append(b, `,"error":"`...)
	b = append(b, v.Reason...)
	b = append(b, `","message":"`...)
	b = append(b, message(v.Reason)...)
	if retry != "" {
		b = append(b, `","retry_after":`...)
		b = append(b, retry...)
		b = append(b, `,"reference":"`...)
	} else {
		b = append(b, `","reference":"`...)
	}
	b = append(b, reference...)
	return append(b, "\"}\n"...)
}

// wantsJSON reports whether a client asks for JSON and not for a page.
func wantsJSON(h http.Header) bool {
	for _, accept := range h["Accept"] {
		if strings.Contains(accept, "text/html") {
			return false
		}
		if strings.Contains(accept, "application/json") || strings.Contains(accept, "+json") {
			return true
		}
	}
	return false
}
