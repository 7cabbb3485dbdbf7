package memstore

import (
	"time"

	"github.com/ccnq/ccnq/pkg/wire"
	"github.com/ccnq/ccnq/services/queue-coordinator/internal/store"
)

// request is one row: active or waiting in exactly one line of its group.
type request struct {
	id    wire.RequestID
	group *group
	edge  *edge
	// in is the line that the request stands in: group.active or group.waiting.
	in *line
	// since is when it came into this line.
	since      time.Time
	prev, next *request
}

// line is a list of requests in order of arrival. A request is its own node,
// so that it can leave from the middle without a search.
type line struct {
	first, last *request
	n           int
}

func (l *line) push(r *request, now time.Time) {
	r.in, r.since, r.prev, r.next = l, now, l.last, nil
	if l.last == nil {
		l.first = r
	} else {
		l.last.next = r
	}
	l.last = r
	l.n++
}

// leave takes r out of the line that it stands in.
func (r *request) leave() {
	l := r.in
	if r.prev == nil {
		l.first = r.next
	} else {
		r.prev.next = r.next
	}
	if r.next == nil {
		l.last = r.prev
	} else {
		r.next.prev = r.prev
	}
	l.n--
	r.in, r.prev, r.next = nil, nil, nil
}

// group is one client network.
type group struct {
	key             string
	active, waiting line
	estimate        store.Estimate
	lastActive      time.Time

	// What the current call took out, see call.free. Zero between calls.
	freed   int
	wasFull bool
	// received is the earliest [store.Item.Received] of those.
	received time.Time
}

// edge is one edge that has a lease.
type edge struct {
	id      string
	epoch   int64
	lease   time.Duration
	expires time.Time
	// requests are all that belong to the edge.
	requests map[*request]struct{}
}

func (e *edge) live(now time.Time) bool { return now.Before(e.expires) }
