package listen

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

const (
	defaultReadHeaderTimeout = 10 * time.Second
	defaultIdleTimeout       = 75 * time.Second
	defaultMaxHeaderBytes    = 64 << 10
	// maxStreams bounds the requests at once on one HTTP/2 connection.
	maxStreams = 128
	// pingAfter and pingTimeout find HTTP/2 peers that have vanished while a stream is open.
	pingAfter   = 30 * time.Second
	pingTimeout = 15 * time.Second
)

// ErrCut is the cause with which [Server.Cut] cancels the contexts of the requests that are left.
var ErrCut = errors.New("the server is shutting down")

// Options configures a [Server].
type Options struct {
	// Addr is the TCP address to listen on, "host:port"; port 0 takes a free one. Required.
	Addr string
	// Handler serves the requests. Required.
	Handler http.Handler
	// IdleTimeout closes a connection without a request for so long. 0 means 75 seconds.
	IdleTimeout time.Duration
	// Logger gets what net/http has to say about single connections, at most ten lines a second, at debug level,
	// panics of a handler at error level, and failures to reload the certificate at warn level. Required.
	Logger *slog.Logger
	// MaxHeaderBytes bounds the request line and header fields together; more is answered with 431 and the connection
	// closed. net/http lets another 4 KiB pass, and ends an HTTP/2 connection on which a single value is larger. 0
	// means 64 KiB.
	MaxHeaderBytes int
	// ReadHeaderTimeout bounds the arrival of the head of a request, and the TLS handshake. 0 means 10 seconds.
	ReadHeaderTimeout time.Duration
	// TLSCertFile and TLSKeyFile are PEM files with the certificate chain and its key. Both or neither; with them the
	// listener speaks TLS.
	TLSCertFile, TLSKeyFile string
}

// Server is one listener. All methods are safe for concurrent use.
type Server struct {
	cancel   context.CancelCauseFunc
	cert     *certificate // nil without TLS
	handler  http.Handler
	http     *http.Server
	options  Options
	draining atomic.Bool
	changed  chan struct{} // a request ended while draining

	requests atomic.Int64 // handlers running, those of the two below included
	streams  atomic.Int64 // of them, event streams
	upgrades atomic.Int64 // of them, with an upgraded connection

	mu       sync.Mutex
	conns    map[*conn]struct{}
	listener net.Listener
	served   chan struct{} // closed when the accept loop has ended; nil before Start
}

// New checks the options and reads the certificate, if one is configured. It opens no socket.
func New(o Options) (*Server, error) {
	switch {
	case o.Handler == nil || o.Logger == nil:
		return nil, errors.New("listen: Handler and Logger are required")
	case o.ReadHeaderTimeout < 0 || o.IdleTimeout < 0:
		return nil, errors.New("listen: a timeout is negative")
	case o.MaxHeaderBytes < 0:
		return nil, fmt.Errorf("listen: MaxHeaderBytes is %d, want 0 or more", o.MaxHeaderBytes)
	case (o.TLSCertFile == "") != (o.TLSKeyFile == ""):
		return nil, errors.New("listen: TLSCertFile and TLSKeyFile must be given together")
	}
	o.ReadHeaderTimeout = orDefault(o.ReadHeaderTimeout, defaultReadHeaderTimeout)
	o.IdleTimeout = orDefault(o.IdleTimeout, defaultIdleTimeout)
	o.MaxHeaderBytes = orDefault(o.MaxHeaderBytes, defaultMaxHeaderBytes)

	s := &Server{
		changed: make(chan struct{}, 1),
		conns:   map[*conn]struct{}{},
		handler: o.Handler,
		options: o,
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	if o.TLSCertFile == "" {
		protocols.SetUnencryptedHTTP2(true)
	} else {
		protocols.SetHTTP2(true)
		s.cert = &certificate{certFile: o.TLSCertFile, keyFile: o.TLSKeyFile, logger: o.Logger}
		if err := s.cert.reload(); err != nil {
			return nil, err
		}
	}
	base, cancel := context.WithCancelCause(context.Background())
	s.cancel = cancel
	s.http = &http.Server{
		BaseContext:                  func(net.Listener) context.Context { return base },
		ConnContext:                  withConn,
		ConnState:                    s.connState,
		DisableGeneralOptionsHandler: true, // OPTIONS * is the origin's to answer
		ErrorLog:                     newErrorLog(o.Logger),
		Handler:                      http.HandlerFunc(s.serve),
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams,
			PingTimeout:          pingTimeout,
			SendPingTimeout:      pingAfter,
		},
		IdleTimeout:       o.IdleTimeout,
		MaxHeaderBytes:    o.MaxHeaderBytes,
		Protocols:         protocols,
		ReadHeaderTimeout: o.ReadHeaderTimeout,
	}
	return s, nil
}

func orDefault[T comparable](v, d T) T {
	var zero T
	if v == zero {
		return d
	}
	return v
}

// Start opens the socket and serves in the background. It returns the address that is bound. It may be called once.
func (s *Server) Start() (net.Addr, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.served != nil {
		return nil, errors.New("listen: started twice")
	}
	l, err := net.Listen("tcp", s.options.Addr)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	s.listener = l
	s.served = make(chan struct{})
	go s.accept(l)
	return l.Addr(), nil
}

func (s *Server) accept(l net.Listener) {
	defer close(s.served)
	var err error
	tracked := &listener{Listener: l, server: s}
	if s.cert != nil {
		s.http.TLSConfig = &tls.Config{GetCertificate: s.cert.get, MinVersion: tls.VersionTLS12}
		err = s.http.ServeTLS(tracked, "", "")
	} else {
		err = s.http.Serve(tracked)
	}
	if !errors.Is(err, http.ErrServerClosed) {
		s.options.Logger.Error("the listener failed", "addr", l.Addr().String(), "error", err)
	}
}

// Reload reads the certificate files again. It does nothing without TLS. On an error the certificate in use stays.
func (s *Server) Reload() error {
	if s.cert == nil {
		return nil
	}
	return s.cert.reload()
}

// serve counts the request and applies the rules on framing of the package documentation.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	s.requests.Add(1)
	c := connOf(r)
	defer s.leave(c)
	if r.ProtoMajor != 1 {
		if !c.opaque.Load() {
			c.opaque.Store(true)
		}
		s.handler.ServeHTTP(w, r)
		return
	}
	if c.badHead.Load() {
		refuseHead(w)
		return
	}
	if r.ContentLength > 0 {
		c.guard.body = r.ContentLength // net/http reads no further before the handler asks for the body
	}
	if len(r.TransferEncoding) > 0 || r.ProtoMinor == 0 {
		c.opaque.Store(true)
		w.Header().Set("Connection", "close")
	}
	s.handler.ServeHTTP(w, r)
}

// refuseHead answers like net/http does where it refuses a head itself.
func refuseHead(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("Connection", "close")
	h.Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(http.StatusBadRequest)
	_, _ = io.WriteString(w, "400 Bad Request: a header line is folded or ends without CR\n") // the client may be gone
}

func (s *Server) leave(c *conn) {
	if c.hijacked.Load() {
		s.upgrades.Add(-1)
	}
	s.requests.Add(-1)
	s.notify()
}

// notify wakes Drain and Cut.
func (s *Server) notify() {
	if s.draining.Load() {
		select {
		case s.changed <- struct{}{}:
		default:
		}
	}
}

// EventStream marks the request, whose handler is running, as an event stream until done is called. Drain does not
// wait for it. r must have been served by a Server; for any other request it does nothing.
func EventStream(r *http.Request) (done func()) {
	c := connOf(r)
	if c == nil {
		return func() {}
	}
	s := c.server
	s.streams.Add(1)
	s.notify()
	return func() { s.streams.Add(-1) }
}
