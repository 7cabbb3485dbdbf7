package bus

import (
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/ccnq/ccnq/pkg/wire"
)

// Service answers requests. All services of one name share the work: each
// request goes to one of them. They can be listed with `nats micro ls`.
type Service struct {
	conn    *Conn
	micro   micro.Service
	refused func(subject string, err error)

	mu      sync.Mutex
	open    int           // calls that wait for their answer
	stopped bool          // no call is begun any more
	idle    chan struct{} // closed when stopped and open is 0
}

// NewService registers a service by name and version (semantic). Refused is
// told of each message that cannot be decoded; it must not block.
func NewService(c *Conn, name, version string, refused func(subject string, err error)) (*Service, error) {
	m, err := micro.AddService(c.nc, micro.Config{Name: name, Version: version, QueueGroup: name})
	if err != nil {
		return nil, translate("register service "+name, err)
	}
	return &Service{conn: c, micro: m, refused: refused, idle: make(chan struct{})}, nil
}

// ID names this one of the services of its name, and is of the characters that
// an edge's id has. It is another one after each start.
func (s *Service) ID() string { return s.micro.Info().ID }

// Stop takes no more requests and returns when every call that was begun is
// answered. Requests that the server has sent already are still served. The
// connection stays. It may be called twice.
func (s *Service) Stop() error {
	err := s.micro.Stop()
	if err == nil && s.conn.Connected() {
		s.conn.settle()
	}
	s.mu.Lock()
	if !s.stopped {
		s.stopped = true
		if s.open == 0 {
			close(s.idle)
		}
	}
	s.mu.Unlock()
	<-s.idle
	return translate("stop service", err)
}

// begin counts a call, unless the service has stopped: whoever asked then
// hears nothing and asks another.
func (s *Service) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return false
	}
	s.open++
	return true
}

func (s *Service) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open--
	if s.stopped && s.open == 0 {
		close(s.idle)
	}
}

// Call is one request that waits for its answer. It must be answered exactly
// once, from any goroutine.
type Call[Req, Resp wire.Message] struct {
	// Edge is who asks: the id in the subject; empty if the pattern has none.
	Edge string
	// Request is what it asks, validated.
	Request Req
	// Received is when it arrived, on the clock of this process.
	Received time.Time

	reply   string
	service *Service
}

// Handle answers the requests on subjects of a pattern of package wire, with an
// asterisk for the id of an edge or without one. Handler is called for one
// request at a time and must not block: it answers later, through the call. What
// NATS sends from a stream is refused, see [Subscribe].
func Handle[Req, Resp wire.Message](s *Service, name, pattern string, handler func(*Call[Req, Resp])) error {
	return handle(s, name, pattern, handler)
}

// HandleOwn is [Handle], and also answers what is asked of this service alone:
// see [wire.OwnSubject].
func HandleOwn[Req, Resp wire.Message](s *Service, name, pattern string, handler func(*Call[Req, Resp])) error {
	return errors.Join(
		handle(s, name, pattern, handler),
		handle(s, name+"-own", wire.OwnSubject(pattern, s.ID()), handler, micro.WithEndpointQueueGroupDisabled()),
	)
}

func handle[Req, Resp wire.Message](
	s *Service, name, pattern string, handler func(*Call[Req, Resp]), opts ...micro.EndpointOpt,
) error {
	err := s.micro.AddEndpoint(name, micro.HandlerFunc(func(r micro.Request) {
		if !s.begin() {
			return
		}
		call := &Call[Req, Resp]{Received: time.Now(), reply: r.Reply(), service: s}
		var err error
		if fromStream(nats.Header(r.Headers()), r.Reply()) {
			err = errFromStream
		} else if strings.Contains(pattern, "*") {
			call.Edge, err = wire.EdgeOf(pattern, r.Subject())
		}
		if err == nil {
			call.Request, err = wire.Decode[Req](r.Data())
		}
		if err != nil {
			s.refused(r.Subject(), err)
			call.Fail(CodeInvalid, err.Error())
			return
		}
		handler(call)
	}), append(opts, micro.WithEndpointSubject(pattern))...)
	return translate("serve "+pattern, err)
}

// Reply answers the call.
func (c *Call[Req, Resp]) Reply(resp Resp) {
	data, err := json.Marshal(resp)
	if err != nil {
		c.Fail(CodeUnavailable, err.Error())
		return
	}
	c.send(&nats.Msg{Subject: c.reply, Data: data})
}

// Fail answers the call with an error; message must hold no secret.
func (c *Call[Req, Resp]) Fail(code Code, message string) {
	c.send(&nats.Msg{Subject: c.reply, Header: nats.Header{
		micro.ErrorCodeHeader: {string(code)},
		micro.ErrorHeader:     {strings.Join(strings.Fields(message), " ")},
	}})
}

// send publishes the reply. Whoever asked and hears nothing asks again, so a
// reply that cannot be sent is dropped.
func (c *Call[Req, Resp]) send(msg *nats.Msg) {
	defer c.service.end()
	if msg.Subject == "" {
		return
	}
	if err := c.service.conn.nc.PublishMsg(msg); err != nil {
		c.service.conn.logger.Debug("reply dropped", "error", err)
	}
}
