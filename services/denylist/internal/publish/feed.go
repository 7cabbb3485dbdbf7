package publish

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"github.com/ccnq/ccnq/pkg/bus"
	"github.com/ccnq/ccnq/services/denylist/internal/store"
)

// all is above every version.
const all = math.MaxInt64

// errOver means that the term has ended.
var errOver = errors.New("the term is over")

// isOver reports whether somebody else may lead.
func isOver(err error) bool { return errors.Is(err, errOver) || errors.Is(err, store.ErrNotLeader) }

// isMissing reports whether a stream is not there.
func isMissing(err error) bool {
	return errors.Is(err, bus.ErrNotFound) || errors.Is(err, bus.ErrNoResponders)
}

// feed is one way of the changes.
type feed struct {
	p       *Publisher
	way     int
	epoch   int64
	begun   bool
	version int64 // the last change that is through
	push    func(context.Context, []store.Change) error
}

// drain pushes the changes up to a version, or up to the present end if there
// are fewer.
func (f *feed) drain(ctx context.Context, upTo int64) error {
	if !f.begun {
		version, err := f.p.published.begin(ctx, f.p.opts.Store, f.epoch)
		if err != nil {
			return err
		}
		f.version, f.begun = version, true
	}
	for {
		changes, err := f.p.opts.Store.Changes(ctx, f.version, pageSize)
		if err != nil {
			return err
		}
		full := len(changes) == pageSize
		for len(changes) > 0 && changes[len(changes)-1].Version > upTo {
			changes = changes[:len(changes)-1]
			full = false
		}
		if len(changes) == 0 {
			return nil
		}
		if err := f.push(ctx, changes); err != nil {
			return err
		}
		f.version = changes[len(changes)-1].Version
		if err := f.p.published.note(ctx, f.p.opts.Store, f.way, f.epoch, f.version); err != nil {
			return err
		}
		if !full {
			return nil
		}
	}
}

// publication is how far both ways are in one term.
type publication struct {
	mu       sync.Mutex
	epoch    int64
	versions [2]int64
	noted    int64
}

// begin returns the version from which a term goes on.
func (n *publication) begin(ctx context.Context, st store.Store, epoch int64) (int64, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.epoch == epoch {
		return n.noted, nil
	}
	totals, err := st.Totals(ctx, time.Now())
	if err != nil {
		return 0, err
	}
	n.epoch, n.noted = epoch, totals.Published
	n.versions = [2]int64{n.noted, n.noted}
	return n.noted, nil
}

// through returns the version that a way is through with.
func (n *publication) through(way int) int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.versions[way]
}

// note keeps that one way is through with a version, and tells the store what
// both are through with.
func (n *publication) note(ctx context.Context, st store.Store, way int, epoch, version int64) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.versions[way] = version
	both := min(n.versions[toBucket], n.versions[toEvents])
	if both <= n.noted {
		return nil
	}
	if err := st.SetPublished(ctx, epoch, both); err != nil {
		return err
	}
	n.noted = both
	return nil
}
