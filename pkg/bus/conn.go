package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/ccnq/ccnq/pkg/wire"
)

const (
	// A server that answers nothing for pingInterval × maxPings is given up,
	// and the next one dialled.
	pingInterval = 2 * time.Second
	maxPings     = 2
	// A write that the kernel does not take for this long breaks the
	// connection: a frozen server must not block those who publish.
	writeTimeout   = 2 * time.Second
	dialTimeout    = 2 * time.Second
	reconnectWait  = 250 * time.Millisecond
	reconnectExtra = 250 * time.Millisecond
)

// Options say where NATS is and how to present oneself.
type Options struct {
	// URL is one server or several, separated by commas. Ignored when
	// InProcess is set.
	URL string
	// InProcess dials a server of this process, without a socket.
	InProcess nats.InProcessConnProvider
	// Name is shown in the server's list of connections.
	Name string
	// InboxPrefix is the first token of reply subjects. Empty means
	// [wire.InboxPrefix] of the name in UserFile, so that permissions can keep
	// the replies of one user from another; without a UserFile, the library's.
	InboxPrefix string
	// CredsFile holds a user's JWT and key; UserFile and PasswordFile, or
	// TokenFile, hold plain ones. Each is read again at every connect, so a
	// changed file needs no restart. Empty means none.
	CredsFile, UserFile, PasswordFile, TokenFile string
	// CAFile verifies the server's certificate, instead of the system's roots.
	CAFile string
	// OnChange is called with the new state whenever the connection comes up
	// or goes down, from a goroutine of the library; it must not block. May be
	// nil.
	OnChange func(connected bool)
	// Logger receives one line for each change and each error that is not a
	// repetition. Required.
	Logger *slog.Logger
}

// Conn is a connection to NATS that restores itself. It is safe for concurrent
// use.
type Conn struct {
	nc          *nats.Conn
	logger      *slog.Logger
	downAt      atomic.Int64           // Unix nanoseconds; 0 while connected
	lastWarning atomic.Pointer[string] // since the connection came up
}

// Connect returns a connection at once, whether or not a server can be reached
// yet; dialling goes on in the background. An error means that the options are
// no good, such as a credentials file that cannot be read.
func Connect(opts Options) (*Conn, error) {
	c := &Conn{logger: opts.Logger}
	c.downAt.Store(time.Now().UnixNano())
	change := func(connected bool) {
		if changed := c.record(connected); changed && opts.OnChange != nil {
			opts.OnChange(connected)
		}
	}
	auth, err := authOptions(opts)
	if err != nil {
		return nil, err
	}
	natsOpts := slices.Concat(auth, []nats.Option{
		nats.Name(opts.Name),
		nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(reconnectWait),
		nats.ReconnectJitter(reconnectExtra, reconnectExtra),
		nats.ReconnectBufSize(-1),
		nats.IgnoreAuthErrorAbort(),
		nats.PingInterval(pingInterval),
		nats.MaxPingsOutstanding(maxPings),
		nats.FlusherTimeout(writeTimeout),
		nats.Timeout(dialTimeout),
		nats.ConnectHandler(func(*nats.Conn) {
			c.logger.Info("connected to NATS")
			change(true)
		}),
		nats.ReconnectHandler(func(*nats.Conn) {
			c.logger.Info("connected to NATS again")
			change(true)
		}),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				c.logger.Warn("lost NATS", "error", err)
			}
			change(false)
		}),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) { c.warn("cannot be reached", err, "") }),
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) {
			subject := ""
			if sub != nil {
				subject = sub.Subject
			}
			c.warn("reported an error", err, subject)
		}),
	})
	inbox, err := inboxPrefix(opts)
	if err != nil {
		return nil, err
	}
	if inbox != "" {
		natsOpts = append(natsOpts, nats.CustomInboxPrefix(inbox))
	}
	if opts.InProcess != nil {
		natsOpts = append(natsOpts, nats.InProcessServer(opts.InProcess))
	}
	c.nc, err = nats.Connect(opts.URL, natsOpts...)
	if err != nil {
		return nil, fmt.Errorf("connect to NATS: %w", err)
	}
	if c.nc.IsConnected() {
		change(true)
	}
	return c, nil
}

// record keeps the state of the connection and reports whether it is new.
func (c *Conn) record(connected bool) bool {
	if !connected {
		return c.downAt.CompareAndSwap(0, time.Now().UnixNano())
	}
	c.lastWarning.Store(nil)
	return c.downAt.Swap(0) != 0
}

// warn logs an error of the client library, but not again while the same one
// repeats: a server that is away fails every dial in the same way.
func (c *Conn) warn(what string, err error, subject string) {
	text := what + ": " + err.Error() + " " + subject
	if last := c.lastWarning.Swap(&text); last != nil && *last == text {
		return
	}
	c.logger.Warn("trouble with NATS", "what", what, "error", err, "subject", subject)
}

// Connected reports whether the connection is up.
func (c *Conn) Connected() bool { return c.nc.IsConnected() }

// Down returns for how long the connection has been away; 0 while it is up.
func (c *Conn) Down() time.Duration {
	at := c.downAt.Load()
	if at == 0 {
		return 0
	}
	return max(time.Duration(time.Now().UnixNano()-at), 1)
}

// Ping returns nil once the server has answered, and an error if it does not
// until ctx ends, which must have a deadline. It shows that the connection
// works now; [Conn.Connected] only says that nobody has noticed otherwise.
func (c *Conn) Ping(ctx context.Context) error {
	if !c.nc.IsConnected() {
		return fmt.Errorf("ping: %w", ErrDisconnected)
	}
	return translate("ping", c.nc.FlushWithContext(ctx))
}

// Close sends what is buffered, for two seconds at most, and ends the
// connection with all its subscriptions. It may be called twice.
func (c *Conn) Close() {
	if c.nc.IsConnected() {
		if err := c.nc.FlushTimeout(writeTimeout); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
			c.logger.Warn("what was sent last may not have reached NATS", "error", err)
		}
	}
	c.nc.Close()
}

// settle waits, for two write timeouts at most, until the server has sent what
// it meant for this connection before now and every handler has seen its share.
func (c *Conn) settle() {
	if c.nc.FlushTimeout(writeTimeout) != nil {
		return
	}
	seen := make(chan struct{})
	if c.nc.Barrier(func() { close(seen) }) != nil {
		return
	}
	timeout := time.NewTimer(writeTimeout)
	defer timeout.Stop()
	select {
	case <-seen:
	case <-timeout.C:
	}
}

// Publish sends m to whoever listens; nobody acknowledges it.
func Publish[M wire.Message](c *Conn, subject string, m M) error {
	data, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("publish to %s: %w", subject, err)
	}
	if !c.nc.IsConnected() {
		return fmt.Errorf("publish to %s: %w", subject, ErrDisconnected)
	}
	return translate("publish to "+subject, c.nc.Publish(subject, data))
}

// fromStream reports whether NATS itself sent a message, as the answer to who
// reads a stream. A reader can have it sent to any subject, so on a subject that
// others write to it is a forgery, whatever it says.
func fromStream(header nats.Header, reply string) bool {
	return lastHeader(header, "Nats-Stream") != "" || strings.HasPrefix(reply, "$JS.ACK.")
}

// Subscribe calls handle with each message on subject, one at a time in order
// of arrival, until the connection is closed. A message that cannot be decoded,
// or that NATS sent from a stream, is handed to refused instead.
func Subscribe[M wire.Message](c *Conn, subject string, handle func(M), refused func(error)) error {
	_, err := c.nc.Subscribe(subject, func(msg *nats.Msg) {
		m, err := wire.Decode[M](msg.Data)
		if fromStream(msg.Header, msg.Reply) {
			err = errFromStream
		}
		if err != nil {
			refused(fmt.Errorf("on %s: %w", msg.Subject, err))
			return
		}
		handle(m)
	})
	return translate("subscribe to "+subject, err)
}
