package origin

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// What a request may ask for in its field [Do].
const (
	// DoHold answers when the test lets it.
	DoHold = "hold"
	// DoGate answers once the gate of the request's group is open.
	DoGate = "gate"
	// DoPart sends the head and the first half of the body, and the rest when
	// the test lets it.
	DoPart = "part"
	// DoReset resets the connection without an answer.
	DoReset = "reset"
	// DoBreak closes the connection in the middle of a chunk.
	DoBreak = "break"
	// DoEcho answers with a [Seen].
	DoEcho = "echo"
	// DoEvents sends an event and goes on when the test lets it.
	DoEvents = "events"
	// DoUpgrade switches to a protocol that sends every line back.
	DoUpgrade = "upgrade"
	// DoTake, followed by a duration, answers after it: "take 200ms".
	DoTake = "take "
	// DoSend, followed by a number, answers with so many bytes: "send 100000".
	DoSend = "send "
)

// Arrival is a request that the test decides on.
type Arrival struct {
	// Group and Mark are what the request said.
	Group, Mark string

	goOn  chan struct{}
	once  sync.Once
	ended chan struct{}
}

// Release lets the origin answer. It may be called several times.
func (a *Arrival) Release() { a.once.Do(func() { close(a.goOn) }) }

// Ended is closed when the origin is done with the request: it has answered,
// or the gate has closed the connection.
func (a *Arrival) Ended() <-chan struct{} { return a.ended }

// Seen is a request as it came.
type Seen struct {
	Target, Method, Host, Proto string
	Header                      http.Header
	Body                        string
}

func (o *Origin) serve(w http.ResponseWriter, r *http.Request) {
	c, _ := r.Context().Value(connKey{}).(net.Conn)
	defer o.enter(r, c)()
	do := r.Header.Get(Do)
	switch {
	case do == DoHold:
		if o.hold(r) {
			answer(w, "held\n")
		}
	case do == DoGate:
		select {
		case <-o.gate(r.Header.Get(Group)):
			answer(w, "let through\n")
		case <-r.Context().Done():
		}
	case do == DoPart:
		o.part(w, r)
	case do == DoReset:
		hijacked(w, func(c net.Conn, _ *bufio.ReadWriter) {
			if tcp, ok := c.(*net.TCPConn); ok {
				_ = tcp.SetLinger(0)
			}
		})
	case do == DoBreak:
		hijacked(w, func(c net.Conn, _ *bufio.ReadWriter) {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n40\r\nof a ")
		})
	case do == DoEcho:
		echo(w, r)
	case do == DoEvents:
		o.events(w, r)
	case do == DoUpgrade:
		upgrade(w)
	case strings.HasPrefix(do, DoTake):
		take(w, r, do[len(DoTake):])
	case strings.HasPrefix(do, DoSend):
		n, err := strconv.Atoi(do[len(DoSend):])
		if err != nil {
			http.Error(w, err.Error(), http.StatusNotImplemented)
			return
		}
		send(w, n)
	case do == "":
		_, _ = io.Copy(io.Discard, r.Body)
		answer(w, "ok\n")
	default:
		http.Error(w, "unknown "+Do+": "+do, http.StatusNotImplemented)
	}
}

func answer(w http.ResponseWriter, body string) {
	w.Header().Set("Content-Type", "text/plain")
	_, _ = io.WriteString(w, body)
}

// hold hands the request to the test. It reports whether the test let it go
// on; otherwise the gate has gone.
func (o *Origin) hold(r *http.Request) bool {
	a := &Arrival{
		Group: r.Header.Get(Group),
		Mark:  r.Header.Get(Mark),
		goOn:  make(chan struct{}),
		ended: make(chan struct{}),
	}
	defer close(a.ended)
	// The server only notices that a connection is closed once the body is read.
	_, _ = io.Copy(io.Discard, r.Body)
	select {
	case o.held <- a:
	case <-r.Context().Done():
		return false
	}
	select {
	case <-a.goOn:
		return true
	case <-r.Context().Done():
		return false
	}
}

func (o *Origin) part(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Length", "10")
	_, _ = io.WriteString(w, "first")
	_ = http.NewResponseController(w).Flush()
	if o.hold(r) {
		_, _ = io.WriteString(w, "other")
	}
}

func (o *Origin) events(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = io.WriteString(w, "data: 1\n\n")
	_ = http.NewResponseController(w).Flush()
	if o.hold(r) {
		_, _ = io.WriteString(w, "data: 2\n\n")
	}
}

// send keeps the last byte in the server's buffer, which leaves when the
// handler has returned: nobody sees the end before the request is counted out.
func send(w http.ResponseWriter, n int) {
	w.Header().Set("Content-Length", strconv.Itoa(n))
	if n > 1 {
		_, _ = io.Copy(w, io.LimitReader(zeros{}, int64(n-1)))
		_ = http.NewResponseController(w).Flush()
	}
	_, _ = w.Write(make([]byte, min(n, 1)))
}

func take(w http.ResponseWriter, r *http.Request, how string) {
	d, err := time.ParseDuration(how)
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotImplemented)
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		answer(w, "took "+how+"\n")
	case <-r.Context().Done():
	}
}

func echo(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body) // what came, came
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(Seen{
		Target: r.RequestURI, Method: r.Method, Host: r.Host, Proto: r.Proto, Header: r.Header, Body: string(body),
	})
}

// upgrade speaks the protocol "lines": every line is sent back, until the
// other side closes the connection.
func upgrade(w http.ResponseWriter) {
	hijacked(w, func(c net.Conn, rw *bufio.ReadWriter) {
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: lines\r\n\r\n")
		for {
			line, err := rw.ReadString('\n')
			if err != nil {
				return
			}
			if _, err := io.WriteString(c, line); err != nil {
				return
			}
		}
	})
}

// hijacked takes the connection over and closes it afterwards.
func hijacked(w http.ResponseWriter, use func(net.Conn, *bufio.ReadWriter)) {
	c, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, fmt.Sprintf("hijack: %v", err), http.StatusInternalServerError)
		return
	}
	defer c.Close()
	use(c, rw)
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
