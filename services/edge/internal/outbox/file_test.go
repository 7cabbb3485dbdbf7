package outbox

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/ccnq/ccnq/pkg/wire"
)

// drop counts what a queue drops.
type drop struct{ records, requests int }

func (d *drop) count(r record) { d.records++; d.requests += r.requests }

func openAt(t testing.TB, path string, maxBytes int64) (*fileQueue, *drop) {
	t.Helper()
	d := new(drop)
	q, err := openFile(path, "/ccnq/edge/e", maxBytes, d.count)
	require.NoError(t, err)
	t.Cleanup(func() { _ = q.close() })
	return q, d
}

// some returns drafts of n addresses each.
func some(drafted, n int) []draft {
	var all []draft
	for range drafted {
		c := newCollector(maxDenials)
		for i := range n {
			note(c, QueueFull, i, "/some/path", noon)
		}
		all = append(all, drafts(c)...)
	}
	return all
}

// next acknowledges the head and returns its event.
func next(t testing.TB, q queue) wire.Event[wire.Denied] {
	t.Helper()
	r, ok, err := q.head()
	require.NoError(t, err)
	require.True(t, ok)
	e, err := wire.Decode[wire.Event[wire.Denied]](r.payload)
	require.NoError(t, err)
	require.Equal(t, q.name(), e.Data.OutboxID)
	require.Equal(t, r.seq, e.Data.Seq)
	require.Equal(t, eventID(q.name(), r.seq), e.ID)
	q.ack(r.seq)
	return e
}

func empty(t testing.TB, q queue) {
	t.Helper()
	_, ok, err := q.head()
	require.NoError(t, err)
	require.False(t, ok)
}

func TestQueuesKeepOrder(t *testing.T) {
	t.Parallel()
	file, _ := openAt(t, filepath.Join(t.TempDir(), "q.db"), 1<<20)
	memory := newMemoryQueue("/ccnq/edge/e", 1<<20, func(record) {})
	for name, q := range map[string]struct {
		queue
		add func([]draft) error
	}{"file": {file, file.write}, "memory": {memory, memory.add}} {
		t.Run(name, func(t *testing.T) {
			empty(t, q)
			require.NoError(t, q.add(some(3, 2)))
			<-q.wake()
			require.EqualValues(t, 1, next(t, q).Data.Seq)
			require.EqualValues(t, 2, next(t, q).Data.Seq)
			require.NoError(t, q.add(some(1, 2)))
			require.EqualValues(t, 3, next(t, q).Data.Seq)
			q.ack(1) // a late word changes nothing
			require.EqualValues(t, 4, next(t, q).Data.Seq)
			empty(t, q)
		})
	}
}

func TestAFileOutlivesItsProcess(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "q.db")
	q, _ := openAt(t, path, 1<<20)
	id := q.name()
	require.NoError(t, q.write(some(5, 3)))
	next(t, q)
	next(t, q)
	require.NoError(t, q.close())
	require.ErrorIs(t, q.write(some(1, 1)), errClosed)

	q, _ = openAt(t, path, 1<<20)
	require.Equal(t, id, q.name())
	records, _, _ := q.size()
	require.Equal(t, 3, records, "what was acknowledged is gone")
	for seq := uint64(3); seq <= 5; seq++ {
		require.Equal(t, seq, next(t, q).Data.Seq)
	}
	require.NoError(t, q.close())
	q, _ = openAt(t, path, 1<<20)
	empty(t, q)
	require.NoError(t, q.write(some(1, 1)))
	require.EqualValues(t, 6, next(t, q).Data.Seq, "a number is never used twice")
}

func TestAFullQueueDropsTheOldest(t *testing.T) {
	t.Parallel()
	file, fileDrop := openAt(t, filepath.Join(t.TempDir(), "q.db"), 20_000)
	memoryDrop := new(drop)
	memory := newMemoryQueue("/ccnq/edge/e", 20_000, memoryDrop.count)
	for name, q := range map[string]struct {
		queue
		add  func([]draft) error
		drop *drop
	}{"file": {file, file.write, fileDrop}, "memory": {memory, memory.add, memoryDrop}} {
		t.Run(name, func(t *testing.T) {
			for range 10 {
				require.NoError(t, q.add(some(4, 10)))
			}
			left := 0
			for {
				r, ok, err := q.head()
				require.NoError(t, err)
				if !ok {
					break
				}
				left++
				require.Equal(t, q.drop.records+left, int(r.seq), "the newest are kept")
				q.ack(r.seq)
			}
			require.Positive(t, left)
			require.Equal(t, 40, left+q.drop.records)
			require.Equal(t, 10*q.drop.records, q.drop.requests)
			require.NoError(t, q.add(some(1, 300)), "larger than the bound: it is alone")
			next(t, q)
		})
	}
}

// TestF24_FileLevelsOff floods the outbox again and again while nothing is
// sent, or slowly.
func TestF24_FileLevelsOff(t *testing.T) {
	t.Parallel()
	const budget = 1 << 20
	path := filepath.Join(t.TempDir(), "q.db")
	q, d := openAt(t, path, budget)
	random := rand.New(rand.NewPCG(1, 2))
	var levels []int64
	for range 10 {
		for range 60 { // a flood: more than the budget, of messages of any size
			require.NoError(t, q.write(some(1, 1+random.IntN(400))))
			if random.IntN(3) == 0 {
				next(t, q)
			}
		}
		_, bytes, file := q.size()
		require.LessOrEqual(t, bytes, int64(budget))
		levels = append(levels, file)
	}
	require.Positive(t, d.records)
	for _, file := range levels {
		// One more step of growth with each flood would pass the bound long
		// before the last one.
		require.LessOrEqual(t, file, int64(2*budget+4<<20), "the factor that is documented: %v", levels)
	}

	// Quiet: all is sent, and the space is given back.
	id, last := q.name(), uint64(0)
	for {
		r, ok, err := q.head()
		require.NoError(t, err)
		if !ok {
			break
		}
		last = r.seq
		q.ack(r.seq)
	}
	require.NoError(t, q.write(nil))
	_, _, file := q.size()
	require.LessOrEqual(t, file, int64(shrinkBytes))
	require.NoError(t, q.write(some(1, 1)))
	e := next(t, q)
	require.Equal(t, last+1, e.Data.Seq, "a file made anew goes on with the numbers")
	require.Equal(t, id, e.Data.OutboxID)
}

func TestShrink(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "q.db")
	q, _ := openAt(t, path, 64<<20)
	all := some(40, 800)
	require.NoError(t, q.write(all))
	_, _, before := q.size()
	require.Greater(t, before, int64(shrinkBytes))
	require.NoError(t, os.WriteFile(path+".new", []byte("left by a process that was killed"), 0o600))
	q.ack(uint64(len(all)))
	require.NoError(t, q.write(nil))
	_, _, after := q.size()
	require.Less(t, after, int64(1<<20))
	id := q.name()
	require.NoError(t, q.close())
	q, _ = openAt(t, path, 64<<20)
	require.Equal(t, id, q.name())
	require.NoError(t, q.write(some(1, 1)))
	require.EqualValues(t, len(all)+1, next(t, q).Data.Seq)
}

func TestCorruptFiles(t *testing.T) {
	t.Parallel()
	write := func(t *testing.T, path string, change func([]byte) []byte) {
		t.Helper()
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, change(b), 0o600))
	}
	inside := func(t *testing.T, path string, change func(tx *bbolt.Tx) error) {
		t.Helper()
		db, err := bbolt.Open(path, 0o600, nil)
		require.NoError(t, err)
		require.NoError(t, db.Update(change))
		require.NoError(t, db.Close())
	}
	for name, spoil := range map[string]func(t *testing.T, path string){
		"text": func(t *testing.T, path string) {
			t.Helper()
			write(t, path, func([]byte) []byte { return []byte("not a database") })
		},
		"zeros": func(t *testing.T, path string) {
			t.Helper()
			write(t, path, func(b []byte) []byte { clear(b); return b })
		},
		"cut": func(t *testing.T, path string) {
			t.Helper()
			write(t, path, func(b []byte) []byte { return b[:16<<10] })
		},
		"cut short": func(t *testing.T, path string) { t.Helper(); write(t, path, func(b []byte) []byte { return b[:100] }) },
		"bit in an event": func(t *testing.T, path string) {
			t.Helper()
			write(t, path, func(b []byte) []byte {
				i := indexLast(b, "/some/path")
				require.Positive(t, i)
				b[i] ^= 1
				return b
			})
		},
		"pages overwritten": func(t *testing.T, path string) {
			t.Helper()
			write(t, path, func(b []byte) []byte {
				for i := 8 << 10; i < len(b); i++ {
					b[i] = 0xA5
				}
				return b
			})
		},
		"no records": func(t *testing.T, path string) {
			t.Helper()
			inside(t, path, func(tx *bbolt.Tx) error { return tx.DeleteBucket(bucketRecords) })
		},
		"no meta": func(t *testing.T, path string) {
			t.Helper()
			inside(t, path, func(tx *bbolt.Tx) error { return tx.DeleteBucket(bucketMeta) })
		},
		"no id": func(t *testing.T, path string) {
			t.Helper()
			inside(t, path, func(tx *bbolt.Tx) error { return tx.Bucket(bucketMeta).Delete(keyID) })
		},
		"a kind that is not kept": func(t *testing.T, path string) {
			t.Helper()
			inside(t, path, func(tx *bbolt.Tx) error {
				return tx.Bucket(bucketRecords).Put([]byte("12345678"), encodeRecord(record{1, WouldQoS, 1, []byte("{}")}))
			})
		},
		"odd key": func(t *testing.T, path string) {
			t.Helper()
			inside(t, path, func(tx *bbolt.Tx) error { return tx.Bucket(bucketRecords).Put([]byte("x"), []byte("y")) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "q.db")
			q, _ := openAt(t, path, 1<<20)
			require.NoError(t, q.write(some(5, 50)))
			require.NoError(t, q.close())
			spoil(t, path)
			_, err := openFile(path, "/ccnq/edge/e", 1<<20, func(record) {})
			require.ErrorIs(t, err, errCorrupt)
			require.ErrorContains(t, err, path)
		})
	}
	_, err := openFile(filepath.Join(t.TempDir(), "no folder", "q.db"), "", 1, nil)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NotErrorIs(t, err, errCorrupt)
}

func indexLast(b []byte, what string) int {
	for i := len(b) - len(what); i >= 0; i-- {
		if string(b[i:i+len(what)]) == what {
			return i
		}
	}
	return -1
}

func FuzzRecord(f *testing.F) {
	f.Add([]byte("12345678"), encodeRecord(record{1, QueueTimeout, 7, []byte("payload")}))
	f.Add([]byte("1"), []byte{})
	f.Add([]byte("12345678"), []byte("short"))
	f.Fuzz(func(t *testing.T, k, v []byte) {
		r, err := decodeRecord(k, v)
		if err != nil {
			require.ErrorIs(t, err, errCorrupt)
			return
		}
		require.Equal(t, v, encodeRecord(r), fmt.Sprint(r))
	})
}
