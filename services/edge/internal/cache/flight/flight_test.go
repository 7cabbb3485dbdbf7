package flight

import (
	"context"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ccnq/ccnq/services/edge/internal/admission"
)

func TestOneFetchForAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		goOn := make(chan struct{})
		var all []*Asker[string]
		for range 1000 {
			all = append(all, w.join(t, w.asker(alice, w.free, func(ctx context.Context, feed *Feed[string]) bool {
				<-goOn
				return say("the page")(ctx, feed)
			})))
		}
		synctest.Wait()
		require.Equal(t, 1, w.count())
		close(goOn)
		for _, a := range all {
			require.Equal(t, "the page", read(t, a))
			require.Equal(t, a == all[0], a.Leads())
			a.Leave()
		}
		require.Equal(t, 1, w.count())
		require.False(t, w.Flying(page))
	})
}

func TestFollowersReadWhileTheFetchWrites(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		more := make(chan string)
		do := func(ctx context.Context, feed *Feed[string]) bool {
			feed.Share("head")
			for text := range more {
				if feed.Write(ctx, []byte(text)) != nil {
					return false
				}
				feed.Flush()
			}
			return true
		}
		first := w.join(t, w.asker(alice, w.free, do))
		more <- "one "
		requireNews(t, HeadCame, first)
		late := w.join(t, w.asker(bob, w.free, do))
		requireNews(t, HeadCame, late)
		for _, a := range []*Asker[string]{first, late} {
			piece, err := a.Next(t.Context(), nil)
			require.NoError(t, err)
			require.Equal(t, "one ", string(piece))
		}
		idle := 0
		go func() { more <- "two" }()
		piece, err := first.Next(t.Context(), func() { idle++ })
		require.NoError(t, err)
		require.Equal(t, "two", string(piece))
		require.Equal(t, 1, idle, "told before it waits")
		close(more)
		_, err = first.Next(t.Context(), nil)
		require.ErrorIs(t, err, io.EOF)
		size, whole := first.Whole()
		require.True(t, whole)
		require.EqualValues(t, 7, size)
		first.Leave()
		piece, err = late.Next(t.Context(), nil)
		require.NoError(t, err)
		require.Equal(t, "two", string(piece), "the end is kept for the slow one")
		late.Leave()
	})
}

// TestABusyGroupHoldsUpNobodyElse: the lane that is admitted leads, and the
// other's search is cancelled.
func TestABusyGroupHoldsUpNobodyElse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		busy, quiet := make(line), make(line)
		cancelled := false
		searching := w.board(busy)
		a := w.join(t, w.asker(alice, func(ctx context.Context) Seat {
			seat := searching(ctx)
			cancelled = ctx.Err() != nil
			return seat
		}, say("by alice")))
		b := w.join(t, w.asker(bob, w.board(quiet), say("by bob")))
		synctest.Wait()
		require.Zero(t, w.count(), "nobody leads who was not admitted")
		quiet <- true
		require.Equal(t, "by bob", read(t, a))
		require.Equal(t, "by bob", read(t, b))
		synctest.Wait()
		require.True(t, cancelled, "the search of the other lane is over")
		require.Equal(t, 1, w.count())
		a.Leave()
		b.Leave()
	})
}

// TestOneOfALaneSeeksAtATime, and those who are refused make room for the next,
// in the order of arrival.
func TestOneOfALaneSeeksAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		queue := make(line)
		var all []*Asker[string]
		for range 4 {
			all = append(all, w.join(t, w.asker(alice, w.board(queue), say("page"))))
		}
		for _, a := range all[:2] {
			queue <- false
			requireNews(t, Refused, a)
			require.Equal(t, admission.QueueTimeout, a.Seat().Outcome.Reason)
			a.Leave()
		}
		queue <- true
		for _, a := range all[2:] {
			require.Equal(t, "page", read(t, a))
			a.Leave()
		}
		require.True(t, all[2].Leads())
		require.Equal(t, 1, w.count())
	})
}

// TestF13_TheFirstAskerLeaves: while it waits for its turn, while its fetch
// runs, and while all do.
func TestF13_TheFirstAskerLeaves(t *testing.T) {
	t.Parallel()
	t.Run("in line", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			queue := make(line)
			first := w.join(t, w.asker(alice, w.board(queue), say("first")))
			second := w.join(t, w.asker(alice, w.board(queue), say("second")))
			synctest.Wait()
			first.Leave()
			queue <- true // its place in line is the second's now
			require.Equal(t, "second", read(t, second))
			require.True(t, second.Leads())
			require.Equal(t, 1, w.count())
			second.Leave()
		})
	})
	t.Run("during the fetch", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			goOn := make(chan struct{})
			do := func(ctx context.Context, feed *Feed[string]) bool {
				select {
				case <-goOn:
				case <-ctx.Done():
					return false
				}
				return say("page")(ctx, feed)
			}
			first := w.join(t, w.asker(alice, w.free, do))
			second := w.join(t, w.asker(bob, w.free, do))
			synctest.Wait()
			first.Leave()
			synctest.Wait()
			close(goOn)
			require.Equal(t, "page", read(t, second))
			second.Leave()
			require.Equal(t, 1, w.count())
		})
	})
	t.Run("with everybody", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			var cause error
			do := func(ctx context.Context, _ *Feed[string]) bool {
				<-ctx.Done()
				cause = context.Cause(ctx)
				return false
			}
			first := w.join(t, w.asker(alice, w.free, do))
			second := w.join(t, w.asker(alice, w.free, do))
			synctest.Wait()
			second.Leave()
			first.Leave()
			synctest.Wait()
			require.ErrorIs(t, cause, context.Canceled)
			require.False(t, w.Flying(page))
		})
	})
	t.Run("with everybody in line", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			first := w.join(t, w.asker(alice, w.board(make(line)), say("first")))
			synctest.Wait()
			first.Leave()
			second := w.join(t, w.asker(alice, w.free, say("second")))
			require.Equal(t, "second", read(t, second), "a newcomer does not inherit a search that is cancelled")
			second.Leave()
		})
	})
}

func TestNotForAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		goOn := make(chan struct{})
		do := func(ctx context.Context, feed *Feed[string]) bool {
			<-goOn
			feed.Alone("head", errNotForAll)
			return feed.Write(ctx, []byte(strings.Repeat("x", 300*kib))) == nil
		}
		leader := w.join(t, w.asker(alice, w.free, do))
		follower := w.join(t, w.asker(alice, w.free, do))
		synctest.Wait()
		close(goOn)
		requireNews(t, LetGo, follower)
		require.ErrorIs(t, follower.Reason(), errNotForAll)
		require.False(t, w.Flying(page), "whoever comes next begins anew")
		follower.Leave()
		require.Len(t, read(t, leader), 300*kib)
		leader.Leave()
	})
}

func TestFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var cause error
		fail := w.join(t, w.asker(alice, w.free, func(ctx context.Context, feed *Feed[string]) bool {
			feed.Fail(errNotForAll)
			<-ctx.Done()
			cause = context.Cause(ctx)
			return false
		}))
		requireNews(t, LetGo, fail)
		require.ErrorIs(t, fail.Reason(), errNotForAll)
		fail.Leave()
		synctest.Wait()
		require.ErrorIs(t, cause, ErrUnwanted, "which does not say that the askers are gone")

		silent := w.join(t, w.asker(alice, w.free, func(context.Context, *Feed[string]) bool { return false }))
		requireNews(t, LetGo, silent)
		require.ErrorIs(t, silent.Reason(), ErrBroken)
		silent.Leave()

		broken := w.join(t, w.asker(alice, w.free, func(ctx context.Context, feed *Feed[string]) bool {
			say("half")(ctx, feed)
			return false
		}))
		requireNews(t, HeadCame, broken)
		piece, err := broken.Next(t.Context(), nil)
		require.NoError(t, err)
		require.Equal(t, "half", string(piece))
		_, err = broken.Next(t.Context(), nil)
		require.ErrorIs(t, err, ErrBroken)
		_, whole := broken.Whole()
		require.False(t, whole)
		broken.Leave()
	})
}

func TestInterim(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.join(t, w.asker(alice, w.free, func(ctx context.Context, feed *Feed[string]) bool {
			for range 2 * maxInterim {
				feed.Interim("hint")
			}
			return say("page")(ctx, feed)
		}))
		follower := w.join(t, w.asker(bob, w.board(make(line)), say("other")))
		for range maxInterim {
			requireNews(t, InterimCame, a)
			require.Equal(t, "hint", a.Interim())
		}
		require.Equal(t, "page", read(t, a))
		require.Equal(t, "page", read(t, follower), "without the hints")
		a.Leave()
		follower.Leave()
	})
}

func TestCancel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.join(t, w.asker(alice, w.free, func(ctx context.Context, feed *Feed[string]) bool {
			feed.Cancel(errNotForAll)
			err := feed.Write(ctx, []byte("page"))
			require.ErrorIs(t, err, errNotForAll)
			return false
		}))
		requireNews(t, LetGo, a)
		require.ErrorIs(t, a.Reason(), ErrBroken)
		a.Leave()
	})
}

type contextKey struct{}

// TestTheContextOfAFetch has the values of the leader's request, but not its end, and contexts that are made of it end
// with it.
func TestTheContextOfAFetch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.asker(alice, w.free, func(ctx context.Context, feed *Feed[string]) bool {
			require.Equal(t, "value", ctx.Value(contextKey{}))
			below, cancel := context.WithTimeout(ctx, time.Hour)
			defer cancel()
			require.NoError(t, below.Err())
			feed.Cancel(errNotForAll)
			<-below.Done()
			require.ErrorIs(t, context.Cause(below), errNotForAll)
			require.ErrorIs(t, context.Cause(ctx), errNotForAll)
			return false
		})
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), contextKey{}, "value"))
		cancel()
		a.Context = ctx
		w.join(t, a)
		requireNews(t, LetGo, a)
		a.Leave()
	})
}

func TestAwaitEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.join(t, w.asker(alice, w.board(make(line)), say("page")))
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errNotForAll)
		_, err := a.Await(ctx)
		require.ErrorIs(t, err, errNotForAll)
		a.Leave()
	})
}

func TestOutdated(t *testing.T) {
	t.Parallel()
	for name, outdate := range map[string]func(*world){
		"one": func(w *world) { w.Outdate(page.Primary) },
		"all": func(w *world) { w.OutdateAll() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				goOn := make(chan struct{})
				before := w.join(t, w.asker(alice, w.free, func(ctx context.Context, feed *Feed[string]) bool {
					<-goOn
					return say("before")(ctx, feed)
				}))
				synctest.Wait()
				w.Outdate([16]byte{9})
				require.True(t, w.Flying(page))
				outdate(w)
				require.False(t, w.Flying(page))
				after := w.join(t, w.asker(alice, w.free, say("after")))
				require.Equal(t, "after", read(t, after))
				close(goOn)
				require.Equal(t, "before", read(t, before))
				before.Leave()
				after.Leave()
			})
		})
	}
}

func TestStop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		flying := w.join(t, w.asker(alice, w.free, func(ctx context.Context, _ *Feed[string]) bool {
			<-ctx.Done()
			return false
		}))
		waiting := w.asker(alice, w.board(make(line)), say("page"))
		require.True(t, w.Join(Key{Primary: [16]byte{2}}, waiting))
		synctest.Wait()
		require.NoError(t, w.Stop(t.Context()))
		for _, a := range []*Asker[string]{flying, waiting} {
			_, err := a.Await(t.Context())
			require.NoError(t, err)
			a.Leave()
		}
		require.False(t, w.Join(page, w.asker(alice, w.free, say("page"))))
		require.NoError(t, w.Stop(t.Context()))
	})
}

func TestRename(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		variant := Key{Primary: page.Primary, Variant: [16]byte{7}}
		goOn := make(chan struct{})
		do := func(ctx context.Context, feed *Feed[string]) bool {
			feed.Rename(variant)
			<-goOn
			return say("page")(ctx, feed)
		}
		first := w.join(t, w.asker(alice, w.free, do))
		synctest.Wait()
		require.False(t, w.Flying(page))
		require.True(t, w.Flying(variant))
		second := w.asker(bob, w.free, do)
		require.True(t, w.Join(variant, second))
		other := w.join(t, w.asker(bob, w.free, do)) // cannot take a key that is taken
		synctest.Wait()
		require.True(t, w.Flying(page))
		require.Equal(t, 3, w.Askers())
		close(goOn)
		for _, a := range []*Asker[string]{first, second, other} {
			require.Equal(t, "page", read(t, a))
			a.Leave()
		}
		require.Equal(t, 2, w.count())
		require.False(t, w.Flying(variant))
	})
}

func TestStopIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		goOn := make(chan struct{})
		a := w.join(t, w.asker(alice, w.free, func(context.Context, *Feed[string]) bool {
			<-goOn // does not look at its context
			return false
		}))
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, w.Stop(ctx), context.DeadlineExceeded)
		close(goOn)
		a.Leave()
	})
}
