package bus

import (
	"github.com/nats-io/nats.go"
)

const (
	// watchPending and watchBytes bound what waits for the handler of a
	// [Watch]; what comes on top is lost, and counted.
	watchPending = 200_000
	watchBytes   = 64 << 20
)

// Watch is a live subscription to what is being written. It sees messages
// before, and even if, the stream takes them: the reader must know a stale one
// by its content.
type Watch struct {
	nc  *nats.Conn
	sub *nats.Subscription
}

// WatchSubject calls handle with each message on subject from now on, one at a
// time in order of arrival, until the watch is stopped or the connection
// closed. It asks nothing of JetStream and needs no right to make a consumer.
// Places and times are not known. What NATS sends from a stream is left out: a
// reader of the stream can have it sent to any subject. The server has the subscription when a later
// [Conn.Ping] returns nil. It stays over reconnects, but what was written
// meanwhile is missed.
func WatchSubject(c *Conn, subject string, handle func(StreamMessage)) (*Watch, error) {
	sub, err := c.nc.Subscribe(subject, func(msg *nats.Msg) {
		if fromStream(msg.Header, msg.Reply) {
			c.warn("sent a forged message", errFromStream, msg.Subject)
			return
		}
		handle(StreamMessage{Subject: msg.Subject, Data: msg.Data, Deleted: deletes(msg.Header)})
	})
	if err != nil {
		return nil, translate("watch "+subject, err)
	}
	if err := sub.SetPendingLimits(watchPending, watchBytes); err != nil {
		_ = sub.Unsubscribe()
		return nil, translate("watch "+subject, err)
	}
	return &Watch{nc: c.nc, sub: sub}, nil
}

// Lost returns how many messages came too fast for the handler and were
// dropped, since the watch began.
func (w *Watch) Lost() int {
	n, err := w.sub.Dropped()
	if err != nil {
		return 0 // the connection is closed
	}
	return n
}

// Reconnects returns how often the connection has come back after a break. What
// was written during a break is missed.
func (w *Watch) Reconnects() uint64 { return w.nc.Stats().Reconnects }

// Waiting returns how many messages wait for the handler.
func (w *Watch) Waiting() int {
	n, _, err := w.sub.Pending()
	if err != nil {
		return 0
	}
	return n
}

// Stop ends the watch. A handler that runs is not waited for.
func (w *Watch) Stop() { _ = w.sub.Unsubscribe() }
