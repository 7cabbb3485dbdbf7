package rpc

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/ccnq/ccnq/pkg/bus"
	"github.com/ccnq/ccnq/pkg/wire"
	"github.com/ccnq/ccnq/services/queue-coordinator/internal/store"
)

// releaseCall is one message with several items. They are batched one by one,
// so that a large message does not make a large batch, and the call is
// answered when the last of them is done.
type releaseCall struct {
	*bus.Call[wire.ReleaseRequest, wire.ReleaseReply]
	by      wire.By
	metrics *metrics
	open    atomic.Int64
	failed  atomic.Pointer[error] // of one of the items
}

// releaseItem is one item of a call.
type releaseItem struct {
	call *releaseCall
	item *wire.Item
}

func (s *Server) release(call *bus.Call[wire.ReleaseRequest, wire.ReleaseReply]) {
	release := &releaseCall{Call: call, by: s.by, metrics: s.metrics}
	release.open.Store(int64(len(call.Request.Items)))
	deadline := call.Received.Add(opTimeout)
	for i := range call.Request.Items {
		s.releases.Submit(releaseItem{release, &call.Request.Items[i]}, deadline)
	}
}

func (s *Server) runReleases(batch []releaseItem) {
	taken := append([]releaseItem(nil), batch...)
	items := make([]store.Item, len(taken))
	for i, r := range taken {
		items[i] = storeItem(r.call.Edge, r.item.RequestID, r.item.Bucket, r.call.Received, r.deadline())
	}
	s.opts.Store.Release(context.Background(), s.opts.Limits, items, func(i int, err error) {
		if err != nil {
			s.metrics.count(opRelease, string(taken[i].fail(err)))
			return
		}
		s.metrics.count(opRelease, resultOK)
		taken[i].call.finish()
	})
}

func (r releaseItem) deadline() time.Time { return r.call.Received.Add(opTimeout) }

// fail makes the whole call fail: the edge sends all of it again.
func (r releaseItem) fail(err error) bus.Code {
	r.call.failed.Store(&err)
	r.call.finish()
	code, _ := codeOf(err)
	return code
}

// finish counts one item as done and answers after the last.
func (c *releaseCall) finish() {
	if c.open.Add(-1) > 0 {
		return
	}
	if err := c.failed.Load(); err != nil {
		failCall(c.Call, *err)
		return
	}
	c.Reply(wire.ReleaseReply{By: c.by})
}
