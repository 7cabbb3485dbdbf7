package storetest

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/pkg/wire"
	"github.com/ccnq/ccnq/services/denylist/internal/store"
)

// exerciseConcurrent lets two processes apply the same stream at the same time,
// as a leader that does not know that it is none any more, while operators
// block and lift and a reader follows the changes.
func exerciseConcurrent(t *testing.T, newState func(testing.TB) State) {
	t.Helper()
	state := newState(t)
	b := newBundle(t, state, store.DefaultSettings())
	const n = 60
	var stream []store.Record
	for i := range n {
		stream = append(stream, b.record(
			denied(fmt.Sprintf("198.51.100.%d", i), 1, noon), denied("203.0.113.7", 1, noon)))
	}
	ctx := t.Context()
	var work, reader sync.WaitGroup
	for range 2 {
		work.Go(func() {
			s := state.Open(store.DefaultSettings(), b.clock.read)
			for {
				at, err := s.Checkpoint(ctx)
				if err != nil {
					t.Errorf("checkpoint: %v", err)
					return
				}
				if at.Seq == n {
					return
				}
				r := stream[at.Seq]
				_, err = s.Apply(ctx, b.epoch, at, store.Batch{
					Records: []store.Record{r}, Next: store.Checkpoint{Created: created, Seq: r.Seq},
				})
				if err != nil && !errors.Is(err, store.ErrCheckpoint) {
					t.Errorf("apply %d: %v", r.Seq, err)
					return
				}
			}
		})
	}
	for i := range 3 {
		work.Go(func() {
			for j := range 10 {
				o := order(fmt.Sprintf("192.0.2.%d", (i+j)%4))
				if _, err := b.store.Block(ctx, o, time.Hour); err != nil {
					t.Errorf("block: %v", err)
				}
				if _, err := b.store.Unblock(ctx, o, false); err != nil {
					t.Errorf("unblock: %v", err)
				}
			}
		})
	}
	done := make(chan struct{})
	var followed []store.Change
	reader.Go(func() {
		last := int64(0)
		for ended := false; ; {
			select {
			case <-done:
				ended = true
			default:
			}
			got, err := b.store.Changes(ctx, last, 3)
			if err != nil {
				t.Errorf("changes: %v", err)
				return
			}
			followed = append(followed, got...)
			if len(got) > 0 {
				last = got[len(got)-1].Version
			} else if ended {
				return
			}
		}
	})
	work.Wait()
	close(done)
	reader.Wait()
	require.Equal(t, map[string]int64{"2030-03-10": n}, b.count("203.0.113.7"))
	require.Equal(t, b.changes(0), followed, "a reader misses nothing")
	ends := make(map[string]time.Time)
	for _, c := range followed {
		ends[c.Target] = c.BlockedUntil
	}
	tables := b.blocks(wire.ScopeIP)
	for target, end := range b.blocks(wire.ScopeRange) {
		tables[target] = end
	}
	require.Equal(t, tables, ends, "the changes lead to the tables")
}
