package gateway

import (
	"fmt"
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
	jsonType    = []string{"application/json"}
	textType    = []string{"text/plain; charset=utf-8"}
)

// referenceField carries the id that a refused client can quote; it also
// stands in the log line of the refusal.
const referenceField = "Ccnq-Reference"

// respond writes every answer of the edge's own. It is never to be stored (RFC
// 6585 section 4), and is JSON for clients that ask for it.
func (g *Gateway) respond(x *exchange, v Verdict) {
	x.status = v.Status
	x.reference = fmt.Sprintf("%016x", rand.Uint64())
	seconds := int64(0)
	if v.RetryAfter > 0 {
		seconds = retrySeconds(v.RetryAfter)
	}
	h := x.w.Header()
	h["Cache-Control"] = noStore
	h[referenceField] = []string{x.reference}
	h["X-Content-Type-Options"] = []string{"nosniff"}
	if seconds > 0 {
		h["Retry-After"] = []string{strconv.FormatInt(seconds, 10)}
	}
	var body string
	if wantsJSON(x.r.Header) {
		h["Content-Type"] = jsonType
		body = jsonBody(v, seconds, x.reference)
	} else {
		h["Content-Type"] = textType
		body = textBody(v, seconds, x.reference)
	}
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	x.w.WriteHeader(v.Status)
	if x.r.Method != http.MethodHead {
		_, _ = x.w.Write([]byte(body)) // nothing can be done for a client that is gone
	}
}

// retrySeconds is a delay as Retry-After wants it: whole seconds, rounded up,
// at least 1 (RFC 9110 section 10.2.3).
func retrySeconds(d time.Duration) int64 {
	return max(int64((d+time.Second-1)/time.Second), 1)
}

func message(reason Reason) string {
	switch admission.Reason(reason) {
	case admission.QueueFull:
		return "Too many requests from your network are being served or waiting."
	case admission.QueueTimeout:
		return "Too many requests from your network: yours waited for its turn too long."
	}
	return "The request cannot be served."
}

func textBody(v Verdict, seconds int64, reference string) string {
	var b strings.Builder
	b.Grow(192)
	b.WriteString(strconv.Itoa(v.Status))
	b.WriteByte(' ')
	b.WriteString(http.StatusText(v.Status))
	b.WriteString("\n\n")
	b.WriteString(message(v.Reason))
	if seconds > 0 {
		b.WriteString("\nPlease try again in ")
		b.WriteString(strconv.FormatInt(seconds, 10))
		b.WriteString(" s.")
	}
	b.WriteString("\nReference: ")
	b.WriteString(reference)
	b.WriteByte('\n')
	return b.String()
}

// jsonBody needs no escaping: none of its parts comes from outside.
func jsonBody(v Verdict, seconds int64, reference string) string {
	retry := ""
	if seconds > 0 {
		retry = fmt.Sprintf(`"retry_after":%d,`, seconds)
	}
	return fmt.Sprintf(`{"status":%d,"error":%q,"message":%q,%s"reference":%q}`+"\n",
		v.Status, v.Reason, message(v.Reason), retry, reference)
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
