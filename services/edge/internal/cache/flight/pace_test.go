package flight

import (
	"context"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// pour writes so many bytes, a piece at a time, and counts what it wrote.
func pour(total int, written *int) fetch {
	return func(ctx context.Context, feed *Feed[string]) bool {
		feed.Share("head")
		for *written < total {
			if feed.Write(ctx, make([]byte, 16*kib)) != nil {
				return false
			}
			*written += 16 * kib
		}
		return true
	}
}

func skim(t *testing.T, a *Asker[string], n int) {
	t.Helper()
	for n > 0 {
		piece, err := a.Next(t.Context(), nil)
		require.NoError(t, err)
		n -= len(piece)
	}
	require.Zero(t, n)
}

// TestPace: within the limit of an item the fastest reader sets the pace.
func TestPace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		written := 0
		slow := w.join(t, w.asker(alice, w.free, pour(192*kib, &written)))
		synctest.Wait()
		require.Equal(t, 64*kib, written, "a window ahead of a reader who does not read")
		fast := w.join(t, w.asker(bob, w.free, pour(192*kib, &written)))
		skim(t, fast, 64*kib)
		synctest.Wait()
		require.Equal(t, 128*kib, written, "the fastest sets the pace")
		<-time.After(10 * stall) // fake time
		skim(t, fast, 128*kib)
		_, err := fast.Next(t.Context(), nil)
		require.ErrorIs(t, err, io.EOF)
		fast.Leave()
		skim(t, slow, 192*kib)
		slow.Leave()
		require.Zero(t, w.CutLoose())
	})
}

// slowAndFast joins two readers of a body of so many bytes.
func (w *world) slowAndFast(t *testing.T, size int, written *int) (slow, fast *Asker[string]) {
	t.Helper()
	slow = w.join(t, w.asker(alice, w.free, pour(size, written)))
	return slow, w.join(t, w.asker(bob, w.free, pour(size, written)))
}

func TestPaceWhenTheFastestLeaves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		written := 0
		slow, fast := w.slowAndFast(t, 192*kib, &written)
		skim(t, fast, 96*kib)
		fast.Leave()
		skim(t, slow, 192*kib)
		slow.Leave()
	})
}

// TestBeyondTheLimit: nobody joins, and the slowest sets the pace.
func TestBeyondTheLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		written := 0
		slow, fast := w.slowAndFast(t, 1024*kib, &written)
		skim(t, fast, 272*kib)
		synctest.Wait()
		require.False(t, w.Flying(page))
		require.LessOrEqual(t, w.Held(), int64(272*kib), "what is kept is bounded")
		require.Equal(t, 272*kib, written)
		skim(t, slow, 128*kib)
		skim(t, fast, 128*kib)
		synctest.Wait()
		require.Equal(t, 400*kib, written)
		slow.Leave()
		skim(t, fast, 624*kib)
		_, err := fast.Next(t.Context(), nil)
		require.ErrorIs(t, err, io.EOF)
		fast.Leave()
	})
}

// TestAReaderThatStallsOthersIsCutLoose, but not one that is alone, however
// long it rests.
func TestAReaderThatStallsOthersIsCutLoose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		written := 0
		slow, fast := w.slowAndFast(t, 1024*kib, &written)
		skim(t, fast, 272*kib)
		began := time.Now()
		skim(t, fast, 16*kib) // comes when the other is cut
		require.Equal(t, stall, time.Since(began))
		_, err := slow.Next(t.Context(), nil)
		require.ErrorIs(t, err, ErrTooSlow)
		slow.Leave()
		require.EqualValues(t, 1, w.CutLoose())
		<-time.After(10 * stall) // fake time
		skim(t, fast, 736*kib)
		_, err = fast.Next(t.Context(), nil)
		require.ErrorIs(t, err, io.EOF)
		fast.Leave()
	})
}

// TestBudgetOfAllFlights: when all flights together hold too much, those that
// want more are closed.
func TestBudgetOfAllFlights(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		const each, number = 160 * kib, 16
		written := make([]int, number)
		all := make([]*Asker[string], number)
		for i := range all {
			all[i] = w.asker(alice, w.free, pour(each, &written[i]))
			require.True(t, w.Join(Key{Primary: [16]byte{byte(i)}}, all[i]))
			skim(t, all[i], 96*kib)
		}
		synctest.Wait()
		require.LessOrEqual(t, w.Held(), int64((1024+number*(64+16))*kib))
		closed := 0
		for i := range all {
			if !w.Flying(Key{Primary: [16]byte{byte(i)}}) {
				closed++
			}
		}
		require.Positive(t, closed)
		for _, a := range all {
			skim(t, a, each-96*kib)
			_, err := a.Next(t.Context(), nil)
			require.ErrorIs(t, err, io.EOF)
			a.Leave()
		}
	})
}

// TestKeep: what is wanted for later is fetched to its end without readers, up
// to the limit of an item.
func TestKeep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		written := 0
		var body [][]byte
		a := w.join(t, w.asker(alice, w.free, func(ctx context.Context, feed *Feed[string]) bool {
			feed.Expect(192 * kib)
			complete := pour(192*kib, &written)(ctx, feed)
			body, _ = feed.Body()
			return complete
		}))
		requireNews(t, HeadCame, a)
		a.Keep()
		a.Leave()
		synctest.Wait()
		require.Equal(t, 192*kib, written)
		require.Len(t, body, 1, "in one piece, since its length was known")

		large, ended := 0, false
		b := w.asker(alice, w.free, func(ctx context.Context, feed *Feed[string]) bool {
			ok := pour(1024*kib, &large)(ctx, feed)
			ended = true
			return ok
		})
		w.join(t, b)
		requireNews(t, HeadCame, b)
		b.Keep()
		b.Leave()
		synctest.Wait()
		require.True(t, ended)
		require.Equal(t, 2, w.over)
		require.LessOrEqual(t, large, 288*kib)
	})
}
