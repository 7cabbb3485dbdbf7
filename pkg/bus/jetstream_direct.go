package bus

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	// pageBytes is the most that the server sends of one page.
	pageBytes = 16 << 20
	// pageLook is how often a reader of a page makes sure that the connection
	// over which it comes is still there.
	pageLook = 200 * time.Millisecond
)

// Page is a piece of a stream, read without a consumer.
type Page struct {
	// Messages are in order of their places.
	Messages []StreamMessage
	// Next is where to go on; meaningless when Done.
	Next uint64
	// Done says that the stream held nothing behind this page.
	Done bool
}

// DirectGetPage reads the messages of a stream that match filter, a subject
// that may hold wildcards, from place from on: batch of them at most, and no
// more than 16 MiB. The empty filter means all and is much cheaper for the
// server. It makes nothing on the server. A page is complete or an error. The
// stream must allow direct reads. A ctx without a deadline gets five seconds.
func DirectGetPage(ctx context.Context, c *Conn, stream string, from uint64, batch int, filter string) (Page, error) {
	operation := "read a page of " + stream
	body := map[string]any{"seq": max(from, 1), "batch": batch, "max_bytes": pageBytes}
	if filter != "" {
		body["next_by_subj"] = filter
	}
	request, err := json.Marshal(body)
	if err != nil {
		return Page{}, fmt.Errorf("%s: %w", operation, err)
	}
	page, err := directPage(ctx, c, stream, request, batch)
	if err != nil {
		return Page{}, translate(operation, err)
	}
	return page, nil
}

// DirectGetLast reads the newest message of a subject, or [ErrNotFound]. The
// stream must allow direct reads. A ctx without a deadline gets five seconds.
func DirectGetLast(ctx context.Context, c *Conn, stream, subject string) (StreamMessage, error) {
	operation := "read " + subject
	if !c.nc.IsConnected() {
		return StreamMessage{}, fmt.Errorf("%s: %w", operation, ErrDisconnected)
	}
	request, err := json.Marshal(map[string]string{"last_by_subj": subject})
	if err != nil {
		return StreamMessage{}, fmt.Errorf("%s: %w", operation, err)
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	msg, err := c.nc.RequestWithContext(ctx, directSubject(stream), request)
	if err != nil {
		return StreamMessage{}, translate(operation, err)
	}
	m, _, err := directMessage(msg)
	if err != nil {
		return StreamMessage{}, fmt.Errorf("%s: %w", operation, err)
	}
	return m, nil
}

func directSubject(stream string) string { return "$JS.API.DIRECT.GET." + stream }

func directPage(ctx context.Context, c *Conn, stream string, request []byte, batch int) (Page, error) {
	if !c.nc.IsConnected() {
		return Page{}, ErrDisconnected
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	reconnects := c.nc.Stats().Reconnects
	inbox := c.nc.NewInbox()
	replies := make(chan *nats.Msg, batch+1) // all of a page fits
	sub, err := c.nc.ChanSubscribe(inbox, replies)
	if err != nil {
		return Page{}, err
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := c.nc.PublishRequest(directSubject(stream), inbox, request); err != nil {
		return Page{}, err
	}
	page := Page{Messages: make([]StreamMessage, 0, batch)}
	var last uint64 // place of the message before
	look := time.NewTicker(pageLook)
	defer look.Stop()
	for {
		var msg *nats.Msg
		select {
		case msg = <-replies:
		case <-look.C:
			if !c.nc.IsConnected() || c.nc.Stats().Reconnects != reconnects {
				return Page{}, ErrDisconnected // the rest will not come
			}
			continue
		case <-ctx.Done():
			return Page{}, ctx.Err()
		}
		switch msg.Header.Get(statusHeader) {
		case statusNotFound:
			if len(page.Messages) > 0 {
				return Page{}, ErrGap
			}
			page.Done = true
			return page, nil
		case statusEndOfBatch:
			pending, err := lastNumber(msg.Header, "Nats-Num-Pending")
			if err != nil {
				return Page{}, err
			}
			if n, err := lastNumber(msg.Header, "Nats-Last-Sequence"); err != nil || n != last {
				return Page{}, ErrGap
			}
			page.Done = pending == 0
			page.Next = last + 1
			return page, nil
		}
		m, before, err := directMessage(msg)
		if err != nil {
			return Page{}, err
		}
		if before != last || len(page.Messages) == batch {
			return Page{}, ErrGap
		}
		last = m.Sequence
		page.Messages = append(page.Messages, m)
	}
}

// directMessage reads one message of a direct get, and in a page the place of
// the one before it.
func directMessage(msg *nats.Msg) (m StreamMessage, before uint64, err error) {
	switch status := msg.Header.Get(statusHeader); status {
	case "":
	case statusNoResponders:
		return m, 0, ErrNoResponders
	case statusNotFound:
		return m, 0, ErrNotFound
	default:
		return m, 0, fmt.Errorf("%w: %s %s", ErrRefused, status, msg.Header.Get("Description"))
	}
	m = StreamMessage{Subject: lastHeader(msg.Header, "Nats-Subject"), Data: msg.Data, Deleted: deletes(msg.Header)}
	if m.Sequence, err = lastNumber(msg.Header, "Nats-Sequence"); err != nil {
		return m, 0, err
	}
	if m.Time, err = time.Parse(time.RFC3339Nano, lastHeader(msg.Header, "Nats-Time-Stamp")); err != nil {
		return m, 0, fmt.Errorf("time of message %d: %w", m.Sequence, err)
	}
	if lastHeader(msg.Header, "Nats-Last-Sequence") != "" {
		before, err = lastNumber(msg.Header, "Nats-Last-Sequence")
	}
	return m, before, err
}

// lastHeader returns the last value of a header: the server appends its own to
// those of whoever wrote the message.
func lastHeader(h nats.Header, name string) string {
	values := h[name]
	if len(values) == 0 {
		return ""
	}
	return values[len(values)-1]
}

func lastNumber(h nats.Header, name string) (uint64, error) {
	n, err := strconv.ParseUint(lastHeader(h, name), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("header %s: %w", name, err)
	}
	return n, nil
}

// deletes reports whether a message marks a deleted key of a KV bucket.
func deletes(h nats.Header) bool {
	switch h.Get("KV-Operation") {
	case "DEL", "PURGE":
		return true
	}
	return h.Get("Nats-Marker-Reason") != ""
}
