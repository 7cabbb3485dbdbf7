package store

import (
	"bytes"
	"math/rand/v2"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestF24_ChurnOverTheBudget stores twenty times what may be stored, of all
// sizes, while others read, some of them slowly. The file holds its bound all
// the time, and every body that is read is one that was stored.
func TestF24_ChurnOverTheBudget(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		budget int64
		size   func(*rand.Rand) int
	}{
		{"Small", 2 << 20, func(r *rand.Rand) int { return r.IntN(4_000) }},
		{"Medium", 8 << 20, func(r *rand.Rand) int { return r.IntN(40_000) }},
		{"Large", 8 << 20, func(r *rand.Rand) int { return r.IntN(1_000_000) }},
		{"Mixed", 8 << 20, func(r *rand.Rand) int { return []int{r.IntN(2_000), r.IntN(60_000), r.IntN(800_000)}[r.IntN(3)] }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ts := open(t, t.TempDir(), func(o *Options[string]) { o.MaxBytes = c.budget; o.MemoryBytes = c.budget / 16 })
			churn(t, ts, c.size, 20*c.budget)
			ts.flush(t)
			require.Zero(t, ts.metric(t, "ccnq_cache_write_failures_total"), ts.log)
			require.Zero(t, ts.metric(t, "ccnq_cache_read_failures_total"), ts.log)
			require.Positive(t, ts.metric(t, "ccnq_cache_evictions_total"))
			used := float64(ts.volume.Load().used.Load()) / float64(c.budget)
			require.Greater(t, used, 0.6, "the budget is made use of")
			require.LessOrEqual(t, used, 1.1)
		})
	}
}

// TestNoRoomForRemovals: a reader that stands still may keep all pages that are
// freed, so the file is not taken for corrupt before that has lasted.
func TestNoRoomForRemovals(t *testing.T) {
	t.Parallel()
	ts := open(t, t.TempDir())
	var v volume // another than the one that is written
	for range 3 {
		require.ErrorIs(t, ts.full(&v), errNoRoom)
	}
	require.Contains(t, ts.Degraded(), "no room")
	require.True(t, ts.add(1, "", []byte("body")))
	ts.flush(t)
	require.Empty(t, ts.Degraded(), "it stores again")
	v.fullSince = v.fullSince.Add(-fullFor)
	require.ErrorIs(t, ts.full(&v), errBroken)
}

// churn stores total bytes, and checks readers and the file meanwhile.
func churn(t *testing.T, ts *testStore, size func(*rand.Rand) int, total int64) {
	t.Helper()
	const keys = 50_000
	stop := make(chan struct{})
	var readers sync.WaitGroup
	defer readers.Wait()
	defer close(stop)
	for i := range 2 {
		readers.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 2))
			var held []*Item[string]
			for {
				select {
				case <-stop:
					for _, it := range held {
						it.Close()
					}
					return
				default:
				}
				it, ok := ts.Get(keyOf(r.IntN(keys)))
				if !ok {
					continue
				}
				if !verify(it) {
					t.Errorf("a wrong body of %s", it.name)
				}
				if held = append(held, it); len(held) > 8 {
					if !verify(held[0]) { // it may be gone for long
						t.Errorf("a wrong body of %s, later", held[0].name)
					}
					held[0].Close()
					held = held[1:]
				}
			}
		})
	}
	r := rand.New(rand.NewPCG(1, 1))
	for written := int64(0); written < total; {
		n := r.IntN(keys)
		body := make([]byte, size(r))
		seed(body, n)
		if ts.add(n, "", body) {
			written += int64(len(body)) + 200
		} else {
			ts.flush(t) // the queue is full
		}
		if r.IntN(100) == 0 {
			info, err := os.Stat(ts.disk.path())
			require.NoError(t, err)
			require.LessOrEqual(t, info.Size(), ts.opts.MaxBytes*3/2, "the file")
		}
	}
}

// seed fills a body with what only its key and length have.
func seed(b []byte, n int) {
	var pattern [64]byte
	for i := range pattern {
		pattern[i] = byte(n>>(i%3*8)) ^ byte(len(b)>>(i%4*8)) ^ byte(i)
	}
	for i := 0; i < len(b); i += len(pattern) {
		copy(b[i:], pattern[:])
		b[i] ^= byte(i >> 6)
		if i+1 < len(b) {
			b[i+1] ^= byte(i >> 14)
		}
	}
}

// verify checks a body of seed.
func verify(it *Item[string]) bool {
	var b bytes.Buffer
	if _, err := it.WriteTo(&b); err != nil {
		return false
	}
	want := make([]byte, it.Size())
	seed(want, numberOf(it.name))
	return bytes.Equal(want, b.Bytes())
}
