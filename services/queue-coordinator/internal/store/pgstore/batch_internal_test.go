package pgstore

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/pkg/wire"
	"github.com/ccnq/ccnq/services/queue-coordinator/internal/store"
)

// recorder makes ops and keeps what is reported for them.
type recorder map[int]error

func (r recorder) op(n int, group string) op {
	return op{
		Item:   store.Item{ID: wire.RequestID{14: byte(n >> 8), 15: byte(n)}, Group: group},
		index:  n,
		report: func(i int, res result) { r[i] = res.err },
	}
}

func (r recorder) batch(group string, ns ...int) batch {
	b := batch{kind: admit}
	for _, n := range ns {
		b.ops = append(b.ops, r.op(n, group))
	}
	return b
}

func indexes(ops []op) []int {
	var ns []int
	for _, o := range ops {
		ns = append(ns, o.index)
	}
	return ns
}

func TestBatchRound(t *testing.T) {
	t.Parallel()
	r := recorder{}

	b := r.batch("g", 1, 2, 3)
	next, index := b.round()
	require.Equal(t, []int{1, 2, 3}, indexes(next.ops))
	require.Empty(t, b.ops)
	require.Equal(t, 2, index[next.ops[2].ID])

	b = r.batch("g", 1, 2, 1, 3, 1)
	next, index = b.round()
	require.Equal(t, []int{1, 2, 3}, indexes(next.ops), "an id comes once in a transaction")
	require.Equal(t, 2, index[next.ops[2].ID])
	require.Equal(t, []int{1, 1}, indexes(b.ops))

	b = batch{}
	for n := range MaxBatch + 7 {
		b.ops = append(b.ops, r.op(n, "g"))
	}
	next, _ = b.round()
	require.Len(t, next.ops, MaxBatch)
	require.Len(t, b.ops, 7)
	require.Equal(t, MaxBatch, b.ops[0].index)
}

func TestBatchExpire(t *testing.T) {
	t.Parallel()
	r := recorder{}
	now := time.Now()
	b := r.batch("g", 1, 2, 3)
	for i, d := range []time.Duration{-time.Second, time.Second, 0} {
		b.ops[i].Deadline = now.Add(d)
	}
	b.expire(now, store.ErrExpired)
	require.Equal(t, []int{2}, indexes(b.ops))
	require.Equal(t, recorder{1: store.ErrExpired, 3: store.ErrExpired}, r)
}

// idleLane is a slow lane whose goroutine does not run.
func idleLane() *slowLane {
	l := &slowLane{}
	l.init(&Store{log: slog.New(slog.DiscardHandler)})
	l.running = true
	return l
}

func TestSlowLane(t *testing.T) {
	t.Parallel()

	t.Run("Close", func(t *testing.T) {
		t.Parallel()
		l, r := idleLane(), recorder{}
		l.close()
		l.add(r.batch("g", 1))
		require.Equal(t, recorder{1: store.ErrClosed}, r)
	})

	t.Run("Divert", func(t *testing.T) {
		t.Parallel()
		l, r := idleLane(), recorder{}
		l.add(r.batch("g", 1))
		b := r.batch("h", 2, 3)
		b.ops = append(b.ops, r.op(4, "g"))
		require.Equal(t, []int{2, 3}, indexes(l.divert(b).ops))
		waiting, ok := l.take()
		require.True(t, ok)
		require.Equal(t, []int{1, 4}, indexes(waiting[0].ops))

		l.unmark(waiting[0], batch{})
		require.Equal(t, []int{5}, indexes(l.divert(r.batch("g", 5)).ops), "no longer known as locked")
		_, ok = l.take()
		require.False(t, ok)
	})

	t.Run("OrderOfArrival", func(t *testing.T) {
		t.Parallel()
		l, r := idleLane(), recorder{}
		l.add(r.batch("g", 1, 2))
		tried, _ := l.take()
		l.divert(r.batch("g", 3)) // comes while the others are tried
		l.addAgain(tried[0])
		waiting, _ := l.take()
		require.Len(t, waiting, 1)
		require.Equal(t, []int{1, 2, 3}, indexes(waiting[0].ops))
	})

	t.Run("Room", func(t *testing.T) {
		t.Parallel()
		l, r := idleLane(), recorder{}
		full := batch{}
		for range slowRoom {
			full.ops = append(full.ops, r.op(1, "g"))
		}
		l.add(full)
		require.Empty(t, r)
		l.add(r.batch("g", 2))
		require.Equal(t, recorder{2: store.ErrBusy}, r)
	})
}
