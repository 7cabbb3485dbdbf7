package proxy

import (
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// exchange is one request on its way through the standard library's ReverseProxy. It owns a ReverseProxy whose hooks
// are its own methods, so that no hook has to look its request up, and is reused through a pool, so that this costs
// no allocation. Only the goroutine that serves the request touches it.
type exchange struct {
	proxy   *Proxy
	reverse httputil.ReverseProxy

	done     func() // ends an event stream; nil if it is none
	finished bool   // the response was written to its end, or fail dealt with it
	outcome  *Outcome
	own      http.Header // the gate's own response fields
	r        *http.Request
	response responseBody
	start    time.Time
	switched io.Closer // the origin's connection after 101
	upgrade  bool      // the request asks for another protocol
	upload   *requestBody
	url      url.URL
	w        http.ResponseWriter
}

// cacheStatus is the one field of the gate's own that does not replace the origin's.
const cacheStatus = "Cache-Status"

var silent = log.New(io.Discard, "", 0) // what ReverseProxy would log is in Outcome.Err

func newExchange(p *Proxy) *exchange {
	x := &exchange{proxy: p, own: http.Header{}}
	x.reverse = httputil.ReverseProxy{
		BufferPool:     &p.buffers,
		ErrorHandler:   x.fail,
		ErrorLog:       silent,
		ModifyResponse: x.receive,
		Rewrite:        x.rewrite,
		Transport:      x,
	}
	return x
}

// exchange runs one exchange through a pooled exchange value.
func (p *Proxy) exchange(w http.ResponseWriter, r *http.Request, o *Outcome, u url.URL) {
	x := p.exchanges.Get().(*exchange)
	x.outcome, x.r, x.start, x.url, x.w = o, r, time.Now(), u, w
	if h := w.Header(); len(h) > 0 {
		maps.Copy(x.own, h)
		clear(h)
	}
	defer x.end()
	if r.Header["Upgrade"] != nil {
		w = upgradeWriter{w}
	}
	x.reverse.ServeHTTP(w, r)
	x.finished = true
}

// end completes the outcome, also when ReverseProxy panics because a body could not be copied to its end, and gives x
// back to the pool.
func (x *exchange) end() {
	o := x.outcome
	switch {
	case o.Class != OK: // fail was here
	case !x.finished || x.response.err != nil:
		o.Class, o.Err = x.verdict(x.response.err)
	case o.Upgraded && x.r.Context().Err() != nil: // cut from this side; a hangup does not cancel an upgraded request
		o.Class, o.Err = classify(x.r.Context(), nil)
	}
	if x.done != nil {
		x.done()
	}
	if x.switched != nil {
		_ = x.switched.Close()
	}
	clear(x.own)
	x.done, x.finished, x.outcome, x.r, x.response = nil, false, nil, nil, responseBody{}
	x.switched, x.upgrade, x.upload, x.w = nil, false, nil, nil
	x.proxy.exchanges.Put(x)
}

// rewrite turns the client's request, already without hop-by-hop fields, into the one for the origin.
func (x *exchange) rewrite(pr *httputil.ProxyRequest) {
	in, out := pr.In, pr.Out
	*out.URL = x.url
	if x.proxy.host != "" {
		out.Host = x.proxy.host
	}
	trusted := x.proxy.trusted != nil && x.proxy.trusted(in)
	x.outcome.RequestID = setForwarded(out.Header, in, trusted, x.outcome.RequestID, x.start)
	x.limitUpgrade(in, out.Header)
	if agents, ok := out.Header["User-Agent"]; ok && (len(agents) != 1 || agents[0] == "") {
		// net/http sends the first line only, and an empty one not at all; under another spelling it sends them as they
		// are.
		out.Header["user-agent"] = agents
		out.Header["User-Agent"] = []string{""}
	}
	if out.Body == nil {
		return
	}
	out.Trailer = in.Trailer // its values come while the body is read
	x.upload = &requestBody{ReadCloser: out.Body}
	out.Body = x.upload
	// HTTP/1 only: let the answer begin while the body still comes in. HTTP/2 does so anyway, a test's recorder never.
	_ = http.NewResponseController(x.w).EnableFullDuplex()
}

// RoundTrip sends the request to the origin. A client of HTTP/1.0 does not know 1xx answers (RFC 9110 section 15.2),
// so ReverseProxy's hook for them, which lives in the context, is left out.
func (x *exchange) RoundTrip(out *http.Request) (*http.Response, error) {
	if !x.r.ProtoAtLeast(1, 1) {
		out = out.WithContext(x.r.Context())
	}
	return x.proxy.transport.RoundTrip(out)
}

// receive takes the head of the answer.
func (x *exchange) receive(res *http.Response) error {
	o := x.outcome
	o.FirstByte = time.Since(x.start)
	o.Reached = true
	switch {
	case res.StatusCode < 100:
		return fmt.Errorf("the origin answered with status %d", res.StatusCode)
	case res.StatusCode == http.StatusSwitchingProtocols:
		if !x.upgrade {
			return errors.New("the origin switched protocols unasked")
		}
		o.Upgraded = true
		x.switched = res.Body
		delete(x.own, "Connection")
	default:
		x.receiveBody(res)
	}
	for name, values := range x.own {
		if name == cacheStatus { // a list of the caches on the way, this one last (RFC 9211 section 2)
			values = append(slices.Clip(res.Header[name]), values...)
		}
		res.Header[name] = values
	}
	if _, ok := res.Header["Content-Type"]; !ok {
		x.w.Header()["Content-Type"] = nil // net/http would guess one
	}
	o.Status = res.StatusCode
	return nil
}

// receiveBody prepares the body for copying.
func (x *exchange) receiveBody(res *http.Response) {
	x.response = responseBody{ReadCloser: res.Body}
	if isEventStream(res.Header) {
		x.outcome.EventStream = true
		if x.proxy.onEventStream != nil {
			x.done = x.proxy.onEventStream(x.r)
		}
	} else if res.ContentLength >= 0 {
		x.response.flusher = x.w // ReverseProxy flushes the other kinds itself
	}
	res.Body = &x.response
}

func isEventStream(h http.Header) bool {
	const mediaType = "text/event-stream"
	values := h["Content-Type"]
	if len(values) == 0 || len(values[0]) < len(mediaType) || !strings.EqualFold(values[0][:len(mediaType)], mediaType) {
		return false
	}
	rest := strings.TrimLeft(values[0][len(mediaType):], " \t")
	return rest == "" || rest[0] == ';'
}

// fail answers a request that got no answer from the origin, or ends it without one if nobody waits for it.
func (x *exchange) fail(w http.ResponseWriter, _ *http.Request, err error) {
	o := x.outcome
	o.Upgraded = false
	o.Class, o.Err = x.verdict(err)
	o.Reached = o.Reached || (o.Class != BadRequest && !isDialError(err))
	maps.Copy(w.Header(), x.own)
	switch o.Class {
	case Unreachable:
		writeError(w, o, http.StatusBadGateway, "the origin is unreachable")
	case Timeout:
		writeError(w, o, http.StatusGatewayTimeout, "the origin did not answer in time")
	case Reset:
		writeError(w, o, http.StatusBadGateway, "the origin gave no valid answer")
	case BadRequest:
		if x.r.ProtoMajor == 1 {
			w.Header().Set("Connection", "close") // where the next request would begin is unknown
		}
		writeError(w, o, http.StatusBadRequest, "the request body is malformed")
	default:
		o.Status = 0
		panic(http.ErrAbortHandler)
	}
}

// verdict is classify with what is known of the client's body: when that fails, the transport's error is only its
// echo.
func (x *exchange) verdict(err error) (Class, error) {
	class, cause := classify(x.r.Context(), err)
	if x.upload == nil || class == DurationLimit || class == Cut {
		return class, cause
	}
	failure := x.upload.failure()
	var netErr net.Error
	switch {
	case failure == nil:
		return class, cause
	case class == ClientGone, errors.Is(failure, io.ErrUnexpectedEOF), errors.As(failure, &netErr):
		return ClientGone, failure
	default:
		return BadRequest, failure
	}
}

func isDialError(err error) bool {
	var dialErr *dialError
	return errors.As(err, &dialErr)
}

// responseBody is the body of the answer. It remembers why reading ended, and flushes what has been written to the
// client before it waits for more. Only the goroutine that serves the request uses it.
type responseBody struct {
	io.ReadCloser
	err     error               // other than io.EOF
	flusher http.ResponseWriter // nil: nothing to flush
	paused  bool                // the last read did not fill its buffer: the origin pauses
}

// Read reads from the origin.
func (b *responseBody) Read(p []byte) (int, error) {
	if b.paused {
		_ = http.NewResponseController(b.flusher).Flush() // a failure shows at the next write
	}
	n, err := b.ReadCloser.Read(p)
	b.paused = b.flusher != nil && n > 0 && n < len(p)
	if err != nil && err != io.EOF {
		b.err = err
	}
	return n, err
}

// requestBody is the client's body. The transport may read it in its own goroutine, even for a moment after the
// exchange has ended, so it is never reused.
type requestBody struct {
	io.ReadCloser
	err atomic.Pointer[error]
}

// Read reads from the client.
func (b *requestBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		b.err.CompareAndSwap(nil, &err)
	}
	return n, err
}

// failure returns the first error of reading from the client, or nil.
func (b *requestBody) failure() error {
	if err := b.err.Load(); err != nil {
		return *err
	}
	return nil
}
