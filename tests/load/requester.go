package main

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/ccnq/ccnq/pkg/bus"
	"github.com/ccnq/ccnq/pkg/wire"
)

const (
	// answerWait bounds the wait for any answer of a coordinator.
	answerWait = 10 * time.Second
	// retryWait is the pause before the same is asked again.
	retryWait = 20 * time.Millisecond
	// senders is the number of releases under way at once, as at an edge;
	// what is to be released meanwhile goes as one message.
	senders = 8
)

// requester asks coordinators as an edge does.
type requester struct {
	id   string
	conn *bus.Conn

	releases  chan wire.Item
	unsettled sync.WaitGroup // releases without an answer
	sending   sync.WaitGroup
	once      sync.Once
	failed    chan struct{} // closed when err is set
	err       error

	mu      sync.Mutex
	waiting map[wire.RequestID]chan struct{}
}

// newRequester connects to NATS.
func newRequester(c *closers, nats string) (*requester, error) {
	r := &requester{
		id:       "load",
		releases: make(chan wire.Item, requesters),
		failed:   make(chan struct{}),
		waiting:  map[wire.RequestID]chan struct{}{},
	}
	var err error
	r.conn, err = bus.Connect(bus.Options{
		URL: nats, Name: r.id, InboxPrefix: wire.InboxPrefix(r.id), Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, err
	}
	for range senders {
		r.sending.Go(r.send)
	}
	c.add(func() error {
		close(r.releases)
		r.sending.Wait()
		r.conn.Close()
		select {
		case <-r.failed:
			return r.err
		default:
			return nil
		}
	})
	return r, bus.Subscribe(r.conn, wire.EdgeSubject(wire.SubjectPromoted, r.id), r.promoted, r.fail)
}

func (r *requester) fail(err error) {
	r.once.Do(func() {
		r.err = err
		close(r.failed)
	})
}

// admit gets a place, and waits in line for it if need be.
func (r *requester) admit(group string) (wire.Item, error) {
	item := wire.Item{RequestID: newID(), Bucket: wire.Bucket{Kind: wire.KindGroup, Key: group}}
	turn := make(chan struct{})
	r.mu.Lock()
	r.waiting[item.RequestID] = turn
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		delete(r.waiting, item.RequestID)
		r.mu.Unlock()
	}()
	ctx, cancel := context.WithTimeout(context.Background(), answerWait)
	defer cancel()
	reply, err := patiently[wire.AdmitRequest, wire.AdmitReply](ctx, r, wire.SubjectAdmit, wire.AdmitRequest{
		RequestID: item.RequestID, Bucket: item.Bucket, BudgetMS: answerWait.Milliseconds(),
	})
	switch {
	case err != nil:
		return item, err
	case reply.Decision == wire.Admitted:
		return item, nil
	case reply.Decision == wire.Rejected:
		return item, errors.New("a request was rejected")
	}
	select {
	case <-turn:
		return item, nil
	case <-ctx.Done():
		return item, errors.New("a request that waits was not promoted")
	case <-r.failed:
		return item, r.err
	}
}

func (r *requester) promoted(m wire.Promoted) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range m.RequestIDs {
		if turn := r.waiting[id]; turn != nil {
			delete(r.waiting, id)
			close(turn)
		}
	}
}

// release gives a place back, soon.
func (r *requester) release(item wire.Item) {
	r.unsettled.Add(1)
	r.releases <- item
}

// settle waits until all places have been given back.
func (r *requester) settle() { r.unsettled.Wait() }

// send sends releases until there are no more.
func (r *requester) send() {
	for item := range r.releases {
		items := []wire.Item{item}
		for more := true; more && len(items) < wire.MaxItems; {
			select {
			case item, more = <-r.releases:
				if more {
					items = append(items, item)
				}
			default:
				more = false
			}
		}
		if err := r.releaseNow(items); err != nil {
			r.fail(err)
		}
		r.unsettled.Add(-len(items))
	}
}

// releaseNow gives places back and waits for the answer.
func (r *requester) releaseNow(items []wire.Item) error {
	ctx, cancel := context.WithTimeout(context.Background(), answerWait)
	defer cancel()
	_, err := patiently[wire.ReleaseRequest, wire.ReleaseReply](ctx, r, wire.SubjectRelease, wire.ReleaseRequest{Items: items})
	return err
}

// patiently asks again when a coordinator says that it cannot answer now, as
// one without batches does when it has too much to do. All questions are
// idempotent.
func patiently[Req, Resp wire.Message](ctx context.Context, r *requester, subject string, req Req) (Resp, error) {
	for {
		resp, err := bus.Request[Req, Resp](ctx, r.conn, wire.EdgeSubject(subject, r.id), req)
		switch bus.CodeOf(err) {
		case bus.CodeBusy, bus.CodeExpired, bus.CodeUnavailable:
		default:
			return resp, err
		}
		select {
		case <-time.After(retryWait):
		case <-ctx.Done():
			return resp, err
		}
	}
}

// newID makes an id that begins with the time and goes on at random, as a
// UUIDv7 does.
func newID() (id wire.RequestID) {
	_, _ = rand.Read(id[6:]) // never fails
	var now [8]byte
	binary.BigEndian.PutUint64(now[:], uint64(time.Now().UnixMilli()))
	copy(id[:6], now[2:])
	return id
}

// groupKey names the nth group.
func groupKey(n int) string { return fmt.Sprintf("10.%d.%d.0/24", n>>8&0xff, n&0xff) }
